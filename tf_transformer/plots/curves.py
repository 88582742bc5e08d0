"""Learning curves: perplexity and dev score against the step, of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.plots.figure import STYLES, new_figure, number_plainly, save

_MARKERS = 12  # approximate number per line


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of a run.

    Attributes:
        label: name of the run.
        steps: steps of the evaluations.
        train: perplexity of the training batches since the previous evaluation, with dropout.
        dev: perplexity on the dev set.
        scores: scores on the dev set.
        best: the highest score on the latest dev set, and its step.
        score_name: name of the score, such as "BLEU".
        old_scores: scores on the dev set of the --init-from run; empty without one.
    """

    label: str
    steps: Sequence[int]
    train: Sequence[float]
    dev: Sequence[float]
    scores: Sequence[float]
    score_name: str
    best: tuple[float, int]
    old_scores: Sequence[float] = ()


def draw_curves(curves: Sequence[LearningCurve], path: Path) -> None:
    """Draws perplexity, on a logarithmic axis, beside a panel for each kind of dev score.

    Args:
        curves: at least one, each of another run.
        path: a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    names = list(dict.fromkeys(curve.score_name for curve in curves))
    figure = new_figure(5 * (1 + len(names)), 4)
    perplexity, *others = figure.subplots(1, 1 + len(names))
    scores = dict(zip(names, others, strict=True))
    for index, curve in enumerate(curves):
        every = max(1, len(curve.steps) // _MARKERS)
        style = {
            **STYLES[index % len(STYLES)],
            "markevery": every,
            "markersize": 4,
            "clip_on": False,
        }
        faint = {"color": style["color"], "linestyle": ":", "linewidth": 1}
        label = f"{curve.label}, train, with dropout"
        perplexity.plot(curve.steps, curve.train, label=label, **faint)
        perplexity.plot(curve.steps, curve.dev, label=f"{curve.label}, dev", **style)
        label = f"{curve.label}, highest {curve.best[0]:.4g}"
        axes = scores[curve.score_name]
        axes.plot(curve.steps, curve.scores, label=label, **style)
        if curve.old_scores:
            axes.plot(
                curve.steps, curve.old_scores, label=f"{curve.label}, old dev set", **faint
            )
    perplexity.set(xlabel="step", title="perplexity", yscale="log")
    for name, axes in scores.items():
        axes.set(xlabel="step", title=f"dev {name}")
    number_plainly(perplexity.yaxis)
    for axes in (perplexity, *others):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    save(figure, path)
