"""Commands for trees and labels: parse, draw, classify."""

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_line_buffered_option,
    add_run_options,
    add_search_options,
    in_chunks,
    open_model,
    open_run,
    picture,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.cli.parser import integer
from tf_transformer.data.text import is_visible, read_lines
from tf_transformer.decoding.streams import use_threads
from tf_transformer.tasks.classification.labelled import read_examples, read_labels
from tf_transformer.tasks.parsing.brackets import draw_trees
from tf_transformer.tasks.parsing.linearisation import read_linearised
from tf_transformer.tasks.parsing.trees import Tree, check_treebank, read_line

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


def add_draw(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `draw`."""
    add = parser.add_argument
    add("gold", metavar="GOLD", help="file of correct trees")
    add("trees", metavar="OUTPUT", help="file of a parser's trees")
    add("--line", type=integer, default=1, metavar="N", help="line to draw (default: 1)")
    add("--output", required=True, metavar="FILE", help="picture to write, .png, .svg or .pdf")


def run_draw(options: argparse.Namespace) -> None:
    """Draws a tree from OUTPUT below the tree on the same line of GOLD.

    Both files have one tree per line in Penn brackets. Dashed boxes mark brackets that the
    other tree lacks.
    """
    output = picture(options.output)
    gold, tree = (_tree(path, options.line) for path in (options.gold, options.trees))
    draw_trees(gold, tree, output)
    logger.info("%s", output)


def _tree(path: str, wanted: int) -> Tree:
    """Reads the tree on a line, counted from 1."""
    lines = list(read_lines(Path(path)))
    if not 1 <= wanted <= len(lines):
        raise UserError(
            f"--line must be between 1 and {len(lines):,} for {path}. Received: {wanted}."
        )
    trees = read_line(lines[wanted - 1], path, wanted)
    if len(trees) != 1:
        raise UserError(f"{path}:{wanted}: expected one tree. Received: {len(trees)}.")
    return trees[0]


def add_classify(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `classify`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    add_run_options(parser)
    add_line_buffered_option(parser)
    text = "print the N most probable labels with their probabilities: LABEL TAB P TAB ..."
    add("--n-best", type=integer, metavar="N", help=text)
    text = "score FILE, lines of a label, a TAB and a sentence, instead of labelling stdin"
    add("--labelled", metavar="FILE", help=text)


def run_classify(options: argparse.Namespace) -> None:
    """Labels stdin to stdout, one sentence per line; empty lines stay empty.

    With --labelled FILE it prints accuracy, macro F1 and a table of the classes instead.
    """
    run = open_run(options.run, "classification")
    labels = read_labels(run)
    most = len(labels)
    if options.n_best is not None and not 1 <= options.n_best <= most:
        raise UserError(
            f"--n-best must be between 1 and {most}, the labels of {run.path}. "
            f"Received: {options.n_best}."
        )
    file = options.labelled
    examples = list(read_examples(Path(file), labels)) if file else []
    run.weights(options.checkpoint)
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.tasks.classification.predictor import load_classifier

    classifier = load_classifier(run, options.checkpoint)
    if file:
        sentences, right = ([example[i] for example in examples] for i in (0, 1))
        with ProgressBars(len(examples)) as bars:
            scores = classifier.evaluate(sentences, right, lambda n: bars("classified", n))
        print_report(f"{scores}\n")
    else:
        _label_stdin(classifier, stdin_chunks(options.line_buffered), options.n_best)


def _label_stdin(classifier, chunks: Iterator[list[str]], n_best: int | None) -> None:
    done = 0
    with stdin_bars() as bars:
        for sentences in chunks:
            predictions = classifier.classify(
                sentences, lambda n, done=done: bars("classified", done + n)
            )
            for sentence, prediction in zip(sentences, predictions, strict=True):
                line = _line(prediction, n_best) if is_visible(sentence) else ""
                sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            done += len(sentences)


def _line(prediction, n_best: int | None) -> str:
    """Formats the best label, or the `n_best` labels with their probabilities."""
    if n_best is None:
        return prediction
    ranked = list(prediction.probabilities.items())[:n_best]
    return "\t".join(f"{label}\t{probability:.4f}" for label, probability in ranked)
