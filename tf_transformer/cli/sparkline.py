"""A line of numbers as a line of text."""

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draws a block for each number, from the smallest to the largest, or for a sample.

    Args:
        values: at least one, in order; the last is always shown.
        width: most blocks.
    """
    number = min(len(values), width)
    shown = [values[(index + 1) * len(values) // number - 1] for index in range(number)]
    low, high = min(shown), max(shown)
    if low == high:
        return _BLOCKS[0] * number
    return "".join(_BLOCKS[round(7 * (value - low) / (high - low))] for value in shown)
