"""The command `classify`."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_line_buffered_option,
    add_run_options,
    open_run,
    require_between,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.cli.parser import integer
from tf_transformer.data.text import is_visible
from tf_transformer.decoding.streams import use_threads
from tf_transformer.loading.kinds import load_run


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
    from tf_transformer.tasks.classification.labelled import read_examples, read_labels

    run = open_run(options.run, "classification")
    labels = read_labels(run)
    if options.n_best is not None:
        require_between(
            "--n-best", options.n_best, 1, len(labels), f", the labels of {run.path}"
        )
    file = options.labelled
    examples = list(read_examples(Path(file), labels)) if file else []
    run.weights(options.checkpoint)
    import_tensorflow_quietly()
    use_threads()
    classifier = load_run(run, options.checkpoint)
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
