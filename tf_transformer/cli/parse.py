"""The command `parse`."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.base.output import Table
from tf_transformer.cli.console import print_report
from tf_transformer.cli.options import (
    add_line_buffered_option,
    add_run_options,
    add_search_options,
    in_chunks,
    open_model,
    require_equal_lengths,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.data.text import read_lines
from tf_transformer.tasks.parsing.brackets import (
    CUTOFF,
    DELETED,
    SentenceScore,
    Status,
    score_lines,
    summarise,
)
from tf_transformer.tasks.parsing.trees import ROOTS, check_treebank, read_line, read_linearised

logger = logging.getLogger(__name__)

# Of the table of scores.
_COUNTS = ("sentences", "errors", "skipped", "valid")
_FIGURES = (
    "recall", "precision", "f1", "complete_match", "average_crossing", "no_crossing",
    "two_or_less_crossing", "tagging_accuracy",
)  # fmt: skip


def add_parse(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `parse`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    add_run_options(parser, "--ensemble", nargs="?")
    add_line_buffered_option(parser)
    text = (
        "what the search may write: any sequence, repaired afterwards (none); trees over "
        "exactly the words, with any tags (words) or only tags that the training trees allow "
        "for each word (tags, the default)"
    )
    add("--constraint", choices=("none", "words", "tags"), default="tags", help=text)
    text = "parse the words of the trees in FILE, plain or .gz, instead of stdin"
    add("--words-of", metavar="FILE", help=text)
    text = "score the trees on stdin by those in GOLD: labelled precision, recall and more"
    add("--score", metavar="GOLD", help=text)
    add_search_options(parser)


def run_parse(options: argparse.Namespace) -> None:
    """Parses stdin to stdout, one tree in Penn brackets per line of words.

    Words are separated by spaces; empty lines stay empty. Reports on stderr how many trees had
    to be repaired. With --score GOLD, reads trees and prints their scores instead.
    """
    if options.score:
        _score(options.score)
        return
    if not options.run:
        options.parser.error("the following arguments are required: RUN")
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


def _score(gold_name: str) -> None:
    """Prints the scores of all sentences and of short ones; logs each sentence left out."""
    gold, output = (list(read_lines(file)) for file in (Path(gold_name), 0))
    require_equal_lengths("stdin", output, gold_name, gold)
    scores = score_lines(gold, output, gold_name=gold_name)
    for number, score in enumerate(scores, start=1):
        if score.status == Status.ERROR:
            logger.warning("sentence %d is left out: %s", number, score.problem)
    _warn_of_root(gold, gold_name)
    print_report(_bracket_table(scores), style="plain")


def _warn_of_root(gold: Sequence[str], name: str) -> None:
    """Warns if the rules count the gold trees' root as a bracket; parsers output TOP."""
    first = next((line for line in gold if line.strip()), "")
    labels = [tree.label for tree in read_line(first, name)]
    if any(label in ROOTS and label not in DELETED for label in labels):
        logger.warning(
            "warning  the root of the trees in %s is %s, which these rules count as a bracket: "
            "rename it to TOP, unless the output has it too",
            name,
            labels[0] or "a bracket without a label",
        )


def _bracket_table(scores: Sequence[SentenceScore]) -> Table:
    summaries = summarise(scores), summarise(s for s in scores if s.length <= CUTOFF)
    rows = [
        [name.replace("_", " ").replace("f1", "F1")]
        + [format(getattr(each, name), form) for each in summaries]
        for names, form in ((_COUNTS, ",d"), (_FIGURES, ".2f"))
        for name in names
    ]
    return Table(["", "all", f"<= {CUTOFF} words"], rows, "lr")
