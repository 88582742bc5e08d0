"""The command `python -m experiments.classification`: train, classify, evaluate."""

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.classification.labelled import read_examples
from experiments.common import positive, run, run_one
from experiments.text import read_lines
from tf_transformer import UserError

AT_ONCE = 2_000  # sentences


def main(words: Sequence[str] | None = None) -> None:
    """Trains a classifier of sentences, labels sentences, and scores the labels."""
    run_one("python -m experiments.classification", main.__doc__, COMMANDS, words)


def _add_train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "files of labelled sentences, plain or .gz: a label, a TAB and a sentence a line"
    add("--train", nargs="+", type=Path, required=True, metavar="FILE", help=text)
    text = "files of labelled sentences that choose the best weights"
    add("--valid", nargs="+", type=Path, required=True, metavar="FILE", help=text)
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the classifier")
    text = "run of a translator: begin with its tokenizer, embedding and encoder"
    add("--init-from", type=Path, metavar="RUN", help=text)
    text = "train only the projection to labels, on an encoder of --init-from"
    add("--freeze", action="store_true", help=text)
    group = parser.add_argument_group("settings, by default for some 10,000 sentences")
    add = group.add_argument
    for name, kind, text in (
        ("--layers", positive, "layers of a new encoder"),
        ("--d-model", positive, "its width"),
        ("--d-ff", positive, "the inner width of its feed-forward networks"),
        ("--heads", positive, "its attention heads"),
        ("--vocab-size", positive, "pieces of a new tokenizer"),
        ("--dropout", float, "rate of dropout"),
        ("--subword-sampling", float, "probability of BPE-dropout; 0: off"),
        ("--steps", positive, "updates in total"),
        ("--batch-tokens", positive, "positions of a batch"),
        ("--warmup", positive, "updates in which the learning rate grows"),
        ("--rate-scale", float, "factor on the paper's learning rate"),
        ("--label-smoothing", float, "probability spread over the labels"),
        ("--evaluate-every", positive, "updates between evaluations"),
        ("--seed", int, "of weights, dropout, order and subwords"),
    ):
        add(name, type=kind, metavar="X", help=text)


def _train(options: argparse.Namespace) -> None:
    """Trains a classifier, and keeps the weights that are best on the dev sentences."""
    from experiments.classification.classifier import Settings, train

    if options.freeze and not options.init_from:
        raise UserError("--freeze is for an encoder of --init-from RUN. Received: neither.")
    names = {field.name for field in dataclasses.fields(Settings)}
    chosen = {name: value for name, value in vars(options).items() if name in names}
    settings = Settings(**{name: each for name, each in chosen.items() if each is not None})
    train(
        options.train,
        options.valid,
        options.output,
        settings,
        init_from=options.init_from,
        freeze=options.freeze,
    )
    print(f"python -m experiments.classification classify {options.output} < sentences")


def _add_classify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("classifier", type=Path, metavar="CLASSIFIER", help="the --output of train")
    text = "print the N most probable labels with their probabilities: LABEL TAB P TAB ..."
    add("--n-best", type=positive, metavar="N", help=text)


def _classify(options: argparse.Namespace) -> None:
    """Labels stdin to stdout, one sentence per line; empty lines stay empty."""
    from experiments.classification.classifier import Classifier

    classifier, lines = Classifier.load(options.classifier), read_lines("-")
    while sentences := [*itertools.islice(lines, AT_ONCE)]:
        ranked = classifier.classify(sentences)
        for sentence, labels in zip(sentences, ranked, strict=True):
            print(_line(labels, options.n_best) if sentence.strip() else "")
        sys.stdout.flush()


def _line(labels: dict[str, float], n_best: int | None) -> str:
    """Formats the best label, or the `n_best` labels with their probabilities."""
    if n_best is None:
        return next(iter(labels))
    ranked = [*labels.items()][:n_best]
    return "\t".join(f"{label}\t{probability:.4f}" for label, probability in ranked)


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("classifier", type=Path, metavar="CLASSIFIER", help="the --output of train")
    add("file", type=Path, metavar="FILE", help="labelled sentences, plain or .gz")


def _evaluate(options: argparse.Namespace) -> None:
    """Prints accuracy and macro F1 on labelled sentences, and the scores of each label."""
    from experiments.classification.classifier import Classifier

    classifier = Classifier.load(options.classifier)
    scores = classifier.evaluate([*read_examples(options.file, classifier.labels)])
    print(f"{scores.table()}\n{scores.summary()}")


COMMANDS = {
    "train": (_add_train, _train),
    "classify": (_add_classify, _classify),
    "evaluate": (_add_evaluate, _evaluate),
}

if __name__ == "__main__":
    sys.exit(run(main))
