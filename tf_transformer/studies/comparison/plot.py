"""A comparison as a picture: scores with their intervals, and gains per sentence."""

from pathlib import Path

from tf_transformer.plots.figure import STYLES, new_figure, save
from tf_transformer.studies.comparison.results import Comparison


def draw_comparison(compared: Comparison, path: Path) -> None:
    """Draws a panel for each metric, and one for the distribution of gains per sentence.

    Args:
        compared: the comparison.
        path: a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    panels, names = 1 + len(compared.scores), [each.name for each in compared.systems]
    figure = new_figure(4 * panels, max(3.0, 1.5 + 0.4 * len(names)))
    *metrics, sentences = figure.subplots(1, panels)
    for axes, (name, scored) in zip(metrics, compared.scores.items(), strict=True):
        for row, each in enumerate(scored.tested):
            middle, half = (each.low + each.high) / 2, (each.high - each.low) / 2
            axes.errorbar(middle, row, xerr=half, capsize=4, color="black")
            style = STYLES[row % len(STYLES)] | {"linestyle": "none"}
            axes.plot(scored.spreads[row].mean, row, **style)
        axes.set(xlabel=f"{name}, 95 % interval", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names if axes is metrics[0] else [])
        axes.grid(axis="x", alpha=0.3)
    for row, wins in enumerate(compared.wins, start=1):
        style = STYLES[row % len(STYLES)] | {"marker": "None"}
        shares = [(rank + 1) / len(wins.gains) for rank in range(len(wins.gains))]
        sentences.plot(sorted(wins.gains), shares, label=wins.name, **style)
    sentences.axvline(0, color="black", linewidth=0.8)
    sentences.set(xlabel="difference in chrF2", ylabel="share of sentences")
    sentences.set_title(f"minus {names[0]}", fontsize="medium")
    sentences.grid(alpha=0.3)
    sentences.legend(fontsize="small")
    save(figure, path)
