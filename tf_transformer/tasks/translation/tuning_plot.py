"""Plot of dev BLEU and translation length against the exponent of the length penalty."""

from collections.abc import Sequence
from pathlib import Path

from tf_transformer.plots.figure import STYLES, new_figure, save
from tf_transformer.tasks.translation.tuning import Candidate, Tuning


def draw_tuning(tuning: Tuning, path: Path) -> None:
    """Draws a curve for each checkpoint and beam size; marks the present and the best choice.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    figure = new_figure(6.5, 5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for index, (label, curve) in enumerate(curves(tuning.candidates).items()):
        style = STYLES[index % len(STYLES)] | {"markersize": 3}
        alphas = [candidate.choice.alpha for candidate in curve]
        bleus = [candidate.bleu for candidate in curve]
        above.plot(alphas, [bleu.value for bleu in bleus], label=label, **style)
        below.plot(alphas, [bleu.length_ratio for bleu in bleus], **style)
    for name, candidate, marker in (
        ("present", tuning.present, "o"),
        (f"best, p = {tuning.p_value:.3f}", tuning.best, "*"),
    ):
        above.plot(
            [candidate.choice.alpha], [candidate.bleu.value], marker, color="none",
            markeredgecolor="black", markersize=13, label=f"{name}: {candidate.bleu.value:.2f}",
        )  # fmt: skip
    below.axhline(1, color="0.5", linewidth=0.8)
    above.set(ylabel="dev BLEU", title="Dev BLEU by length penalty")
    below.set(ylabel="tokens of output\n/ of reference")
    below.set_xlabel(f"alpha, exponent of the length penalty\n{tuning.signature}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    above.legend(fontsize="small")
    save(figure, path)


def curves(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Groups candidates by checkpoint and beam size, under a label for the plot."""
    grouped: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        label = f"{candidate.choice.checkpoint}, beam {candidate.choice.beam_size}"
        grouped.setdefault(label, []).append(candidate)
    return grouped
