"""Subword regularisation: sentences are segmented at random, anew at every training step.

SentencePiece draws the segmentations: with a BPE vocabulary by skipping merges (BPE-dropout,
Provilkov et al. 2020), with a unigram vocabulary by their probabilities (Kudo 2018).
"""

import threading
from collections.abc import Sequence

import numpy as np
import sentencepiece

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.tokenizer import Tokenizer

_TRIED_PAIRS = 1_000  # sampled to measure how much longer sentences become
_FITTING = 95  # percentage of their sentences for which batches have room
_seeding = threading.Lock()  # SentencePiece's seed is global


class SubwordSampler:
    """Segmentations of an encoded corpus, drawn as a pure function of seed, step and replica.

    The encoded ids are decoded and segmented anew. A sentence that becomes too long for its
    batch keeps its usual segmentation, so batches are planned with `lengths`, which leave room.

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
        self._corpus, self._rate, self._seed = corpus, rate, seed
        sides = corpus.text_sides
        self._processors = {side: tokenizer.processor(side) for side in sides}
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
    ) -> Sequence[Sequence[int]]:
        """Draws new ids of sentences, without EOS."""
        sentence = self._corpus.source if side == "source" else self._corpus.target
        processor = self._processors[side]
        texts = processor.decode([sentence(row)[:-1].tolist() for row in rows])
        entropy = [self._seed, *key, SIDES.index(side)]
        with _seeding:
            # A thread draws from the seed that was set when it started, and a call with
            # `num_threads` starts one.
            sentencepiece.set_random_generator_seed(
                int(np.random.SeedSequence(entropy).generate_state(1)[0])
            )
            return processor.encode(
                texts, num_threads=1, enable_sampling=True, alpha=self._rate, nbest_size=-1
            )
