"""Subword regularisation: segmentations drawn as a pure function of seed and step.

Kudo (2018) for a unigram vocabulary, BPE-dropout (Provilkov et al. 2020) for BPE.
"""

import functools
import heapq
import itertools
import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeAlias

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.sentencepiece_model import ModelKind, ModelProto, PieceType
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE

StepAndReplica: TypeAlias = tuple[int, int]  # they determine what is drawn
Pieces: TypeAlias = tuple[int, ...]  # the ids of a word
Draw: TypeAlias = Callable[[Random], Pieces]  # draws a segmentation of one word
Known: TypeAlias = dict[str, tuple[int, float]]  # id and score of each piece

_CACHED_WORDS = 1 << 16
_TRIED_PAIRS = 1_000  # sampled to measure how much longer sentences become
_FITTING = 95  # percentage of them that batches have room for


class Segmenter:
    """Draws segmentations of encoded sentences, word by word.

    Bytes, and symbols that are never split, stay as they are. For BPE, the rate is the
    probability of skipping a merge; for a unigram vocabulary, the exponent of the
    probabilities. Raises UserError if the model, the content of its file, is neither.
    """

    def __init__(self, model: bytes, rate: float) -> None:
        proto = ModelProto.FromString(model)
        kind = proto.trainer_spec.model_type
        if kind not in (ModelKind.UNIGRAM, ModelKind.BPE):
            raise UserError(
                "`data.subword_sampling` needs a tokenizer of kind bpe or unigram. Received: "
                f"SentencePiece's kind {kind}. Turn it off: `data.subword_sampling=0`."
            )
        pieces = enumerate(proto.pieces)
        normal = [(id, piece) for id, piece in pieces if piece.type == PieceType.NORMAL]
        self._texts = {id: piece.piece for id, piece in normal}
        self._first = {id for id, text in self._texts.items() if text.startswith(SPACE_PIECE)}
        known = {piece.piece: (id, piece.score) for id, piece in normal}
        longest = max(map(len, known))
        make = _bpe if kind == ModelKind.BPE else functools.partial(_unigram, longest=longest)

        def word(usual: Pieces) -> Draw:
            return make("".join(map(self._texts.__getitem__, usual)), usual, known, rate)

        self._draw_of = functools.lru_cache(_CACHED_WORDS)(word)

    def draw(self, ids: Sequence[int], random: Random) -> list[int]:
        """Draws a segmentation of the text with these ids, which hold neither BOS nor EOS."""
        result: list[int] = []
        for word in self._words(ids):
            if word[0] in self._texts:
                word = self._draw_of(word)(random)
            result += word
        return result

    def _words(self, ids: Sequence[int]) -> Iterator[Pieces]:
        """Yields the ids of each word, and runs of bytes and other symbols."""
        texts, start = self._texts, 0
        for index in range(1, len(ids)):
            starts = ids[index] in self._first
            if starts or (ids[index] in texts) != (ids[index - 1] in texts):
                yield tuple(ids[start:index])
                start = index
        if ids:
            yield tuple(ids[start:])


def _bpe(text: str, usual: Pieces, known: Known, rate: float) -> Draw:
    """Returns the draw of a word by BPE-dropout."""
    if any(character not in known for character in text):
        return lambda random: usual
    _, number = _merged(text, known, itertools.repeat(False))

    def draw(random: Random) -> Pieces:
        skipped = [random.random() < rate for _ in range(number)]
        if not any(skipped):
            return usual
        more = (random.random() < rate for _ in itertools.count())
        return _merged(text, known, itertools.chain(skipped, more))[0]

    return draw


def _merged(text: str, known: Known, skipped: Iterator[bool]) -> tuple[Pieces, int]:
    """Merges characters, best pair first; returns the ids and the number of merges offered."""
    symbols, end = list(text), len(text)
    before, after = list(range(-1, end - 1)), list(range(1, end + 1))
    offers: list[tuple[float, int, int, int]] = []

    def offer(left: int) -> None:
        if left >= 0 and (right := after[left]) < end:
            pair = symbols[left] + symbols[right]
            if pair in known:
                heapq.heappush(offers, (-known[pair][1], left, right, len(pair)))

    for left in range(end):
        offer(left)
    number = 0
    while offers:
        _, left, right, size = heapq.heappop(offers)
        pair = symbols[left] + symbols[right]
        if not (symbols[left] and symbols[right]) or len(pair) != size:
            continue  # one of the two has been merged with another symbol
        number += 1
        if next(skipped):
            continue
        symbols[left], symbols[right] = pair, ""
        after[left] = after[right]
        if after[left] < end:
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return tuple(known[symbol][0] for symbol in symbols if symbol), number


def _unigram(text: str, usual: Pieces, known: Known, rate: float, longest: int) -> Draw:
    """Returns the draw of a word's segmentations in proportion to probability ** rate."""
    totals = [0.0]  # log of the sum over the segmentations of each prefix
    last: list[tuple[list[int], list[float]]] = [([], [])]  # starts, and sums of their weights
    for end in range(1, len(text) + 1):
        logs = {
            start: totals[start] + rate * known[text[start:end]][1]
            for start in range(max(0, end - longest), end)
            if text[start:end] in known and totals[start] > -math.inf
        }
        highest = max(logs.values(), default=-math.inf)
        weights = list(itertools.accumulate(math.exp(log - highest) for log in logs.values()))
        totals.append(highest + math.log(weights[-1]) if weights else -math.inf)
        last.append((list(logs), weights))
    if not last[-1][0]:
        return lambda random: usual

    def draw(random: Random) -> Pieces:
        ids: list[int] = []
        end = len(text)
        while end:
            starts, weights = last[end]
            chosen = bisect(weights, random.random() * weights[-1], hi=len(weights) - 1)
            ids.append(known[text[starts[chosen] : end]][0])
            end = starts[chosen]
        return tuple(reversed(ids))

    return draw


class SubwordSampler:
    """Segmentations of an encoded corpus, drawn as a pure function of seed, step and replica.

    A sentence that would become too long for its batch keeps its usual segmentation. Batches
    planned with `lengths` have room for most. The rate is as in `Segmenter`.
    """

    def __init__(
        self, corpus: EncodedCorpus, tokenizer: Tokenizer, rate: float, seed: int
    ) -> None:
        self._corpus, self._seed = corpus, seed
        models = {side: tokenizer.models.get(side, tokenizer.model_bytes) for side in SIDES}
        self._segmenters = {side: Segmenter(models[side], rate) for side in SIDES}
        number = min(len(corpus), _TRIED_PAIRS)
        tried = np.arange(number) * len(corpus) // number
        lengths = [corpus.lengths(side)[tried] for side in SIDES]
        counts = [
            len(ids) + 1
            for side, longest in zip(SIDES, map(np.max, lengths), strict=True)
            for ids in self._segmented(side, corpus.padded(side, tried, longest), (0, 0))
        ]
        plain = np.concatenate(lengths)
        ratios = np.array(counts) / plain
        # Factor on all lengths in the plan.
        self.stretch = float(np.percentile(ratios, _FITTING))
        self._longer = float(np.sum(counts) / np.sum(plain))

    def lengths(self, side: SideName, max_length: int) -> np.ndarray:
        """Returns the lengths to plan batches by: int32 [pairs], at most `max_length`."""
        stretched = np.ceil(self._corpus.lengths(side) * self.stretch)
        return np.minimum(stretched, max_length).astype(np.int32)

    def segmented(self, side: SideName, usual: np.ndarray, at: StepAndReplica) -> np.ndarray:
        """Returns padded sentences of a side [B, length], segmented anew."""
        result = usual.copy()
        for row, ids in zip(result, self._segmented(side, usual, at), strict=True):
            if len(ids) < usual.shape[1]:
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

    def _segmented(
        self, side: SideName, usual: np.ndarray, at: StepAndReplica
    ) -> Iterator[list[int]]:
        """Draws new ids of padded sentences, without EOS."""
        seeds = np.random.SeedSequence([self._seed, *at, SIDES.index(side)])
        random = Random(int(seeds.generate_state(1, np.uint64)[0]))
        segmenter = self._segmenters[side]
        ends = np.argmax(usual == EOS_ID, axis=1)
        return (
            segmenter.draw(row[:end].tolist(), random)
            for row, end in zip(usual, ends, strict=True)
        )
