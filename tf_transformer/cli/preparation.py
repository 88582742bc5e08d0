"""Commands before training: `doctor` and `tokenizer`."""

import argparse
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.console import import_tensorflow_quietly, print_line
from tf_transformer.cli.options import (
    RUN_HELP,
    add_run_settings,
    config_of,
    require_new,
    require_writable,
)
from tf_transformer.cli.parser import add_setting
from tf_transformer.config import SETTINGS, Config
from tf_transformer.config.settings import require_words
from tf_transformer.data.text import read_lines, text_files
from tf_transformer.run import Run
from tf_transformer.translation.checks import check_training

logger = logging.getLogger(__name__)

# --- doctor ----------------------------------------------------------------------------------


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `doctor`."""
    add = parser.add_argument
    add("checked_run", metavar="RUN", nargs="?", help=RUN_HELP)
    text = "test text, in the form of --train; repeatable"
    add("--test", action="append", metavar="PREFIX", default=[], help=text)
    text = "write the training pairs that pass, each once, to a new folder, with dev and test "
    text += "sets apart, and the others with their reasons; needs no --valid"
    add("--clean", metavar="DIR", help=text)
    text = "with --clean, also reject pairs whose numbers of two digits and more differ"
    add("--numbers", action="store_true", help=text)
    add_run_settings(parser)


def run_doctor(options: argparse.Namespace) -> None:
    """Checks text and vocabulary before training.

    Prints a line for each check, ok or warning; the exit status is 0 even with warnings. Takes
    a run directory or the options of `train`, of which --output, --devices, --stop-after
    and --accept-new-data have no effect here.
    """
    run = Run.open(options.checked_run) if options.checked_run else None
    if run and run.has_no_text:
        raise UserError(f"doctor checks text. Received: {run.path}, which has none.")
    config = run.config if run else config_of(options)
    check_training(_to_clean(config, options.clean) if options.clean else config)
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
    if options.clean:
        from tf_transformer.quality.cleaning import clean

        seed, output = config.training.seed, Path(options.clean)
        with ProgressBars() as bars:
            lines = clean(config.data, options.test, output, seed, bars, options.numbers)
        print("\n".join(lines))


def _to_clean(config: Config, output: str) -> Config:
    """Returns what to check before --clean, whose dev set may be missing."""
    folder, data = Path(output), config.data
    if not data.train:
        raise UserError("--clean needs --train.")
    if folder.exists() or output in data.train:
        raise UserError(f"--clean must name a new folder. Received: {output}.")
    require_writable("--clean", folder)
    return config.replace({"data.valid": data.valid or data.train})


def _link(run: Path, folder: Path) -> None:
    """Fills a folder with links to a run's files, so that nothing is written into the run."""
    shutil.copytree(
        run.resolve(),
        folder,
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("checkpoints", "logs"),
        dirs_exist_ok=True,
    )


# --- tokenizer -------------------------------------------------------------------------------


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tokenizer`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="text, plain or .gz")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .model to write")

    def add(option: str, name: str, end: str = "", **how: Any) -> None:
        dest = option.partition(" ")[0].strip("-").replace("-", "_")
        add_setting(parser, dest, SETTINGS[name], end, flag=option, **how)

    add("--vocab-size V", "model.vocab_size", required=True)
    add("--kind", "data.tokenizer_kind", " (default: bpe)", default="bpe")
    end = " (default: identity); see docs/guides/vocabulary.md"
    add("--normalization", "data.normalization", end, default="identity")
    add("--character-coverage SHARE", "data.character_coverage", " (default: 1)", default=1.0)
    add("--symbols WORD", "data.symbols", nargs="+", action="extend", default=[])


def run_tokenizer(options: argparse.Namespace) -> None:
    """Trains a SentencePiece vocabulary on all files, for several runs to share.

    Use it with `train --set data.tokenizer=FILE`; without it, every run trains its own.
    """
    from tf_transformer.data.vocabulary import symbol_pieces, train_tokenizer

    output = Path(options.output)
    require_new("--output", output)
    require_words("--symbols", options.symbols)
    lines = (line for file in options.files for line in read_lines(Path(file)))
    train_tokenizer(
        lines,
        output,
        vocab_size=options.vocab_size,
        kind=options.kind,
        normalization=options.normalization,
        character_coverage=options.character_coverage,
        symbols=symbol_pieces(options.symbols),
    )
    logger.info("%s: %s pieces", output, f"{options.vocab_size:,}")
