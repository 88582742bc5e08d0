"""Draws the table of gains in docs/results/translation.md: `python -m tools.ladder`."""

import itertools
import re
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tf_transformer.plots.figure import new_figure, save

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "results" / "translation.md"
OUTPUT = DOCS / "images" / "multi30k-ladder.png"
HEADING = "**What each change gains**"
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\([^)]*\)")


class Rung(NamedTuple):
    """A row of the table: what was changed, its dev BLEU and spread, and its CPU time."""

    name: str
    bleu: float
    spread: float
    cost: str


def rungs(page: str) -> list[Rung]:
    """Reads the table below the heading; scores of single runs become mean and half range."""
    table = itertools.takewhile(bool, page.split(HEADING)[1].splitlines()[2:])
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
    return [_rung(*row) for row in cells[2:]]  # below its head and rule


def _rung(name: str, bleu: str, gain: str, cost: str) -> Rung:
    mean, _, spread = bleu.partition("±")
    scores = [float(score) for score in mean.split(",")]
    half_range = float(spread or (max(scores) - min(scores)) / 2)
    plain = _LINK.sub(r"\g<text>", name).replace("`", "")
    return Rung(plain, fmean(scores), half_range, cost.replace("`", ""))


def ladder_figure(ladder: list[Rung]):
    """Returns a figure with a point for each rung, the first above, and its cost beside it."""
    figure = new_figure(8, 0.4 * len(ladder) + 0.9)
    axes = figure.subplots()
    for row, (_, bleu, spread, cost) in enumerate(ladder):
        axes.errorbar(bleu, row, xerr=spread, color="black", marker="o", capsize=4)
        label = f"{bleu:.2f}" + (f", {cost}" if cost else "")
        at = (bleu + spread, row)
        axes.annotate(label, at, (7, 0), textcoords="offset points", va="center", fontsize=9)
    left, right = axes.get_xlim()
    axes.set(xlim=(left, right + 0.5 * (right - left)))  # room for the labels
    axes.set_yticks(range(len(ladder)), [rung.name for rung in ladder], fontsize=9)
    axes.invert_yaxis()
    axes.grid(axis="x", color="0.9")
    axes.set_xlabel("dev BLEU, English-German, and CPU time of a run", fontsize=9)
    return figure


def main() -> None:
    """Draws the picture."""
    save(ladder_figure(rungs(PAGE.read_text("utf-8"))), OUTPUT)


if __name__ == "__main__":
    main()
