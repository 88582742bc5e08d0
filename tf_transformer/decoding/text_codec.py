"""Text to ids and back, within the length limits of a model and of its decoding.

`TextEngine` is what an engine that searches ids needs besides its search. No TensorFlow.
B batch, S source length, N hypotheses of a sentence, P longest prefix, L longest length limit.
"""

import functools
import hashlib
import logging
import sys
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.data.subwords import Subwords
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.vocabulary import symbols_in
from tf_transformer.decoding import rules
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.interface import (
    Engine,
    SearchPlan,
    Translation,
    set_sources,
    token_limits,
    warn_of_long,
)
from tf_transformer.decoding.rules import NUMPY, Applied, Nest, Tensor
from tf_transformer.decoding.streams import Progress, in_batches, padded

logger = logging.getLogger(__name__)

Ids = list[np.ndarray]
SearchOfIds = Callable[[np.ndarray, dict[str, Any]], Hypotheses]


class TextCodec:
    """Encodes sources, targets and prefixes; decodes hypotheses.

    Length limits are those of `decoding` and, unless None, of the model's positions:
    `longest_source` and `longest_target`. `source_limit` and `target_limit` are the maximum
    tokens of either side, EOS counted. `ops` compute with lengths, arrays or tensors.
    """

    ops = NUMPY

    def __init__(
        self,
        tokenizer: Subwords,
        decoding: DecodingConfig,
        longest_source: int | None,
        longest_target: int | None,
    ) -> None:
        self._tokenizer, self._decoding = tokenizer, decoding
        self._longest_source, self._longest_target = longest_source, longest_target
        limits = token_limits(decoding, longest_source, longest_target)
        self.source_limit, self.target_limit = limits

    @property
    def tag_words(self) -> int:
        """The number of words that the tokenizer puts before each source."""
        return len(self._tokenizer.tag.split())

    def ids(
        self,
        texts: Sequence[str],
        side: SideName = "source",
        *,
        longest_trained: int | None = None,
    ) -> Ids:
        """Returns the ids of each text of a side with EOS; warns if some are cut.

        So it does if others have more tokens than `longest_trained`, unless None. A target that
        a search spelt otherwise than the tokenizer does keeps the search's ids.
        """
        name, limit, learned = "texts", self.source_limit, self._longest_source
        rows = self._tokenizer.ids(texts, side)
        if side == "target":
            name, limit, learned = "targets", self.target_limit, self._longest_target
            rows = [self._searched(text) or ids for text, ids in zip(texts, rows, strict=True)]
        if count := sum(len(ids) >= limit for ids in rows):  # EOS would exceed it
            why = ", where the trained positions end" if limit == learned else ""
            logger.warning("%s cut at %d tokens%s: %d", name, limit, why, count)
        warn_of_long([len(ids) + 1 for ids in rows if len(ids) < limit], longest_trained)
        return [np.array([*ids[: limit - 1], EOS_ID], "int32") for ids in rows]

    def _searched(self, text: str) -> list[int]:
        """Returns the ids with which a search spelt a translation, without EOS, or [].

        Another model's ids count only if they spell the same text here.
        """
        tokens = np.array(getattr(text, "tokens", ()), np.int64)
        if not tokens.size or tokens.max() >= self._tokenizer.vocab_size:
            return []
        return tokens.tolist()[:-1] if self._tokenizer.texts([tokens]) == [text] else []

    def prefix_ids(self, prefixes: Sequence[str], sources: Ids) -> Ids:
        """Returns the ids of each prefix, without EOS; warns if some were cut."""
        lengths = np.array([len(source) for source in sources], np.int32)
        limits = np.asarray(self.limits(lengths))
        rooms = np.minimum(limits, self.target_limit) - 1  # for EOS
        rows = self._tokenizer.ids(prefixes, "target")
        if count := sum(len(ids) > room for ids, room in zip(rows, rooms, strict=True)):
            logger.warning("prefixes cut at the length limit of their translation: %d", count)
        return [np.array(ids[:room], "int32") for ids, room in zip(rows, rooms, strict=True)]

    def fits(self, texts: Sequence[str], side: SideName = "source") -> list[bool]:
        """Tells of each text of a side whether no length limit cuts it."""
        limit = self.source_limit if side == "source" else self.target_limit
        return [len(ids) < limit for ids in self._tokenizer.ids(texts, side)]  # EOS follows

    def length_limits(self, texts: Sequence[str]) -> list[int]:
        """Returns the maximum number of tokens, EOS counted, in each text's translation."""
        if not texts:
            return []
        lengths = [min(len(ids) + 1, self.source_limit) for ids in self._tokenizer.ids(texts)]
        return np.asarray(self.limits(np.array(lengths, np.int32))).tolist()

    def decode(self, hypotheses: Hypotheses) -> list[list[Translation]]:
        """Returns the hypotheses of each sentence as text, without fillers unless all are."""
        batch, n, length = hypotheses.tokens.shape
        ids = np.reshape(hypotheses.tokens, (batch * n, length))
        texts = self._tokenizer.texts(ids)
        columns = (
            np.reshape(column, -1).tolist()
            for column in (hypotheses.scores, hypotheses.log_probs, hypotheses.lengths)
        )
        rows = zip(texts, *columns, [()] * len(texts), ids.tolist(), strict=True)
        decoded = [Translation(*row) for row in rows]
        ranked = (decoded[row * n : (row + 1) * n] for row in range(batch))
        return [[each for each in row if each.num_tokens] or row[:1] for row in ranked]

    def limits(self, source_lengths: Tensor, max_lengths: Tensor | None = None) -> Tensor:
        """Returns the maximum number of tokens in each translation, int32 [B], EOS counted.

        Source lengths [B] count EOS too; `max_lengths` [B] may only lower the configured limit.
        """
        limits = source_lengths + self._decoding.max_extra_length
        for limit in (self._decoding.max_length, self._longest_target):
            if limit:
                limits = self.ops.where(limits > limit, limit, limits)
        if max_lengths is not None:
            lower = self.ops.where(max_lengths < limits, max_lengths, limits)
            limits = self.ops.where(lower < 1, 1, lower)
        return limits

    def min_lengths(self, source_lengths: Tensor) -> Tensor:
        """Returns the minimum number of tokens, as `limits` the maximum, which goes first.

        It is at least 2, EOS and another, unless the source is blank: under a low limit, the
        empty hypothesis would often be the best.
        """
        least = self.ops.where(source_lengths > 2, 2, source_lengths)
        own = self._decoding.min_length
        return self.ops.where(least < own, own, least)


class TextEngine(Engine):
    """An engine that searches ids, of texts that its tokenizer encodes and decodes.

    `longest` are the model's own limits of sources and targets, None for none. At most
    `streams` batches are searched at the same time; None for as many as the cores allow. Each
    has at most `most_beams` beams, or is a single sentence.
    """

    most_beams = sys.maxsize

    def __init__(
        self,
        tokenizer: Subwords,
        longest: tuple[int | None, int | None],
        *,
        streams: int | None = None,
        longest_trained: int | None = None,
        symbols: Iterable[str] | None = None,
    ) -> None:
        self.tokenizer, self.longest, self.streams = tokenizer, longest, streams
        given = symbols_in(tokenizer.model_bytes) if symbols is None else symbols
        self.symbols = frozenset(given)
        self._slots = [tokenizer.slots(side) for side in SIDES]
        self.has_slots = all(map(len, self._slots))
        self.longest_trained = longest_trained
        # `search_for(plan)` is a search from ids [B, S] to hypotheses, for batches of every
        # shape; compiled, it is traced once. Its second argument has, by name, what the plan
        # needs of `prefix`, `contexts` and `seeds`.
        self.search_for = functools.lru_cache(maxsize=32)(self._search_for)

    def codec(self, decoding: DecodingConfig) -> TextCodec:
        """Returns the codec between text and ids within the limits of `decoding`."""
        return TextCodec(self.tokenizer, decoding, *self.longest)

    def fingerprint(self) -> str:
        """Returns a hash of weights and tokenizer; see `Engine.fingerprint`."""
        found = hashlib.sha256(f"{type(self).__name__} {self.tokenizer.tag}".encode())
        for content in (*self.tokenizer.models.values(), *self._weight_bytes()):
            found.update(content)
        return found.hexdigest()

    @abstractmethod
    def _weight_bytes(self) -> Iterable[bytes]: ...

    def count_tokens(self, text: str | bytes) -> int:
        """Returns the tokens of a source; see `Engine.count_tokens`."""
        return len(self.tokenizer.ids([text])[0]) + 1

    def limits(self, decoding: DecodingConfig) -> tuple[int, int]:
        """Returns the most tokens of a source and of a target; see `token_limits`."""
        return token_limits(decoding, *self.longest)

    def _translate(
        self,
        texts: Sequence[str],
        plan: SearchPlan,
        progress: Progress | None,
        alone: bool = True,
    ) -> list[list[Translation]]:
        """Does what `Engine.translate` says, which only makes the plan."""
        decoding, sampling, prefixes = plan.decoding, plan.sampling, plan.prefixes
        codec = self.codec(decoding)
        sources = codec.ids(texts, longest_trained=self.longest_trained if alone else None)
        begins = None if prefixes is None else codec.prefix_ids(prefixes, sources)
        seeds = None if sampling is None else _seeds(sources, sampling.seed)
        compiled = plan.without_inputs()
        with_rule, without = (
            replace(compiled, slots=self.has_slots and on) for on in (True, False)
        )

        def compute(rows: list[int]) -> Hypotheses:
            source = padded([sources[row] for row in rows])
            inputs: dict[str, Any] = {}
            if begins is not None:
                inputs["prefix"] = padded([begins[row] for row in rows])
            if plan.rules:
                read = [plan.rule_texts[row] for row in rows]
                inputs["contexts"] = tuple(rule.context(read) for rule in plan.rules)
            if seeds is not None:
                inputs["seeds"] = seeds[rows]
            if self.has_slots and not np.isin(source, self._slots[0]).any():
                found = self.search_for(without)(source, inputs)
                if not np.isin(found.tokens, self._slots[1]).any():
                    return found
            return self.search_for(with_rule)(source, inputs)

        each = len(plan.alphas) or 1
        results = [[Translation("", 0.0, 0.0, 0)] * each for _ in sources]  # of blank texts
        lengths = [len(source) for source in sources]
        beams = plan.n_best if sampling else decoding.beam_size
        batches = in_batches(
            lengths,
            decoding.batch_tokens // beams,
            compute,
            progress,
            streams=self.streams if alone else 1,
            most_rows=max(1, self.most_beams // beams),
        )
        for rows, hypotheses in batches:
            for row, decoded in zip(rows, codec.decode(hypotheses), strict=True):
                if lengths[row] > 1:  # EOS alone: the text was blank
                    results[row] = decoded
        limits = np.asarray(codec.limits(np.array(lengths, np.int32))).tolist()
        set_sources(texts, results, lengths, self.longest_trained, limits)
        return results

    @abstractmethod
    def _search_for(self, plan: SearchPlan) -> SearchOfIds: ...

    def _rules(
        self,
        source: Tensor,
        lengths: Tensor,
        plan: SearchPlan,
        prefix: Tensor | None,
        contexts: Sequence[Nest],
    ) -> list[Applied]:
        """Returns the rules of a search, the configured and the plan's, as they go before.

        Takes sources, their lengths and contexts, of the tensors of the codec.
        """
        codec, found = self.codec(plan.decoding), list[Applied]()
        if prefix is not None:
            found.append((rules.Prefixes(), prefix))
        if plan.slots:
            counts = rules.slot_counts(source, self._slots[0], codec.ops)
            found.append((rules.Slots(self._slots[1]), codec.ops.where(counts > 1, 1, counts)))
        found += zip(plan.rules, contexts, strict=True)
        found.append((rules.MinLengths(), codec.min_lengths(lengths)))
        if plan.decoding.no_repeat_ngram:
            found.append((rules.NoRepeatedNgrams(plan.decoding.no_repeat_ngram), ()))
        return found


def _seeds(sources: Ids, seed: int) -> np.ndarray:
    """Returns a seed for each source, int32 [B], independent of the rest of the batch."""
    sums = [zlib.crc32(source.tobytes(), seed) for source in sources]
    return np.array(sums, np.uint32).view(np.int32)
