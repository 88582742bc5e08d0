"""The command `parse`."""

import argparse
import logging
import sys
from pathlib import Path

from tf_transformer.cli.options import (
    add_line_buffered_option,
    add_run_options,
    add_search_options,
    in_chunks,
    open_model,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.tasks.parsing.linearisation import read_linearised
from tf_transformer.tasks.parsing.trees import check_treebank

logger = logging.getLogger(__name__)


def add_parse(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `parse`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    add_run_options(parser, "--ensemble")
    add_line_buffered_option(parser)
    text = (
        "what the search may write: any sequence, repaired afterwards (none); trees over "
        "exactly the words, with any tags (words) or only tags that the training trees allow "
        "for each word (tags, the default)"
    )
    add("--constraint", choices=("none", "words", "tags"), default="tags", help=text)
    text = "parse the words of the trees in FILE, plain or .gz, instead of stdin"
    add("--words-of", metavar="FILE", help=text)
    add_search_options(parser)


def run_parse(options: argparse.Namespace) -> None:
    """Parses stdin to stdout, one tree in Penn brackets per line of words.

    Words are separated by spaces; empty lines stay empty. Reports on stderr how many trees had
    to be repaired.
    """
    if options.words_of:
        trees = Path(options.words_of)
        check_treebank(trees)
        chunks = in_chunks(sentence for sentence, _ in read_linearised(trees))
    else:
        chunks = stdin_chunks(options.line_buffered)
    model = open_model(options, "parsing", constraint=options.constraint)

    from tf_transformer.tasks.parsing.parser import Counts

    total, done = Counts(), 0
    with stdin_bars() as bars:
        for sentences in chunks:
            parses = model.parse(sentences, lambda n, done=done: bars("parsed", done + n))
            sys.stdout.writelines(f"{parse}\n" for parse in parses)
            sys.stdout.flush()
            total, done = total + Counts.of(parses), done + len(sentences)
    logger.info("%s", total.summary())
