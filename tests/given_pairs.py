"""A corpus of given ids."""

from collections.abc import Sequence

import numpy as np

from tf_transformer.config import EOS_ID
from tf_transformer.decoding.batches import padded


class GivenPairs:
    """What is read of an `EncodedCorpus`, of pairs of ids; EOS is appended."""

    def __init__(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        sides = zip(("source", "target"), zip(*pairs, strict=True), strict=True)
        self._sides = {
            name: [np.array([*ids, EOS_ID], "int32") for ids in side] for name, side in sides
        }
        self.source_lengths, self.target_lengths = (
            np.array([len(ids) for ids in side], "int32") for side in self._sides.values()
        )

    def padded(self, side: str, rows: np.ndarray, length: int) -> np.ndarray:
        found = padded([self._sides[side][row] for row in rows])
        assert found.shape[1] == length
        return found
