"""What several experiments need: a command's errors, pairs of text, tables, pictures, files."""

import argparse
import dataclasses
import itertools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from tf_transformer import Run, Translator, UserError, load


def run(command: Callable[[Sequence[str] | None], int | None], words=None) -> int:
    """Runs a command; returns its exit status. A user's mistake is one line on stderr."""
    logging.basicConfig(format="%(message)s")  # warnings of the package, on stderr too
    try:
        return command(words) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


Command = Callable[[argparse.Namespace], None]
Commands = Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], Command]]


class Parser(argparse.ArgumentParser):
    """A parser whose description is a docstring, and whose errors are one line."""

    def error(self, message: str) -> Any:
        """Ends the process with one line."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def run_one(prog: str, about: str | None, commands: Commands, words=None) -> None:
    """Runs one of several commands, which each add their options and read them."""
    parser = Parser(prog=prog, description=about)
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, (add_options, command) in commands.items():
        text = (command.__doc__ or "").splitlines()[0]
        one = subparsers.add_parser(name, help=text, description=text)
        add_options(one)
        one.set_defaults(run=command)
    options = parser.parse_args(words)
    options.run(options)


def integer(text: str) -> int:
    """Reads an argument that must be an int from 0."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected an int from 0. Received: {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Reads an argument that must be an int from 1."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected an int from 1. Received: {text!r}")
    return int(text)


# --- A model ---------------------------------------------------------------------------------


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `open_translator` reads."""
    add = parser.add_argument
    which = "best, average, last or a step (default: the run's)"
    add("--checkpoint", metavar="WHICH", help=which)
    add("--tag", metavar="TAG", help="words put before each source, as in training")
    add("--beam", type=positive, metavar="N", help="beam size (default: the run's)")
    add("--alpha", type=float, metavar="A", help="of the length penalty (default: the run's)")


def open_translator(origin: Run, options: argparse.Namespace) -> Translator:
    """Loads a run with the options of `add_model_options`."""
    found = load(origin.path, checkpoint=options.checkpoint, tag=options.tag)
    given = {"beam_size": options.beam, "alpha": options.alpha}
    given = {name: value for name, value in given.items() if value is not None}
    return Translator(
        found.model,
        found.tokenizer,
        dataclasses.replace(found.decoding, **given),
        bleu_tokenizer=origin.config.data.bleu_tokenizer,
    )


def fitting(
    translator: Translator, sources: list[str], references: list[str]
) -> tuple[list[str], list[str]]:
    """Drops the pairs that the model would cut, and prints their number."""
    fits = translator.fits(sources, references)
    if not all(fits):
        print(f"pairs left out as too long: {fits.count(False)}")
    if not any(fits):
        raise UserError("All sentence pairs are too long for the model. Give shorter ones.")
    return [*itertools.compress(sources, fits)], [*itertools.compress(references, fits)]


# --- Text ----------------------------------------------------------------------------------


def read_lines(path: str | Path) -> list[str]:
    """Returns the lines of a UTF-8 file, split at line feeds only; UserError if it has none."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text: {error}.") from None
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        raise UserError(f"{path} must have at least one line.")
    return lines


def read_pairs(source: str, reference: str) -> tuple[list[str], list[str]]:
    """Returns the lines of a text and of its translations; UserError if they do not match."""
    sources, references = read_lines(source), read_lines(reference)
    if len(sources) != len(references):
        raise UserError(
            "A text and its translations must have the same number of lines. Received: "
            f"{source} with {len(sources):,}, {reference} with {len(references):,}."
        )
    return sources, references


# --- Output --------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[object]], align: str) -> str:
    """Returns a table in Markdown; `align` has "l" or "r" by column, the last for the rest."""
    sides = align + align[-1] * (len(header) - len(align))
    names = [{"l": "left", "r": "right"}[side] for side in sides]
    return tabulate(rows, header, "github", colalign=names, disable_numparse=True)


def write(path: Path, text: str) -> None:
    """Replaces a file as a whole, so that an interruption leaves the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)


def new_figure(width: float, height: float) -> Any:
    """Returns an empty matplotlib figure, sized in inches; UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'Pictures need matplotlib: pip install "tf-transformer[plot]".'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, *paths: Path) -> None:
    """Writes a picture in the format of each path's suffix."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(path, dpi=200)
        except (OSError, ValueError) as error:  # no such folder; no such format
            raise UserError(f"{path} cannot be written: {error}.") from None
        print(path)
