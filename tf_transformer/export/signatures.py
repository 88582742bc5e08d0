"""The functions that a SavedModel serves: plain variables and operations, without Keras.

B batch, S source length, T target length, H heads, W beam width. Every output has one row for
each row of the request, so that a server may batch requests. No row changes the values of
another; outputs are padded to the longest row.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID, SETTINGS, UNK_ID, DecodingConfig
from tf_transformer.data.text import SideName
from tf_transformer.decoding.attention import nearest_pieces
from tf_transformer.decoding.engine import IDS, GraphCodec, GraphEngine
from tf_transformer.decoding.hypotheses import Hypotheses, length_penalty
from tf_transformer.decoding.interface import SearchPlan
from tf_transformer.export.publishing import Exportable, Function, Request
from tf_transformer.export.self_test import TEXTS, check_translator
from tf_transformer.models.ensemble import models_of

Outputs = dict[str, tf.Tensor]


class Signatures:
    """The signatures of a translator, which share two searches and a scorer."""

    def __init__(self, engine: GraphEngine, decoding: DecodingConfig) -> None:
        self._tokenizer, self._engine = engine.tokenizer, engine
        self._codec, self._decoding = engine.codec(decoding), decoding
        plan = SearchPlan(decoding)
        self._positions = decoding.batch_tokens // decoding.beam_size
        self._search = in_groups(
            lambda source: engine.search_ids(source, plan), [IDS], self._positions
        )

    def functions(self, text: bool = True) -> dict[str, Function]:
        """Returns a function for each signature name.

        An ensemble has no `attention`, and a model without slots no `places`. Without `text`
        there are only those that take ids.
        """
        functions = {
            "tokens": exported(self.tokens, tf.TensorSpec(IDS.shape, IDS.dtype, "tokens"))
        }
        if not text:
            return functions
        string = tf.string
        options = {"alpha": tf.float32, "max_length": tf.int32, "prefix": string}
        functions |= {
            "serving_default": of_vectors(self.translate, text=string),
            "nbest": of_vectors(self.n_best, text=string),
            "with_options": of_vectors(self.with_options, text=string, **options),
            "score": of_vectors(self.score, source=string, target=string),
        }
        if self._engine.places:
            functions["places"] = of_vectors(self.places, source=string, target=string)
        if len(models_of(self._engine.model)) == 1:
            functions["attention"] = of_vectors(self.attention, text=string)
        return functions

    def tokens(self, tokens: tf.Tensor) -> Outputs:
        """Returns the ids of the best translation of each source, ids [B, S].

        Its graph does without tokenizer, ragged tensors and other operations that LiteRT
        lacks: a test converts it.
        """
        limit = self._codec.source_limit
        source, sizes, cut = _closed(tokens, self._engine.model.vocab_size, limit)
        hypotheses = self._search(source)
        blank = sizes == 0
        size = tf.where(blank, 1, hypotheses.lengths[:, 0])
        ids = hypotheses.tokens[:, 0, : longest(size)]
        ended = tf.where(tf.range(tf.shape(ids)[1]) == 0, EOS_ID, PAD_ID)
        return {
            "tokens": tf.where(blank[:, tf.newaxis], ended, ids),
            "score": tf.where(blank, 0.0, hypotheses.scores[:, 0]),
            "num_tokens": size,
            "source_cut": cut,
        }

    def translate(self, text: tf.Tensor) -> Outputs:
        """Returns the best translation of each text, strings [B]."""
        source, cut = self._codec.encode(text)
        hypotheses = self._search(source.to_tensor(PAD_ID))
        blank = _is_blank(source)
        translations = self._tokenizer.detokenize(hypotheses.tokens[:, 0])
        return {
            "translation": tf.where(blank, "", translations),
            "score": tf.where(blank, 0.0, hypotheses.scores[:, 0]),
            "source_cut": cut,
        }

    @functools.cached_property
    def _n_best_search(self) -> Callable:
        plan = SearchPlan(self._decoding, self._decoding.beam_size)

        def search(source, alpha, prefix, max_lengths):
            options = {"alpha": alpha, "prefix": prefix, "max_lengths": max_lengths}
            return self._engine.search_ids(source, plan, **options)

        specs = [IDS, tf.TensorSpec([None]), IDS, tf.TensorSpec([None], tf.int32)]
        return in_groups(search, specs, self._positions)

    def n_best(self, text: tf.Tensor) -> Outputs:
        """Returns W translations of each text, strings [B], best first."""
        unset = tf.fill(tf.shape(text), -1)
        outputs = self.with_options(
            text, tf.cast(unset, tf.float32), unset, tf.fill(tf.shape(text), "")
        )
        names = ("translations", "scores", "count", "source_cut")
        return {name: outputs[name] for name in names}

    def with_options(
        self, text: tf.Tensor, alpha: tf.Tensor, max_length: tf.Tensor, prefix: tf.Tensor
    ) -> Outputs:
        """Returns the outputs of `n_best` and more, with options for each text, strings [B].

        `alpha`, float32 [B], is the exponent of the length penalty, negative for the export's;
        `max_length`, int32 [B], the maximum tokens, EOS included, within the export's limits, 0
        or negative for only those; `prefix`, strings [B], the beginning of every translation,
        cut at its limit; it may be empty.
        """
        source, cut = self._codec.encode(text)
        ids = source.to_tensor(PAD_ID)
        limits = tf.where(max_length > 0, max_length, tf.int32.max)
        lengths = tf.cast(source.row_lengths(), tf.int32)
        prefix_ids, prefix_cut = self._codec.encode_prefix(prefix, lengths, limits)
        most = SETTINGS["decoding.alpha"].bounds.high
        hypotheses = self._n_best_search(
            ids,
            # NaN is not above 0 either.
            tf.where(alpha >= 0, tf.minimum(alpha, most), self._decoding.alpha),
            prefix_ids.to_tensor(PAD_ID),
            limits,
        )
        cuts = {"source_cut": cut, "prefix_cut": prefix_cut}
        return self._n_best_outputs(hypotheses, _is_blank(source)) | cuts

    def _n_best_outputs(self, hypotheses: Hypotheses, blank: tf.Tensor) -> Outputs:
        batch, beams, length = tf.unstack(tf.shape(hypotheses.tokens))
        flat = tf.reshape(hypotheses.tokens, [batch * beams, length])
        translations = tf.reshape(self._tokenizer.detokenize(flat), [batch, beams])
        count = tf.math.count_nonzero(hypotheses.lengths, axis=1, dtype=tf.int32)
        blank_row = blank[:, tf.newaxis]
        return {
            "translations": tf.where(blank_row, "", translations),
            "scores": tf.where(blank_row, 0.0, hypotheses.scores),
            "log_probs": tf.where(blank_row, 0.0, hypotheses.log_probs),
            "num_tokens": tf.where(blank_row, 0, hypotheses.lengths),
            "count": tf.where(blank, 1, count),
        }

    def attention(self, text: tf.Tensor) -> Outputs:
        """Returns the best translation of each text, strings [B], with its attention.

        The weights, of each head and their mean, are those of the cross-attention in the layer
        that alignments are read from (see `decoding.attention`).
        """
        source, cut = self._codec.encode(text)
        ids = source.to_tensor(PAD_ID)  # [B, S]
        hypotheses = self._search(ids)
        target = hypotheses.tokens[:, 0, : longest(hypotheses.lengths[:, 0])]  # [B, T]
        attend = in_groups(self._heads_and_nearest, [IDS, IDS], self._positions)
        heads, nearest = attend(ids, target)
        blank = _is_blank(source)
        real = (target != PAD_ID) & ~blank[:, tf.newaxis]
        heads = tf.where(real[:, tf.newaxis, :, tf.newaxis], heads, 0.0)
        return {
            "translation": tf.where(blank, "", self._tokenizer.detokenize(target)),
            "source_pieces": self._pieces(ids, "source"),
            "target_pieces": tf.where(real, self._pieces(target, "target"), ""),
            "attention": tf.reduce_mean(heads, axis=1),
            "heads": heads,
            "alignment": tf.where(real & (target != EOS_ID), nearest, -1),
            "source_cut": cut,
        }

    def _heads_and_nearest(
        self, source: tf.Tensor, target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights [B, H, T, S] and alignments [B, T] of `attention`, from ids."""
        cross = self._engine.cross_weights(source, target)
        return cross, nearest_pieces(cross, source)

    def _pieces(self, ids: tf.Tensor, side: SideName) -> tf.Tensor:
        return tf.where(ids == PAD_ID, "", self._tokenizer.pieces(ids, side))

    def score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Scores targets [B], and their words [B, T], as translations of sources [B]."""
        tf.debugging.assert_equal(
            tf.size(source), tf.size(target), "`source` and `target` must have equal lengths."
        )
        limit = self._codec.target_limit
        source_ids, source_cut = self._codec.encode(source)
        target_ids, target_cut = self._codec.encode(target, limit, target=True)
        score_ids = in_groups(self._engine.score_ids, [IDS, IDS], self._positions)
        found = score_ids(source_ids.to_tensor(PAD_ID), target_ids.to_tensor(PAD_ID))
        size = target_ids.row_lengths()
        penalty = length_penalty(tf.cast(size, tf.float32), self._decoding.alpha)
        return found | {
            "score": found["log_prob"] / penalty,
            "num_tokens": tf.cast(size, tf.int32),
            "source_cut": source_cut,
            "target_cut": target_cut,
        }

    def places(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Returns how likely each slot is before each piece of targets [B] with slots."""
        source_ids, source_cut = self._codec.encode(source)
        limit = self._codec.target_limit
        target_ids, target_cut = self._codec.encode(target, limit, target=True)
        ids = target_ids.to_tensor(PAD_ID)
        compute = in_groups(self._engine.slots_at, [IDS, IDS], self._positions)
        return {
            "pieces": self._pieces(ids, "target"),
            "slots": compute(source_ids.to_tensor(PAD_ID), ids),
            "source_cut": source_cut,
            "target_cut": target_cut,
        }


def _is_blank(source: tf.RaggedTensor) -> tf.Tensor:
    """Returns bool [B]: whether a text is blank, that is, only EOS."""
    return source.row_lengths() == 1


def _closed(
    ids: tf.Tensor, vocab_size: int, limit: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts rows at their first EOS or PAD, and replaces ids outside the vocabulary with UNK.

    Ids after EOS are never read, since a server may pad requests to one width with any value.
    `ids` are int32 [B, any]; `limit` is the maximum of tokens in a row, EOS included. Returns
    the rows with EOS and padding [B, S], their sizes without EOS [B], and whether each was cut
    at the limit [B].
    """
    ids = tf.ensure_shape(ids, [None, None])
    ended = tf.cumsum(tf.cast((ids == EOS_ID) | (ids == PAD_ID), tf.int32), axis=1) > 0
    sizes = tf.reduce_sum(tf.cast(~ended, tf.int32), axis=1)
    cut = sizes > limit - 1
    sizes = tf.minimum(sizes, limit - 1)
    positions, ends = tf.range(longest(sizes) + 1), sizes[:, tf.newaxis]
    known = tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)
    known = tf.pad(known, [[0, 0], [0, 1]])[:, : tf.size(positions)]
    closing = tf.where(positions == ends, EOS_ID, PAD_ID)
    return tf.where(positions < ends, known, closing), sizes, cut


# --- The export of a translator ---------------------------------------------------------


def exportable(
    translator: Any, options: Mapping[str, Any] = MappingProxyType({}), text: bool = True
) -> Exportable:
    """Returns a translator as an `Exportable`, which must answer like it.

    The translator searches in TensorFlow; `options` replace its search settings. Without `text`
    the model takes only ids and needs only TensorFlow's operations, and its tokenizer is copied
    beside it.
    """
    engine, decoding = translator.engine, replace(translator.decoding, **options)
    functions = Signatures(engine, decoding).functions(text)
    codec = engine.codec(decoding)
    return Exportable(
        models=models_of(engine.model),
        tokenizer=engine.tokenizer,
        functions=functions,
        requests=[one for one in requests(codec) if one.signature in functions],
        checks=lambda session: check_translator(session, translator, options),
        sizes=sizes(codec),
        text=text,
    )


def sizes(codec: GraphCodec) -> dict[str, int]:
    """Returns the maximum numbers of tokens in a source and a target, EOS included."""
    return {"max_source_tokens": codec.source_limit, "max_target_tokens": codec.target_limit}


def requests(codec: GraphCodec) -> list[Request]:
    """Returns requests for each signature: all outputs, and sets that clients often want."""
    text = np.array(TEXTS[:2], object)
    ids = source_ids(codec, TEXTS[:2])
    pairs = {"source": text, "target": text}
    options = {
        "text": text,
        "alpha": np.array([-1.0, 1.0], "float32"),
        "max_length": np.array([-1, 5], "int32"),
        "prefix": np.array(["", "A"], object),
    }
    return [
        Request("serving_default", {"text": text}),
        Request("serving_default", {"text": text}, ("translation",)),
        Request("nbest", {"text": text}),
        Request("nbest", {"text": text}, ("translations",)),
        Request("nbest", {"text": text}, ("translations", "scores")),
        Request("with_options", options),
        Request("with_options", options, ("translations",)),
        Request("tokens", {"tokens": ids}),
        Request("tokens", {"tokens": ids}, ("tokens",)),
        Request("attention", {"text": text}),
        Request("score", pairs),
        Request("places", pairs),
        Request("score", pairs, ("log_prob",)),
    ]


def source_ids(codec: GraphCodec, texts: Sequence[str]) -> np.ndarray:
    """Returns the texts as int32 [B, S], with EOS and padding."""
    return codec.encode(tf.constant(texts))[0].to_tensor(PAD_ID).numpy()


# --- Computation in groups of rows --------------------------------------------------------
#
# Rows of similar length are computed together, which bounds the memory of a request: a row of a
# thousand tokens neither widens short rows nor is computed together with many others.


def exported(function: Callable, *specs: tf.TensorSpec) -> Function:
    """Returns a TensorFlow function whose arguments have these specs."""
    return tf.function(function, input_signature=specs, autograph=False)


def of_vectors(method: Callable[..., Outputs], **types: tf.DType) -> Function:
    """Returns a TensorFlow function whose arguments are vectors with these names and types."""
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in types.items()]
    return exported(
        lambda *vectors: method(*(tf.ensure_shape(vector, [None]) for vector in vectors)),
        *specs,
    )


def longest(sizes: tf.Tensor) -> tf.Tensor:
    """Returns the largest of sizes [B]; 0 for an empty batch, whose maximum is negative."""
    return tf.maximum(tf.reduce_max(sizes), 0)


def in_groups(function: Callable, specs: Sequence[tf.TensorSpec], positions: int) -> Callable:
    """Returns a TensorFlow function that computes `function` one group of rows at a time.

    Outputs of different widths are padded with zeros. `function` takes tensors with `specs` and
    returns a nest of tensors, all with dimension 0 = B; the outputs of a row must depend on
    that row alone. A matrix holds padded ids, and is cut to the longest row of a group. A
    group's rows times its longest row are at most `positions`, unless it has only one row.
    """
    compute = exported(function, *specs)
    outputs = compute.get_concrete_function().structured_outputs

    def grouped(*tensors):
        lengths = functools.reduce(tf.maximum, map(_lengths, filter(_is_matrix, tensors)))
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)

        def add_group(start, results):
            longest = tf.maximum(lengths[order[start]], 1)
            end = start + tf.maximum(positions // longest, 1)
            group = order[start:end]
            outputs = compute(*(_rows(tensor, group) for tensor in tensors))
            return end, tf.nest.map_structure(_append, results, outputs)

        nothing = tf.nest.map_structure(_empty, outputs)
        _, results = tf.while_loop(
            lambda start, _: start < tf.size(order),
            add_group,
            (tf.constant(0), nothing),
            shape_invariants=(
                tf.TensorShape([]),
                tf.nest.map_structure(lambda spec: spec.shape, outputs),
            ),
            parallel_iterations=1,
        )
        back = tf.argsort(order)  # the inverse, in an operation that LiteRT has
        return tf.nest.map_structure(lambda result: tf.gather(result, back), results)

    return exported(grouped, *specs)


def _is_matrix(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 2


def _lengths(ids: tf.Tensor) -> tf.Tensor:
    """Returns int32 [B]: the length of each row of ids [B, width] without its padding."""
    lengths = tf.range(1, tf.shape(ids)[1] + 1)
    return tf.maximum(tf.reduce_max(tf.where(ids == PAD_ID, 0, lengths), axis=1), 0)


def _rows(tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    chosen = tf.gather(tensor, rows)
    return chosen[:, : tf.reduce_max(_lengths(chosen))] if _is_matrix(tensor) else chosen


def _empty(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.zeros([0, *(size or 0 for size in spec.shape[1:])], spec.dtype)


def _append(before: tf.Tensor, more: tf.Tensor) -> tf.Tensor:
    """Concatenates rows, padded to the wider of the two."""
    size = tf.maximum(tf.shape(before)[1:], tf.shape(more)[1:])

    def widened(tensor: tf.Tensor) -> tf.Tensor:
        missing = tf.pad(size - tf.shape(tensor)[1:], [[1, 0]])
        return tf.pad(tensor, tf.stack([tf.zeros_like(missing), missing], axis=1))

    both = tf.concat([widened(before), widened(more)], axis=0)
    both.set_shape(before.shape)  # LiteRT has no `ensure_shape` for partially known shapes
    return both
