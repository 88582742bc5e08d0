"""Findings of the checks: lines of the report, with counts, shares and the first defect."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A line of the report, which may be a warning."""

    check: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning' if self.warning else 'ok':<9}{self.check}: {self.text}"


@dataclass(frozen=True)
class Count:
    """Number of defective units out of `total`, and the location of the first."""

    number: int
    total: int
    unit: str
    first: str = ""

    def __str__(self) -> str:
        return f"{self.number:,} of {self.total:,} {self.unit} ({percent(self.share)})"

    @property
    def share(self) -> float:
        """Share of defective units."""
        return self.number / max(1, self.total)


def percent(share: float) -> str:
    """Formats a share; a small one with two significant digits instead of as 0%."""
    return f"{share:.0%}" if share >= 0.1 or not share else f"{100 * share:.2g}%"


def judge(check: str, counts: Sequence[Count], limit: float, message: str) -> list[Finding]:
    """Returns a warning for each count whose share exceeds `limit`, or one line with the worst.

    Args:
        check: name of the check.
        counts: at least one.
        limit: largest share without a warning.
        message: continues a warning after "12 of 100 lines of train (12%)" with the defect and
            the remedy.
    """
    bad = [count for count in counts if count.share > limit]
    if bad:
        return [Finding(check, f"{count} {message}{_first(count)}", True) for count in bad]
    worst = max(counts, key=lambda count: count.share)
    at_most = "at most " if len(counts) > 1 else ""
    return [Finding(check, f"{at_most}{worst}.{_first(worst)}" if worst.number else "none")]


def _first(count: Count) -> str:
    return f" First: {count.first}." if count.first else ""
