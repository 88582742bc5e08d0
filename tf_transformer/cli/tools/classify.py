"""`tf-transformer classify RUN < sentences > labels`, and scores on labelled sentences."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.lines import add_line_buffered_option, stdin_bars, stdin_chunks
from tf_transformer.cli.options import add_run_options, open_run
from tf_transformer.cli.parser import integer
from tf_transformer.cli.terminal import print_report
from tf_transformer.data.corpus import is_visible
from tf_transformer.decoding.threads import use_threads
from tf_transformer.errors import UserError
from tf_transformer.progress import ProgressBars
from tf_transformer.tasks.classification.labelled import (
    Example,
    read_examples,
    read_labels,
    require_labels,
)

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_run_options(parser)
    add_line_buffered_option(parser)
    add = parser.add_argument
    text = "print the N most probable labels with their probabilities: LABEL TAB P TAB ..."
    add("--n-best", type=integer, metavar="N", help=text)
    text = "score FILE, lines of a label, a TAB and a sentence, instead of labelling stdin"
    add("--labelled", metavar="FILE", help=text)


def command(options: argparse.Namespace) -> None:
    """Labels stdin to stdout, one sentence per line; empty lines stay empty.

    With --labelled FILE it prints accuracy, macro F1 and a table of the classes instead.
    """
    run = open_run(options.run, "classification")
    most = len(require_labels(run))
    if options.n_best is not None and not 1 <= options.n_best <= most:
        raise UserError(
            f"--n-best must be between 1 and {most}, the labels of {run.path}. "
            f"Received: {options.n_best}."
        )
    if options.labelled:
        examples = list(read_examples(Path(options.labelled), read_labels(run)))
        _score(_load(run, options.checkpoint), examples)
    else:
        chunks = stdin_chunks(options.line_buffered)
        _label_stdin(_load(run, options.checkpoint), chunks, options.n_best)


def _score(classifier, examples: Sequence[Example]) -> None:
    from tf_transformer.tasks.classification.metrics import format_scores

    sentences = [example.sentence for example in examples]
    labels = [example.label for example in examples]
    with ProgressBars(len(examples)) as bars:
        scores = classifier.evaluate(sentences, labels, lambda done: bars("classified", done))
    print_report(format_scores(scores))


def _load(run, checkpoint: str | None):
    run.weights(checkpoint)
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.tasks.classification.predictor import load_classifier

    return load_classifier(run, checkpoint)


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
