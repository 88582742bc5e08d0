"""Picture of confused classes: a matrix of few, the worst pairs of many."""

from pathlib import Path

import numpy as np

from tf_transformer.plots.figure import new_figure, save
from tf_transformer.plots.fonts import families_for
from tf_transformer.tasks.classification.metrics import ClassScores, summary

MOST_IN_MATRIX = 20  # classes whose names and numbers can be read
PAIRS = 30  # bars for more classes

_CELL = 0.55  # inches a class
_SMALLEST = 2.2  # inches of all classes together
_BAR = 0.24  # inches a pair


def draw_confusion(scores: ClassScores, path: Path) -> None:
    """Draws a matrix of up to `MOST_IN_MATRIX` classes; of more, the most frequent mistakes.

    Args:
        scores: of labelled sentences.
        path: the picture's file, a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    draw = _draw_matrix if len(scores.labels) <= MOST_IN_MATRIX else _draw_pairs
    save(draw(scores), path)


def _draw_matrix(scores: ClassScores):
    """Cells as dark as their share of the row, with the number of sentences in them."""
    counts, number = scores.counts, len(scores.labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = max(number * _CELL, _SMALLEST) + 0.09 * max(map(len, scores.labels))
    figure = new_figure(side + 2.4, side + 1.4)
    axes = figure.subplots()
    image = axes.imshow(100 * shares, "Greys", vmin=0, vmax=100)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", color=color, ha="center", va="center")
    font = {"fontfamily": families_for(scores.labels), "parse_math": False}
    axes.set_xticks(range(number), scores.labels, rotation=90, **font)
    axes.set_yticks(range(number), scores.labels, **font)
    axes.set(xlabel="label given", ylabel="right label")
    axes.set_title(summary(scores), fontsize="medium")
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("% of the row")
    return figure


def _draw_pairs(scores: ClassScores):
    """A bar for each pair: the sentences of one class that were given the other."""
    pairs = scores.confusions()
    # One sentence is no pattern, where others are.
    shown = [pair for pair in pairs if pair[2] > 1][:PAIRS] or pairs[:PAIRS]
    labels = [f"{gold} \N{RIGHTWARDS ARROW} {given}" for gold, given, _ in shown]
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
    axes.set_xlabel("sentences of the first label that were given the second")
    wrong = sum(count for *_, count in pairs)
    axes.set_title(
        f"{summary(scores)}\nthe {len(shown)} most frequent of {len(pairs)} kinds of mistake: "
        f"{sum(counts):,} of {wrong:,} mistakes",
        fontsize="medium",
    )
    return figure
