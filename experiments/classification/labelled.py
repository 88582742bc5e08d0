"""Labelled text (a label, a TAB and a sentence on each line), and scores of labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.common import table
from experiments.text import read_lines, shortened
from tf_transformer import UserError


class Example(NamedTuple):
    """A sentence and its label, both stripped of surrounding white space."""

    sentence: str
    label: str


def read_examples(path: Path, labels: Sequence[str] | None = None) -> Iterator[Example]:
    """Yields the examples of a file, plain or .gz, one per line.

    Raises UserError if the file cannot be read or is empty, or a line lacks a TAB, a label or a
    sentence, or has a label that is not in `labels`, if given; it names file and line.
    """
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        label, _, sentence = (part.strip() for part in line.partition("\t"))
        if not (label and sentence):
            raise UserError(
                f"{path}:{number}: expected a label, a TAB and a sentence. Received: "
                f"{shortened(line)!r}."
            )
        if labels is not None and label not in labels:
            raise UserError(
                f"{path}:{number}: the training files do not have the label {label!r}. They "
                f"have: {shortened(', '.join(labels))}."
            )
        yield Example(sentence, label)
    if not number:
        raise UserError(f"{path} is empty. Expected lines of a label, a TAB and a sentence.")


def labels_of(examples: Sequence[Example]) -> list[str]:
    """Returns the labels, sorted by code point; UserError if there is only one.

    Prints their number, and those that occur once: a table's header row would be one.
    """
    counts = Counter(example.label for example in examples)
    labels = sorted(counts)
    if len(labels) < 2:
        raise UserError(f"Expected at least two labels. Received: {', '.join(labels)}.")
    print(f"{len(labels)} labels: {shortened(', '.join(labels), 1_000)}")
    if once := [label for label in labels if counts[label] == 1]:
        print(f"labels that occur once, such as a header: {shortened(', '.join(once), 500)}")
    return labels


# --- Scores -----------------------------------------------------------------------------


class LabelScore(NamedTuple):
    """Precision, recall and F1 of one label, from 0 to 1, and its number of sentences."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class LabelScores:
    """Scores of a set of sentences, from 0 to 1, computed from its confusion matrix."""

    labels: tuple[str, ...]  # all of them
    counts: np.ndarray  # int [C, C]: correct label (row) by predicted label

    @property
    def accuracy(self) -> float:
        """Share of correctly classified sentences."""
        return float(np.trace(self.counts) / self.counts.sum())

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of F1 over the labels that occur, as correct or predicted ones.

        F1 of a label is 2 tp / (2 tp + fp + fn): 0 if it is never predicted correctly.
        """
        f1, occurrences = self._f1()
        return float(f1[occurrences > 0].mean())

    def summary(self) -> str:
        """Formats a line such as "accuracy 90.00 (9 of 10)  macro F1 88.31"."""
        right, number = np.trace(self.counts), self.counts.sum()
        return (
            f"accuracy {100 * self.accuracy:.2f} ({right:,} of {number:,})  "
            f"macro F1 {100 * self.macro_f1:.2f}"
        )

    def table(self) -> str:
        """Formats the scores of each label, in percent."""
        rows = [
            [row.label, *(f"{100 * share:.2f}" for share in row[1:4]), f"{row.support:,}"]
            for row in self.rows()
        ]
        return table(["", "precision", "recall", "F1", "sentences"], rows, "lr")

    def rows(self) -> list[LabelScore]:
        """Returns the scores of each label; 0 where it never occurs."""
        right, predicted, gold = np.diag(self.counts), self.counts.sum(0), self.counts.sum(1)
        precision, recall = right / np.maximum(predicted, 1), right / np.maximum(gold, 1)
        columns = precision, recall, self._f1()[0], gold
        rows = zip(self.labels, *(column.tolist() for column in columns), strict=True)
        return [LabelScore(*row) for row in rows]

    def _f1(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns F1 of each label, and how often it occurs on both sides, [C] each."""
        occurrences = self.counts.sum(0) + self.counts.sum(1)  # 2 tp + fp + fn
        return 2 * np.diag(self.counts) / np.maximum(occurrences, 1), occurrences


def score_labels(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> LabelScores:
    """Scores the predicted label of each sentence, at least one, against the correct one."""
    index_of = {label: index for index, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for row, column in zip(gold, predicted, strict=True):
        counts[index_of[row], index_of[column]] += 1
    return LabelScores(tuple(labels), counts)
