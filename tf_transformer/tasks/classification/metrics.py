"""Scores of a classification: accuracy, macro F1, and confused classes, also as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tf_transformer.plots.figure import families_for, missing_glyphs_logged, new_figure, save
from tf_transformer.strings import strings

MOST_IN_MATRIX = 20  # classes whose names and counts are still legible
PAIRS = 30  # most bars, for more classes
# In inches.
_CELL = 0.55  # per class
_SMALLEST = 2.2  # all classes together, at least
_BAR = 0.24  # per pair


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

    def confusions(self) -> list[tuple[str, str, int]]:
        """Returns (correct class, predicted class, count) of all mistakes, most frequent first.

        Ties are in the order of the labels.
        """
        wrong = self.counts - np.diag(np.diag(self.counts))
        gold, predicted = np.nonzero(wrong)
        order = np.argsort(-wrong[gold, predicted], kind="stable")
        return [
            (self.labels[row], self.labels[column], int(wrong[row, column]))
            for row, column in zip(gold[order], predicted[order], strict=True)
        ]

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
    gold, predicted = strings("gold", gold), strings("predicted", predicted)
    labels = strings("labels", labels)
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
    width = max(len(label) for label in scores.labels)
    lines = [f"{'':{width}} {'precision':>10} {'recall':>7} {'F1':>7} {'sentences':>10}"]
    for row in scores.rows():
        figures = f"{100 * row.precision:10.2f} {100 * row.recall:7.2f} {100 * row.f1:7.2f}"
        lines.append(f"{row.label:{width}} {figures} {row.support:10,}")
    lines.append(summary(scores))
    return "".join(f"{line}\n" for line in lines)


def summary(scores: ClassScores) -> str:
    """Formats a line such as "accuracy 90.00 (9 of 10)  macro F1 88.31"."""
    return (
        f"accuracy {100 * scores.accuracy:.2f} ({scores.right:,} of {scores.sentences:,})  "
        f"macro F1 {100 * scores.macro_f1:.2f}"
    )


def draw_confusion(scores: ClassScores, path: Path) -> None:
    """Draws a matrix of up to `MOST_IN_MATRIX` classes, or the most frequent mistakes of more.

    Args:
        scores: of labelled sentences.
        path: the picture's file, a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    draw = _draw_matrix if len(scores.labels) <= MOST_IN_MATRIX else _draw_pairs
    figure = draw(scores)
    with missing_glyphs_logged():
        save(figure, path)


def _draw_matrix(scores: ClassScores):
    """Draws cells as dark as their share of the row, with their numbers of sentences."""
    counts, size = scores.counts, len(scores.labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = max(size * _CELL, _SMALLEST) + 0.09 * max(map(len, scores.labels))
    figure = new_figure(side + 2.4, side + 1.4)
    axes = figure.subplots()
    image = axes.imshow(100 * shares, "Greys", vmin=0, vmax=100)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", color=color, ha="center", va="center")
    font = {"fontfamily": families_for(scores.labels), "parse_math": False}
    axes.set_xticks(range(size), scores.labels, rotation=90, **font)
    axes.set_yticks(range(size), scores.labels, **font)
    axes.set(xlabel="predicted label", ylabel="correct label")
    axes.set_title(summary(scores), fontsize="medium")
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("% of the row")
    return figure


def _draw_pairs(scores: ClassScores):
    """Draws a bar for each pair: the sentences of one class that were labelled as the other."""
    pairs = scores.confusions()
    # A mistake that occurs once is no pattern: shown only if all occur once.
    shown = [pair for pair in pairs if pair[2] > 1][:PAIRS] or pairs[:PAIRS]
    labels = [f"{gold} \N{RIGHTWARDS ARROW} {predicted}" for gold, predicted, _ in shown]
    names = 0.085 * max(map(len, labels), default=10)
    figure = new_figure(names + 5, 1.4 + _BAR * len(shown))
    axes = figure.subplots()
    counts = [count for *_, count in shown]
    bars = axes.barh(range(len(shown)), counts, color="0.6", edgecolor="black")
    font = {"fontfamily": families_for(labels), "parse_math": False}
    axes.set_yticks(range(len(shown)), labels, **font)
    axes.bar_label(bars, padding=2, fontsize="small")
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("sentences of the first label that were labelled as the second")
    wrong = sum(count for *_, count in pairs)
    axes.set_title(
        f"{summary(scores)}\nthe {len(shown)} most frequent of {len(pairs)} kinds of mistake: "
        f"{sum(counts):,} of {wrong:,} mistakes",
        fontsize="medium",
    )
    return figure
