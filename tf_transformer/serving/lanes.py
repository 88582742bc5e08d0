"""Short requests and long ones, each computed in turn beside the other."""

from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from tf_transformer.serving.batcher import Batcher, BatchLimits, row_count
from tf_transformer.serving.cost import Meter
from tf_transformer.serving.session import SavedModelSession

SHORT = 128  # tokens; few sentences have more


class Lanes:
    """Two batchers, so that a short request never waits for a long one.

    A request is long if a row has more than `SHORT` tokens or all have more positions than the
    model computes at a time. The two batchers share the cores, and each has its own queue.

    Args:
        session: what computes.
        meter: what tells the length of a request.
        limits: of each lane.
    """

    def __init__(self, session: SavedModelSession, meter: Meter, limits: BatchLimits) -> None:
        self._meter = meter
        self._limits = limits
        self._short, self._long = Batcher(session, limits), Batcher(session, limits)

    @property
    def alive(self) -> bool:
        """Whether requests of either kind are computed."""
        return self._short.alive and self._long.alive

    def submit(self, signature: str, inputs: Mapping[str, np.ndarray]) -> Future:
        """As `Batcher.submit`.

        Raises:
            BadRequestError: also if a prefix is longer than any translation may be.
        """
        rows = row_count(inputs, self._limits.rows)
        longest = self._meter.longest(inputs)
        is_short = longest <= SHORT and rows * longest <= self._limits.positions
        return (self._short if is_short else self._long).submit(signature, inputs, longest)

    def refuse(self) -> None:
        """Takes no more requests; those that wait are still computed."""
        self._short.refuse()
        self._long.refuse()

    def close(self, seconds: float | None = None) -> None:
        """Cancels what waits; returns after the batches under way, or some seconds for each."""
        self._short.close(seconds)
        self._long.close(seconds)
