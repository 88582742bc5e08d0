"""The growth of a cost as a slope on logarithmic axes."""

from collections.abc import Sequence

import numpy as np


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Fits the power p of y ~ x^p to the upper half of the points (x, y).

    For small x, constant costs hide the growth.
    """
    upper = sorted(points)[min(len(points) // 2, len(points) - 2) :]
    x, y = np.log(np.array(upper, float)).T
    return float(np.polyfit(x, y, 1)[0])


def grown(points: Sequence[tuple[float, float]], power: float) -> list[tuple[float, float]]:
    """Returns the curve y ~ x^power through the last point, at every x."""
    last, y = points[-1]
    return [(x, y * (x / last) ** power) for x, _ in points]
