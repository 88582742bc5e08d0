"""What a check says: one line, with counts, shares and the first place to look at."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line: which check, what it found, and whether that is a warning."""

    check: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning' if self.warning else 'ok':<9}{self.check}: {self.text}"


@dataclass(frozen=True)
class Count:
    """How many of `total` things (`unit` names them) have a defect, and the first that has."""

    number: int
    total: int
    unit: str
    first: str = ""

    def __str__(self) -> str:
        return f"{self.number:,} of {self.total:,} {self.unit} ({percent(self.share)})"

    @property
    def share(self) -> float:
        return self.number / max(1, self.total)


def percent(share: float) -> str:
    """Two digits of a small share, so that it does not read as none."""
    return f"{share:.0%}" if share >= 0.1 or not share else f"{100 * share:.2g}%"


def judge(check: str, counts: Sequence[Count], limit: float, what: str) -> list[Finding]:
    """A warning for each count whose share is above `limit`, or one line with the worst.

    `counts` must not be empty. `what` goes on after "12 of 100 lines of train (12%)": the
    defect, and what to do.
    """
    bad = [count for count in counts if count.share > limit]
    if bad:
        return [Finding(check, f"{count} {what}{_first(count)}", True) for count in bad]
    worst = max(counts, key=lambda count: count.share)
    at_most = "at most " if len(counts) > 1 else ""
    return [Finding(check, f"{at_most}{worst}.{_first(worst)}" if worst.number else "none")]


def _first(count: Count) -> str:
    return f" First: {count.first}." if count.first else ""
