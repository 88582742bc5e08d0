"""The engine that computes translations and scores in TensorFlow's graph.

`litert.engine` has the one that searches in LiteRT, `export.saved_model` that of an export.

B batch, S source and T target length, EOS included; P longest prefix; N layers, H heads.
"""

import functools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.base.system import refuse_in_fork
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE, symbols_in
from tf_transformer.decoding.attention import (
    Alignment,
    Attention,
    default_layer,
    nearest_pieces,
    without_tag,
    word_pairs,
)
from tf_transformer.decoding.beam_search import (
    Hypotheses,
    beam_search,
    length_penalty,
)
from tf_transformer.decoding.candidates import TENSORFLOW
from tf_transformer.decoding.interface import (
    Engine,
    SearchPlan,
    Translation,
    set_sources,
    token_limits,
)
from tf_transformer.decoding.rules import (
    Applied,
    MinLengths,
    Nest,
    NoRepeatedNgrams,
    OnlyTokens,
    Prefixes,
    Slots,
    slot_counts,
)
from tf_transformer.decoding.sampling import sample
from tf_transformer.decoding.streams import Progress, in_batches, padded
from tf_transformer.decoding.text_codec import IDS, Ids, TextCodec
from tf_transformer.fast.int8 import is_int8, parameters
from tf_transformer.fast.programs import warn_of_failure
from tf_transformer.models.ensemble import Ensemble, models_of, only_model
from tf_transformer.models.transformer import Transformer
from tf_transformer.terms.placing import Nearest, Pass

logger = logging.getLogger(__name__)

SearchOfIds = Callable[[np.ndarray, dict[str, Any]], Hypotheses]


class GraphEngine(Engine):
    """Searches, scores and aligns with a model in TensorFlow.

    `streams` batches are searched at the same time; None for as many as the cores allow.
    `drawable` returns the pieces that sampling may draw, bool [V]; by default those that are
    spelt out. Raises ValueError if the tokenizer's vocabulary is not the model's.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        *,
        streams: int | None = None,
        longest_trained: int | None = None,
        drawable: Callable[[], np.ndarray] | None = None,
    ) -> None:
        if tokenizer.vocab_size != model.vocab_size:
            raise ValueError(
                "The tokenizer must have the model's vocabulary. Received: "
                f"tokenizer {tokenizer.vocab_size}, model {model.vocab_size}."
            )
        self.model, self.tokenizer, self.streams = model, tokenizer, streams
        self.symbols = symbols_in(tokenizer.model_bytes)
        self.has_slots = all(len(tokenizer.slots(side)) for side in SIDES)
        self.places, self.aligns = self.has_slots, len(models_of(model)) == 1
        self.longest_trained = longest_trained
        self._drawable = drawable or (lambda: tokenizer.spelt_pieces)
        # `search_for(plan)` is a search from ids [B, S] to hypotheses, traced once for batches
        # of every shape. Its second argument has, by name, those of `search_ids` that the plan
        # needs.
        self.search_for = functools.lru_cache(maxsize=32)(self._search_for)
        self._xla_failed = False
        self._scores_of = tf.function(self.score_ids, [IDS, IDS], autograph=False)
        self._weights_of = tf.function(self._weights, [IDS, IDS], autograph=False)
        self._nearest_of = tf.function(self._nearest, [IDS, IDS], autograph=False)
        self._slots_of = tf.function(self.slots_at, [IDS, IDS], autograph=False)

    def __repr__(self) -> str:
        weights = sum(map(parameters, models_of(self.model)))
        names = f"{type(self).__name__}({type(self.model).__name__}"
        return f"{names}, {weights:,} weights, {self.model.vocab_size:,} subwords)"

    def codec(self, decoding: DecodingConfig) -> TextCodec:
        """Returns the codec between text and ids within the limits of `decoding`."""
        limits = self.model.longest_source, self.model.longest_target
        return TextCodec(self.tokenizer, decoding, *limits)

    def count_tokens(self, text: str | bytes) -> int:
        """Returns the tokens of a source; see `Engine.count_tokens`."""
        return len(self.tokenizer.ids([text])[0]) + 1

    def limits(self, decoding: DecodingConfig) -> tuple[int, int]:
        """Returns the most tokens of a source and of a target; see `token_limits`."""
        return token_limits(decoding, self.model.longest_source, self.model.longest_target)

    # --- Search --------------------------------------------------------------------------

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
            if self.has_slots and not np.isin(source, self.tokenizer.slots()).any():
                found = self.search_for(without)(source, inputs)
                if not np.isin(found.tokens, self.tokenizer.slots("target")).any():
                    return found
            return self.search_for(with_rule)(source, inputs)

        each = len(plan.alphas) or 1
        results = [[Translation("", 0.0, 0.0, 0)] * each for _ in sources]  # of blank texts
        lengths = [len(source) for source in sources]
        positions = decoding.batch_tokens // (plan.n_best if sampling else decoding.beam_size)
        streams = self.streams if alone else 1
        batches = in_batches(lengths, positions, compute, progress, streams=streams)
        for rows, hypotheses in batches:
            for row, decoded in zip(rows, codec.decode(hypotheses), strict=True):
                if lengths[row] > 1:  # EOS alone: the text was blank
                    results[row] = decoded
        limits = np.asarray(codec.limits(np.array(lengths, np.int32))).tolist()
        set_sources(texts, results, lengths, self.longest_trained, limits)
        return results

    def _search_for(self, plan: SearchPlan) -> SearchOfIds:
        specs: dict[str, Any] = {} if plan.prefixes is None else {"prefix": IDS}
        if plan.rules:
            of_blank = tuple(rule.context([""]) for rule in plan.rules)
            specs["contexts"] = tf.nest.map_structure(_of_any_size, of_blank)
        if plan.sampling:
            specs["seeds"] = tf.TensorSpec([None], tf.int32)

        def traced(by_xla: bool) -> tf.types.experimental.PolymorphicFunction:
            def search(source: tf.Tensor, inputs: dict[str, Any]) -> Hypotheses:
                return self.search_ids(source, plan, **inputs, by_xla=by_xla)

            return tf.function(search, [IDS, specs], autograph=False)

        by_xla, without = traced(True), traced(False)
        wants_xla = self.compiles(plan.decoding)

        def in_one_process(source: np.ndarray, inputs: dict[str, Any]) -> Hypotheses:
            refuse_in_fork()
            if not wants_xla or self._xla_failed:
                return without(source, inputs)
            try:
                return by_xla(source, inputs)
            except tf.errors.OpError as error:
                if not self._xla_failed:
                    self._xla_failed = True
                    warn_of_failure("the search", error)
                return without(source, inputs)

        return in_one_process

    def compiles(self, decoding: DecodingConfig) -> bool:
        """Tells whether XLA compiles the step of a search of texts."""
        wanted, lacks = decoding.jit_compile, any(map(is_int8, models_of(self.model)))
        if wanted and lacks:
            logger.warning("decoding.jit_compile has no effect in int8, which XLA lacks")
        return wanted and not lacks and not self._xla_failed

    # --- Forced decoding of given translations -------------------------------------------

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability; see `Engine.score`."""
        forced = self._forced_pass(self._scores_of, sources, targets, decoding, progress)
        log_probs = [float(found["log_prob"]) for _, _, found in forced]
        tokens = [ids.tolist() for _, ids, _ in forced]
        lengths = [*map(len, tokens)]
        penalties = length_penalty(tf.constant(lengths, tf.float32), decoding.alpha)
        scores = tf.constant(log_probs) / penalties
        words = [found["word_probs"].tolist() for _, _, found in forced]
        columns = (targets, scores.numpy().tolist(), log_probs, lengths, words, tokens)
        return [Translation(*row) for row in zip(*columns, strict=True)]

    def align(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Alignment]:
        """Returns the aligned words of each pair, by cross-attention; see `nearest_pieces`.

        Words are separated by spaces. Raises ValueError if the model is an ensemble.
        """
        found = self.nearest(sources, targets, decoding)
        pairs = zip(sources, targets, found, strict=True)
        return [Alignment(source, target, word_pairs(*each)) for source, target, each in pairs]

    def nearest(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Nearest]:
        """Returns the piece of its source that each target piece is aligned to, without tag.

        What is aligned to the tag is left out. Raises ValueError if the model is an ensemble.
        """
        codec = self.codec(decoding)
        return [
            without_tag(
                codec.pieces(source[:-1], "source"),
                codec.pieces(target[:-1], "target"),
                nearest.tolist(),
                codec.tag_words,
            )
            for source, target, nearest in self._forced_pass(
                self._nearest_of, sources, targets, decoding
            )
        ]

    def slot_passes(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Pass]:
        """Returns how likely each slot is at each place of targets with slots."""
        codec = self.codec(decoding)
        return [
            Pass(codec.pieces(target[:-1], "target"), found[: len(target)])
            for _, target, found in self._forced_pass(
                self._slots_of, sources, targets, decoding
            )
        ]

    def attention(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Attention]:
        """Returns all attention weights of one forced pass over each pair."""
        codec = self.codec(decoding)
        return [
            Attention(
                source=codec.pieces(source, "source"),
                target=codec.pieces(target, "target"),
                encoder=weights["encoder"][..., : len(source), : len(source)],
                decoder=weights["decoder"][..., : len(target), : len(target)],
                cross=weights["cross"][..., : len(target), : len(source)],
            )
            for source, target, weights in self._forced_pass(
                self._weights_of, sources, targets, decoding
            )
        ]

    def _forced_pass(
        self,
        function: Callable,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        """Returns, for each pair, its source and target ids and its part of the results.

        `function` maps a batch of ids, [B, S] and [B, T], to tensors with dimension 0 = B.
        """
        refuse_in_fork()
        codec = self.codec(decoding)
        source_ids = codec.ids(sources, longest_trained=self.longest_trained)
        ids = source_ids, codec.ids(targets, "target")
        pairs = list(zip(*ids, strict=True))
        lengths = [max(map(len, pair)) for pair in pairs]
        positions = decoding.batch_tokens // decoding.beam_size

        def compute(rows: list[int]) -> Any:
            batch = zip(*(pairs[row] for row in rows), strict=True)
            return tf.nest.map_structure(lambda t: t.numpy(), function(*map(padded, batch)))

        results: dict[int, Any] = {}
        for rows, arrays in in_batches(lengths, positions, compute, progress):
            for index, row in enumerate(rows):
                results[row] = tf.nest.map_structure(itemgetter(index), arrays)
        return [(*pair, results[row]) for row, pair in enumerate(pairs)]

    # --- In the graph: source and labels, int32 [B, S] and [B, T], with EOS and padding ---

    def search_ids(
        self,
        source: tf.Tensor,
        plan: SearchPlan,
        *,
        prefix: tf.Tensor | None = None,
        contexts: Sequence[Nest] = (),
        seeds: tf.Tensor | None = None,
        alpha: tf.Tensor | None = None,
        max_lengths: tf.Tensor | None = None,
        by_xla: bool = False,
    ) -> Hypotheses:
        """Finds or draws hypotheses of each source; texts of the plan are not read.

        Args:
            source: int32 [B, S].
            plan: what is searched for, and how.
            prefix: int32 [B, P], the first tokens, if any.
            contexts: what each of the plan's rules reads, with dimension 0 = B.
            seeds: int32 [B], one for each sentence; needed to sample.
            alpha: float32 [B], the exponents of the length penalty, in place of the plan's.
            max_lengths: int32 [B], which may only lower the configured limits.
            by_xla: whether XLA compiles the step.
        """
        if self.has_slots and plan.slots is None:
            given = {"prefix": prefix, "contexts": contexts, "seeds": seeds, "alpha": alpha}
            return self._search_as_needed(
                source, plan, **given, max_lengths=max_lengths, by_xla=by_xla
            )
        decoding, sampling, lengths = plan.decoding, plan.sampling, _lengths(source)
        # Encodes the source: `Transformer.start_search`, or the ensemble's.
        step, cache = self.model.start_search(source, by_xla)
        # At most source + max_extra_length tokens, max_length, and the trained positions.
        limits = self.codec(decoding).limits(lengths, max_lengths)
        rules = self._rules(source, lengths, plan, prefix, contexts)
        if sampling is None:
            return beam_search(
                step,
                cache,
                limits,
                rules,
                beam_size=decoding.beam_size,
                num_hypotheses=plan.n_best,
                alpha=decoding.alpha,
                own_alphas=alpha,
                alphas=plan.alphas,
                lookahead=decoding.lookahead,
                few_sizes=by_xla,
            )
        return sample(
            step,
            cache,
            limits,
            [*rules, (OnlyTokens(tf.constant(self._drawable())), ())],
            num_samples=plan.n_best,
            seeds=seeds,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            few_sizes=by_xla,
        )

    def _search_as_needed(
        self, source: tf.Tensor, plan: SearchPlan, **options: Any
    ) -> Hypotheses:
        """Searches without the rule of slots, unless a source or a translation has some."""

        def search(slots: bool) -> Hypotheses:
            return self.search_ids(source, replace(plan, slots=slots), **options)

        def nothing() -> Hypotheses:
            number = len(plan.alphas) or plan.n_best
            sizes = tf.zeros([tf.shape(source)[0], number], tf.int32)
            scores = tf.cast(sizes, tf.float32)
            return Hypotheses(sizes[..., tf.newaxis], sizes, scores, scores)

        needed = _has_any(source, self.tokenizer.slots())
        found = tf.cond(needed, nothing, lambda: search(False))
        needed |= _has_any(found.tokens, self.tokenizer.slots("target"))
        return tf.cond(needed, lambda: search(True), lambda: found)

    def _rules(
        self,
        source: tf.Tensor,
        lengths: tf.Tensor,
        plan: SearchPlan,
        prefix: tf.Tensor | None,
        contexts: Sequence[Nest],
    ) -> list[Applied]:
        """Returns the rules of a search, the configured and the plan's, as they go before.

        Takes sources, their lengths and contexts, of tensors or arrays.
        """
        found: list[Applied] = []
        if prefix is not None:
            found.append((Prefixes(), prefix))
        if plan.slots:
            counts = slot_counts(source, self.tokenizer.slots(), TENSORFLOW)
            found.append((Slots(self.tokenizer.slots("target")), tf.minimum(counts, 1)))
        found += zip(plan.rules, contexts, strict=True)
        found.append((MinLengths(), self.codec(plan.decoding).min_lengths(lengths)))
        if plan.decoding.no_repeat_ngram:
            found.append((NoRepeatedNgrams(plan.decoding.no_repeat_ngram), ()))
        return found

    def score_ids(self, source: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `log_prob` [B] and `word_probs` [B, T], at least 1e-30 and then zeros."""
        logits = self.model(
            {"source": source, "target": _shifted_right(labels)}, training=False
        )
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        losses = tf.where(labels == PAD_ID, 0.0, losses)  # [B, T]
        of_word = tf.one_hot(self._words(labels), tf.shape(labels)[1])  # [B, T, words]
        word_losses = tf.einsum("bt,btw->bw", losses, of_word)
        is_word = tf.reduce_max(of_word, axis=1)  # 1, and 0 beyond the last
        word_probs = tf.maximum(tf.exp(-word_losses), 1e-30) * is_word
        return {"log_prob": -tf.reduce_sum(losses, axis=1), "word_probs": word_probs}

    def slots_at(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the log-probability of each slot in the place of each label, [B, T, 9]."""
        logits = self.model(
            {"source": source, "target": _shifted_right(labels)}, training=False
        )
        forms = tf.gather(logits, self.tokenizer.slots("target"), axis=2)  # [B, T, 9, F]
        total = tf.reduce_logsumexp(logits, axis=-1)[..., tf.newaxis]
        return tf.reduce_logsumexp(forms, axis=-1) - total

    def _words(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns the word of each piece, from 0, and -1 for EOS and PAD: int32 [B, T]."""
        pieces = self.tokenizer.vocabulary("target")
        spaced = tf.constant([piece.startswith(SPACE_PIECE) for piece in pieces])
        begins = tf.cast(tf.gather(spaced, labels), tf.int32)
        word = tf.cumsum(begins, axis=1) - begins[:, :1]
        return tf.where((labels == PAD_ID) | (labels == EOS_ID), -1, word)

    def cross_weights(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the cross-attention that alignments are read from, [B, H, T, S].

        Raises ValueError if the model is an ensemble.
        """
        model = only_model(self.model)
        layer = default_layer(model.config.num_decoder_layers)
        return model.cross_attention_weights(source, _shifted_right(labels), layer)

    def _weights(self, source: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns all attention weights by name, with dimension 0 = B."""
        weights = only_model(self.model).attention_weights(source, _shifted_right(labels))
        return {name: tf.stack(tf.unstack(layers), 1) for name, layers in weights.items()}

    def _nearest(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return nearest_pieces(self.cross_weights(source, labels), source)


def _shifted_right(labels: tf.Tensor) -> tf.Tensor:
    """Returns the decoder's inputs: the labels shifted right, BOS first."""
    return tf.pad(labels, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]


def _has_any(ids: tf.Tensor, wanted: np.ndarray) -> tf.Tensor:
    """Returns whether ids of any shape hold one of those wanted, a scalar."""
    return tf.reduce_any(ids[..., tf.newaxis] == np.unique(wanted))


def _lengths(source: tf.Tensor) -> tf.Tensor:
    """Returns the number of tokens in each source [B, S], EOS counted: int32 [B]."""
    return tf.math.count_nonzero(source != PAD_ID, axis=1, dtype=tf.int32)


def _of_any_size(array: np.ndarray) -> tf.TensorSpec:
    """Returns the spec of arrays of this type and number of axes."""
    array = np.asarray(array)
    return tf.TensorSpec([None] * array.ndim, array.dtype)


def _seeds(sources: Ids, seed: int) -> np.ndarray:
    """Returns a seed for each source, int32 [B], independent of the rest of the batch."""
    sums = [zlib.crc32(source.tobytes(), seed) for source in sources]
    return np.array(sums, np.uint32).view(np.int32)
