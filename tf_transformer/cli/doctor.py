"""The command `doctor`."""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import import_tensorflow_quietly, print_line
from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.training_options import add_run_settings, config_of
from tf_transformer.data.text import read_lines, text_files
from tf_transformer.run import Run
from tf_transformer.tasks.checks import check_training


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `doctor`."""
    add = parser.add_argument
    add("checked_run", metavar="RUN", nargs="?", help=RUN_HELP)
    text = "test text, in the form of --train; repeatable"
    add("--test", action="append", metavar="PREFIX", default=[], help=text)
    add_run_settings(parser)


def run_doctor(options: argparse.Namespace) -> None:
    """Checks text and vocabulary before training.

    Prints a line for each check, ok or warning; the exit status is 0 even with warnings. Takes
    a run directory or the options of `train`, of which --output, --devices, --stop-after
    and --accept-new-data have no effect here.
    """
    run = open_run(options.checked_run, None) if options.checked_run else None
    if run and run.has_no_text:
        raise UserError(f"doctor checks text. Received: {run.path}, which has none.")
    config = run.config if run else config_of(options)
    check_training(config)
    for file in text_files(config.replace({"data.train": (*options.test,)}).data, "train"):
        next(read_lines(file), None)  # refuses what cannot be read
    import_tensorflow_quietly()

    from tf_transformer.api.training_session import examine

    with tempfile.TemporaryDirectory() as folder:
        if run:
            _link(run.path, Path(folder))
        findings = examine(Run(Path(folder), config), options.test)
    for finding in findings:
        print_line(str(finding), 9 * " ", finding.warning)
    warnings = sum(finding.warning for finding in findings)
    print(f"{warnings} {'warning' if warnings == 1 else 'warnings'}")


def _link(run: Path, folder: Path) -> None:
    """Fills a folder with links to a run's files, so that nothing is written into the run."""
    shutil.copytree(
        run.resolve(),
        folder,
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("checkpoints", "logs"),
        dirs_exist_ok=True,
    )
