"""Subword regularisation: sentences are segmented at random, anew at every training step."""

from collections.abc import Iterator
from random import Random

import numpy as np

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.segmentation import Segmenter
from tf_transformer.data.tokenizer import Tokenizer

_TRIED_PAIRS = 1_000  # sampled to measure how much longer sentences become
_FITTING = 95  # percentage of their sentences for which batches have room


class SubwordSampler:
    """Segmentations of an encoded corpus, drawn as a pure function of seed, step and replica.

    A sentence that becomes too long for its batch keeps its usual segmentation, so batches are
    planned with `lengths`, which leave room.

    Args:
        corpus: sentences; only its sides that are text are segmented.
        tokenizer: tokenizer of the corpus.
        rate: for BPE, the probability of skipping a merge; for a unigram vocabulary, the
            exponent of the probabilities.
        seed: seed of the draws.

    Attributes:
        stretch: factor on all lengths in the plan.
    """

    def __init__(
        self, corpus: EncodedCorpus, tokenizer: Tokenizer, rate: float, seed: int
    ) -> None:
        self._corpus, self._seed = corpus, seed
        sides = corpus.text_sides
        models = {side: tokenizer.models.get(side, tokenizer.model_bytes) for side in sides}
        self._segmenters = {side: Segmenter(models[side], rate) for side in sides}
        number = min(len(corpus), _TRIED_PAIRS)
        rows = np.arange(number) * len(corpus) // number
        drawn = [len(ids) + 1 for side in sides for ids in self._drawn(side, rows, (0, 0))]
        plain = np.concatenate([corpus.lengths(side)[rows] for side in sides])
        ratios = np.array(drawn) / plain
        self.stretch = float(np.percentile(ratios, _FITTING))
        self._longer = float(np.sum(drawn) / np.sum(plain))

    def lengths(self, side: SideName, max_length: int) -> np.ndarray:
        """Returns the lengths to plan batches by: int32 [pairs], at most `max_length`."""
        stretched = np.ceil(self._corpus.lengths(side) * self.stretch)
        return np.minimum(stretched, max_length).astype(np.int32)

    def padded(
        self, side: SideName, rows: np.ndarray, length: int, key: tuple[int, int]
    ) -> np.ndarray:
        """Returns sentences, segmented anew, as int32 [len(rows), length], padded with PAD.

        Args:
            side: side of the corpus.
            rows: indices of pairs.
            length: at least the length of each sentence in its usual segmentation.
            key: step and replica, which determine the segmentations.
        """
        result = self._corpus.padded(side, rows, length)
        for row, ids in zip(result, self._drawn(side, rows, key), strict=True):
            if len(ids) < length:
                row[: len(ids)] = ids
                row[len(ids)] = EOS_ID
                row[len(ids) + 1 :] = PAD_ID
        return result

    def summary(self) -> str:
        """Describes in a line how much longer sentences become."""
        return (
            f"subword sampling: {self._longer:.2f} times as many tokens; batches have room for "
            f"sentences {self.stretch:.2f} times as long, longer ones keep their usual pieces"
        )

    def _drawn(
        self, side: SideName, rows: np.ndarray, key: tuple[int, int]
    ) -> Iterator[list[int]]:
        """Draws new ids of sentences, without EOS."""
        sentence = self._corpus.source if side == "source" else self._corpus.target
        seeds = np.random.SeedSequence([self._seed, *key, SIDES.index(side)])
        random = Random(int(seeds.generate_state(1, np.uint64)[0]))
        segmenter = self._segmenters[side]
        return (segmenter.draw(sentence(row)[:-1].tolist(), random) for row in rows)
