"""`tf-transformer doctor`: looks for mistakes before hours of training."""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.parser import given_except
from tf_transformer.cli.terminal import print_line
from tf_transformer.cli.training_options import add_run_settings, config_of
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.registry import check_training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("run", metavar="RUN", nargs="?", help=RUN_HELP)
    add_run_settings(parser)
    text = "test text, in the form of --train; repeatable"
    add("--test", action="append", metavar="PREFIX", default=[], help=text)


def command(options: argparse.Namespace) -> None:
    """Checks text and vocabulary before training.

    Prints a line for each check, ok or warning; the exit status is 0 even with warnings. Takes
    a run directory or the options of `train`, of which --output, --devices, --stop-after
    and --accept-new-data have no effect here.
    """
    if options.run and (others := given_except(options, "test")):
        raise UserError(
            "doctor takes a run directory or the options of a training. Received: "
            f"{options.run} and {others}."
        )
    run = open_run(options.run, None) if options.run else None
    if run and run.has_no_text:
        raise UserError(f"doctor checks text. Received: {run.path}, which has none.")
    config = run.config if run else config_of(options)
    import_tensorflow_quietly()

    from tf_transformer.api.diagnosis import examine

    check_training(config)
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
