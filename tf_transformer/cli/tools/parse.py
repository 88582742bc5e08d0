"""`tf-transformer parse RUN < sentences > trees`: one tree per line."""

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from tf_transformer.cli.lines import (
    add_line_buffered_option,
    in_chunks,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.cli.options import add_translator_options, open_model
from tf_transformer.tasks.parsing.treebank import check_treebank, read_pairs

logger = logging.getLogger(__name__)

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_translator_options(parser, "--ensemble")
    add_line_buffered_option(parser)
    text = (
        "what the search may write: any sequence, repaired afterwards (none); trees over "
        "exactly the words, with any tags (words) or only tags that the training trees allow "
        "for each word (tags, the default)"
    )
    parser.add_argument(
        "--constraint", choices=("none", "words", "tags"), default="tags", help=text
    )
    text = "parse the words of the trees in FILE, plain or .gz, instead of stdin"
    parser.add_argument("--words-of", metavar="FILE", help=text)


def command(options: argparse.Namespace) -> None:
    """Parses stdin to stdout, one tree in Penn brackets per line of words.

    Words are separated by spaces; empty lines stay empty. Reports on stderr how many trees had
    to be repaired.
    """
    chunks = _chunks(options.words_of, options.line_buffered)
    parser = open_model(options, "parsing", constraint=options.constraint)

    from tf_transformer.tasks.parsing.parser import Counts

    total, done = Counts(), 0

    def show(number: int) -> None:
        bars("parsed", done + number)

    with stdin_bars() as bars:
        for sentences in chunks:
            parses = parser.parse(sentences, show)
            sys.stdout.writelines(f"{parse}\n" for parse in parses)
            sys.stdout.flush()
            total, done = total + Counts.of(parses), done + len(sentences)
    logger.info("%s", total.summary())


def _chunks(treebank: str | None, line_buffered: bool) -> Iterator[list[str]]:
    """Returns chunks of sentences from stdin, or of a file of trees, which is checked first."""
    if treebank is None:
        return stdin_chunks(line_buffered)
    check_treebank(Path(treebank))
    return in_chunks(sentence for sentence, _ in read_pairs(Path(treebank)))
