"""The importance of heads, and pruning in its order (Michel et al. 2019, arXiv 1905.10650)."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tf_transformer.studies.heads.masks import Head
from tf_transformer.studies.heads.measurements import Measurements

# Shows how far a loop is: `progress(items, "masking one head")`.
Progress = Callable[[Sequence, str], Iterable]
POINTS = 24  # of a curve, about


@dataclass(frozen=True)
class Importance:
    """What masking one head alone changes: loss in nats a piece, BLEU if it was measured."""

    head: Head
    loss_change: float
    bleu_change: float | None


@dataclass(frozen=True)
class Point:
    """The model with `kept` of its heads; `bleu` is None if it was not measured.

    `masked` are those pruned, in the order in which they went.
    """

    kept: int
    masked: list[Head]
    loss: float
    bleu: float | None


def importances(
    heads: Sequence[Head], measurements: Measurements, with_bleu: bool, progress: Progress
) -> list[Importance]:
    """The importance of each head by itself (Michel et al. 2019, section 3.2)."""
    found = []
    for head in progress(heads, "masking one head"):
        loss = measurements.loss([head]) - measurements.loss([])
        score = measurements.bleu([head]) - measurements.bleu([]) if with_bleu else None
        found.append(Importance(head, loss, score))
    return found


def order_of(found: Sequence[Importance]) -> list[Head]:
    """The heads in the order of pruning: those that change the loss least come first."""
    return [each.head for each in sorted(found, key=lambda each: each.loss_change)]


def iterative_order(
    heads: Sequence[Head], measurements: Measurements, progress: Progress
) -> list[Head]:
    """The order in which each head is the one whose pruning costs least, given those before.

    Backward elimination: after each pruning the remaining heads are measured again, so that
    two heads that stand in for each other are not both taken for unimportant. n heads need
    n (n + 1) / 2 measurements of the loss.
    """
    pruned: list[Head] = []
    for _ in progress(heads, "pruning one by one"):
        left = [head for head in heads if head not in pruned]
        losses = [measurements.loss([*pruned, head]) for head in left]
        pruned.append(left[losses.index(min(losses))])
    return pruned


def curve(
    order: Sequence[Head], measurements: Measurements, with_bleu: bool, progress: Progress
) -> list[Point]:
    """The model with all heads, with ever fewer in the order given, and with none.

    Up to 24 heads every number is measured, of more every second, and so on.
    """
    step = math.ceil(len(order) / POINTS)
    numbers = [*range(0, len(order), step), len(order)]
    points = []
    for number in progress(numbers, "pruning"):
        masked = list(order[:number])
        score = measurements.bleu(masked) if with_bleu else None
        loss = measurements.loss(masked)
        points.append(Point(len(order) - number, masked, loss, score))
    return points
