"""Mean and standard deviation of a figure over several trainings."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Spread:
    """Mean of a figure over seeds, and its standard deviation (None for a single seed)."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Computes the spread of `values`, at least one."""
        several = len(values) > 1
        return cls(statistics.mean(values), statistics.stdev(values) if several else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (
            "" if self.deviation is None else f" ± {self.deviation:.2f}"
        )
