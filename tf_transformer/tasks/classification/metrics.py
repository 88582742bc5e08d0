"""Scores of a classification: accuracy, macro F1 and the scores of each class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tf_transformer.output import Table


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class.

    Attributes:
        label: name of the class.
        precision: share of the predictions of this class that are correct.
        recall: share of the sentences of this class that are predicted as such.
        f1: 2PR / (P + R).
        support: number of sentences of the class.
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, repr=False)
class ClassScores:
    """Scores of a set of sentences, from 0 to 1, computed from its confusion matrix.

    Attributes:
        labels: of all classes.
        counts: confusion matrix, int [C, C]: correct class (row) by predicted class (column).
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return int(self.counts.sum())

    @property
    def right(self) -> int:
        """Number of correctly classified sentences."""
        return int(np.trace(self.counts))

    @property
    def accuracy(self) -> float:
        """Share of correctly classified sentences."""
        return self.right / self.sentences

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of F1 over the classes that occur, as labels or as predictions.

        F1 of a class is 2 tp / (2 tp + fp + fn): 0 if it is never predicted correctly.
        """
        f1, occur = self._f1()
        return float(f1[occur].mean())

    def __repr__(self) -> str:
        return format_scores(self).rstrip()

    def rows(self) -> list[ClassScore]:
        """Returns the scores of each class; 0 where a class never occurs."""
        right, predicted, gold = np.diag(self.counts), self.counts.sum(0), self.counts.sum(1)
        precision, recall = right / np.maximum(predicted, 1), right / np.maximum(gold, 1)
        columns = precision, recall, self._f1()[0], gold
        rows = zip(self.labels, *(column.tolist() for column in columns), strict=True)
        return [ClassScore(*row) for row in rows]

    def _f1(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns F1 of each class, and whether the class occurs, [C] each."""
        occurrences = self.counts.sum(0) + self.counts.sum(1)  # 2 tp + fp + fn
        return 2 * np.diag(self.counts) / np.maximum(occurrences, 1), occurrences > 0


def score_classes(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> ClassScores:
    """Scores predicted labels against the correct ones.

    Args:
        gold: the correct label of each sentence, one of `labels`.
        predicted: the predicted label of each, one of `labels`.
        labels: of all classes.

    Raises:
        ValueError: if there are no sentences, or `gold` and `predicted` differ in length.
    """
    if len(gold) != len(predicted) or not gold:
        raise ValueError(
            "`gold` and `predicted` must be of equal length, at least 1. "
            f"Received: {len(gold)} and {len(predicted)}."
        )
    index_of = {label: index for index, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for row, column in zip(gold, predicted, strict=True):
        counts[index_of[row], index_of[column]] += 1
    return ClassScores(tuple(labels), counts)


def format_scores(scores: ClassScores) -> str:
    """Formats a table of the scores of each class and overall, in percent."""
    rows = [
        [row.label, *(f"{100 * share:.2f}" for share in (row.precision, row.recall, row.f1))]
        + [f"{row.support:,}"]
        for row in scores.rows()
    ]
    table = Table(["", "precision", "recall", "F1", "sentences"], rows, "lr")
    return f"{table.text('plain')}\n{summary(scores)}\n"


def summary(scores: ClassScores) -> str:
    """Formats a line such as "accuracy 90.00 (9 of 10)  macro F1 88.31"."""
    return (
        f"accuracy {100 * scores.accuracy:.2f} ({scores.right:,} of {scores.sentences:,})  "
        f"macro F1 {100 * scores.macro_f1:.2f}"
    )
