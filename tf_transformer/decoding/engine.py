"""The engine that computes translations and scores in TensorFlow's graph.

`litert.engine` has the one that searches in LiteRT, `export.saved_model` that of an export.

B batch, S source and T target length, EOS included; P longest prefix; N layers, H heads.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.base.system import refuse_in_fork
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.data.text import SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.decoding.attention import (
    Alignment,
    Attention,
    default_layer,
    nearest_pieces,
    without_tag,
    word_pairs,
)
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.candidates import TENSORFLOW
from tf_transformer.decoding.hypotheses import Hypotheses, length_penalty
from tf_transformer.decoding.interface import SearchPlan, Translation
from tf_transformer.decoding.rules import Nest, OnlyTokens
from tf_transformer.decoding.sampling import sample
from tf_transformer.decoding.streams import TURNS, Progress, in_batches, padded
from tf_transformer.decoding.text_codec import SearchOfIds, TextCodec, TextEngine
from tf_transformer.fast.int8 import is_int8, parameters
from tf_transformer.fast.programs import warn_of_failure
from tf_transformer.models.ensemble import Ensemble, models_of, only_model
from tf_transformer.models.transformer import Transformer
from tf_transformer.terms.placing import Nearest, Pass

logger = logging.getLogger(__name__)

IDS = tf.TensorSpec([None, None], tf.int32)


class GraphCodec(TextCodec):
    """The codec with TensorFlow's operations besides, for searches and exports."""

    _tokenizer: Tokenizer
    ops = TENSORFLOW

    def pieces(self, ids: np.ndarray, side: SideName) -> list[str]:
        """Returns the subword pieces of one row of ids of a side."""
        return [piece.decode("utf-8") for piece in self._tokenizer.pieces(ids, side).numpy()]

    def encode(
        self, texts: tf.Tensor, limit: int | None = None, *, target: bool = False
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Encodes strings [B] as int32 ids [B, None] with EOS; and tells which were cut, [B].

        The limit counts EOS; it is `source_limit` by default.
        """
        side: SideName = "target" if target else "source"
        return self._tokenizer.encode(texts, side, limit or self.source_limit)

    def encode_prefix(
        self,
        prefixes: tf.Tensor,
        source_lengths: tf.Tensor,
        max_lengths: tf.Tensor | None = None,
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Encodes prefixes of translations, strings [B], as ids [B, None] without EOS.

        Also returns bool [B]: whether a prefix was cut at the limit of its translation. Lengths
        and limits are those of `limits`.
        """
        closed, cut = self.encode(prefixes, self.target_limit, target=True)
        lengths = tf.cast(closed.row_lengths(), tf.int32)
        limits = self.limits(source_lengths, max_lengths)
        kept = tf.minimum(lengths, limits) - 1  # leaves room for EOS
        return tf.RaggedTensor.from_tensor(closed.to_tensor(), kept), cut | (lengths > limits)


class GraphEngine(TextEngine):
    """Searches, scores and aligns with a model in TensorFlow.

    `streams` and `longest_trained` are those of `TextEngine`.
    `drawable` returns the pieces that sampling may draw, bool [V]; by default those that are
    spelt out. Raises ValueError if the tokenizer's vocabulary is not the model's.
    """

    tokenizer: Tokenizer

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
        longest = model.longest_source, model.longest_target
        super().__init__(tokenizer, longest, streams=streams, longest_trained=longest_trained)
        self.model = model
        self.places, self.aligns = self.has_slots, len(models_of(model)) == 1
        self._drawable = drawable or (lambda: tokenizer.spelt_pieces)
        self._xla_failed = False
        self._scores_of = tf.function(self.score_ids, [IDS, IDS], autograph=False)
        self._weights_of = tf.function(self._weights, [IDS, IDS], autograph=False)
        self._nearest_of = tf.function(self._nearest, [IDS, IDS], autograph=False)
        self._slots_of = tf.function(self.slots_at, [IDS, IDS], autograph=False)

    def __repr__(self) -> str:
        weights = sum(map(parameters, models_of(self.model)))
        names = f"{type(self).__name__}({type(self.model).__name__}"
        return f"{names}, {weights:,} weights, {self.model.vocab_size:,} subwords)"

    @property
    def graph(self) -> "GraphEngine":
        """The engine itself; see `Engine.graph`."""
        return self

    def codec(self, decoding: DecodingConfig) -> GraphCodec:
        """Returns the codec between text and ids within the limits of `decoding`."""
        return GraphCodec(self.tokenizer, decoding, *self.longest)

    def _weight_bytes(self) -> Iterator[bytes]:
        for weight in [weight for model in models_of(self.model) for weight in model.weights]:
            array = weight.numpy()
            yield f"{array.dtype} {array.shape}".encode() + array.tobytes()

    # --- Search --------------------------------------------------------------------------

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
            with TURNS:
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
