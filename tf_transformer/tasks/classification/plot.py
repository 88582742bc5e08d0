"""Picture of confused classes: a matrix if they are few, else the most confused pairs."""

from pathlib import Path

import numpy as np

from tf_transformer.plots.figure import families_for, new_figure, save
from tf_transformer.tasks.classification.metrics import ClassScores, summary

MOST_IN_MATRIX = 20  # classes whose names and counts are still legible
PAIRS = 30  # most bars, for more classes

# In inches.
_CELL = 0.55  # per class
_SMALLEST = 2.2  # all classes together, at least
_BAR = 0.24  # per pair


def draw_confusion(scores: ClassScores, path: Path) -> None:
    """Draws a matrix of up to `MOST_IN_MATRIX` classes, or the most frequent mistakes of more.

    Args:
        scores: of labelled sentences.
        path: the picture's file, a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    draw = _draw_matrix if len(scores.labels) <= MOST_IN_MATRIX else _draw_pairs
    save(draw(scores), path)


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
