"""Steps of decoding, from the keys and values of earlier positions (paper 3.1, 3.2.3).

B batch, W beams of a sentence, C columns of the cache, S source length, D d_model, H heads, K
key dimension, V vocabulary. A column holds a position of every beam, W rows of keys and values.
It is never reordered: `ancestry` tells as which beam each earlier step of a beam was computed.

A cache is one of four kinds. `start_search` of a model chooses it, once for a search, but for
the last, which is for LiteRT:

    GrowingCache   a step adds a column: position p is in column p
    RingCache      the same, but a window of attention needs the last columns only
    FixedCache     of few sizes, for steps that XLA compiles: a step writes into column p
    PartedCache    the caller has the columns, and adds the one that a step returns
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from keras import ops

from tf_transformer.config import PAD_ID
from tf_transformer.fast.keras_hooks import number_anew
from tf_transformer.fast.programs import fitted_size
from tf_transformer.fast.projections import Inference
from tf_transformer.layers import Decoder, PositionalEmbedding, padding_mask
from tf_transformer.layers.attention import additive
from tf_transformer.layers.embedding import OutputProjection, project_to_logits

logger = logging.getLogger(__name__)

COLUMNS = 32  # of the smallest cache of fixed size


def initial_cache(decoder: Decoder, source, encoder_output) -> dict[str, Any]:
    """Returns the cache before the first step, of ids [B, S]; dimension 0 of all tensors is B.

    It has `memory`, each layer's keys and values of the encoder output; `memory_mask`
    [B, 1, 1, S]; and `past`, each layer's keys and values of the positions decoded so far,
    still empty, [B, H, 0, K].
    """
    memory = [layer.project_memory(encoder_output) for layer in decoder.layers]
    past = [tuple(ops.zeros_like(heads[:, :, :0]) for heads in pair) for pair in memory]
    mask = ops.expand_dims(padding_mask(source), (1, 2))
    return {"memory": memory, "memory_mask": mask, "past": past}


class GrowingCache:
    """Adds a column at each step: position p is in column p."""

    def seen(self, columns, past, width):
        """Returns those of the columns [..., C + 1] that `past` has, and this step's."""
        return columns

    def positions(self, size, index):
        """Returns the position in each of `size` columns, of which this step's is the last."""
        return ops.append(ops.arange(size - 1, dtype="int32"), ops.cast(index, "int32"))

    def extended(self, past, new, index):
        """Adds keys and values of this step, [B, H, W, K], to a layer's, [B, H, C * W, K]."""
        pairs = zip(past, new, strict=True)
        return tuple(ops.concatenate(pair, axis=2) for pair in pairs)  # (C + 1) * W rows

    def kept(self, past, width):
        """Returns the keys and values of each layer that later steps need."""
        return past


class RingCache(GrowingCache):
    """Keeps the last columns only, as many as a window of attention has.

    Whoever keeps the rows may use C columns in turn: position p is in column p mod C.
    """

    def __init__(self, window: int):
        self._window = window

    def seen(self, columns, past, width):
        return columns[..., -(ops.shape(past[0][0])[2] // width + 1) :]

    def positions(self, size, index):
        columns, index = ops.arange(size - 1, dtype="int32"), ops.cast(index, "int32")
        return ops.append(index - 1 - ops.mod(index - 1 - columns, size - 1), index)

    def kept(self, past, width):
        last = -self._window * width
        return [(keys[:, :, last:], values[:, :, last:]) for keys, values in past]


class PartedCache(RingCache):
    """Has columns that the caller keeps, all of which `ancestry` has, in turn if they run out.

    A step joins nothing to them: attention takes them and the new column one after the other,
    and the step returns the new one alone.
    """

    def __init__(self):
        super().__init__(0)

    def seen(self, columns, past, width):
        return columns

    def extended(self, past, new, index):
        return tuple(zip(past, new, strict=True))

    def kept(self, past, width):
        return [(keys[1], values[1]) for keys, values in past]


class FixedCache(GrowingCache):
    """Has C columns before and after a step, which writes position p into column p."""

    def positions(self, size, index):
        return ops.arange(size, dtype="int32")

    def extended(self, past, new, index):
        return tuple(self._written(*pair, index) for pair in zip(past, new, strict=True))

    def _written(self, past, new, index):
        batch, heads, rows, size = ops.shape(past)
        width = new.shape[2]
        columns = ops.reshape(past, (batch, heads, rows // width, width, size))
        here = ops.equal(ops.arange(rows // width, dtype="int32"), index)[:, None, None]
        # Not an update in place, which would be a copy and another launch for each tensor.
        return ops.reshape(ops.where(here, new[:, :, None], columns), ops.shape(past))


class DecodingStep:
    """Decodes one position of every beam, a step of `decoding.beam_search`.

    Prepares kernels that all steps share, so it is made once, outside the loop of a search. The
    output projection may be the embedding itself. `prepared` is that of another such step, in
    place of the layers' weights. The cache is of another `kind` than the model's own if given.
    """

    def __init__(
        self,
        embedding: PositionalEmbedding,
        decoder: Decoder,
        projection: PositionalEmbedding | OutputProjection,
        prepared: tuple | None = None,
        kind: GrowingCache | None = None,
    ):
        self._embedding = embedding
        self._decoder = decoder
        self._window = window = decoder.options.attention_window
        self._kind = kind or (RingCache(window) if window else GrowingCache())
        bias = projection.output_bias
        output, self._fused, weights = prepared or (
            (projection.output_kernel(), None if bias is None else ops.copy(bias)),
            decoder.fused_projections(),
            None,
        )
        self._output = output
        self._inference = Inference(decoder, weights)
        self.prepared = output, self._fused, self._inference.values

    def __call__(self, tokens, index, ancestry, cache):
        """Returns float32 logits [B, W, V] and the cache with this position, `index`, in it.

        `tokens` [B, W] are those before it. `ancestry` [B, W, C + 1] has the beam as which each
        earlier step of a beam was computed, -1 in an unused column, and finally the beam's own;
        with a `FixedCache`, it has C columns and the beam's own in column `index`.
        """
        with self._inference.on():
            hidden, past = self._decode(tokens, index, ancestry, cache)
            return project_to_logits(hidden, *self._output), {**cache, "past": past}

    def _decode(self, tokens, index, ancestry, cache):
        """Returns hidden states [B, W, D], and keys and values of all positions in use."""
        kind, past, width = self._kind, cache["past"], ops.shape(tokens)[1]
        embedded = self._embedding(ops.reshape(tokens, (-1, 1)), offset=index)  # [B * W, 1, D]
        rows = (tokens.shape[0], -1) if tokens.shape[0] else (-1, width)
        beams = ops.reshape(embedded, (*rows, embedded.shape[-1]))

        positions = None  # of each row of keys and values, [(C + 1) * W]
        if self._window or self._decoder.positions_in_attention:
            of_columns = kind.positions(ops.shape(ancestry)[2], index)
            positions = _repeated(kind.seen(of_columns, past, width), width)
        self_mask = _own_history(kind.seen(ancestry, past, width), width)
        if self._window:
            self_mask = ops.logical_and(self_mask, positions >= index - self._window)

        hidden, past = self._decoder.step(
            beams,
            past,
            cache["memory"],
            self_mask=additive(self_mask),
            memory_mask=additive(cache["memory_mask"]),
            fused=self._fused,
            extended=partial(kind.extended, index=index),
            index=index,
            positions=positions,
        )
        return hidden, kind.kept(past, width)


class StepProgram:
    """Makes steps that XLA computes as one program, over a cache of fixed size.

    A program is compiled for each number of sentences and beams, source length and size of the
    cache, which `Search` and `fitted_size` therefore keep few. All searches of a process share
    them. The layers are those of `DecodingStep`.
    """

    def __init__(self, *layers: Any):
        self._layers = layers
        self._program = tf.function(self._compute, jit_compile=True, autograph=False)

    def _compute(self, prepared, tokens, index, ancestry, cache):
        # When it is traced, once for all sizes of batches and caches.
        number_anew()
        logger.info("XLA compiles the search's steps: the first batch of a size takes longer")
        step = DecodingStep(*self._layers, prepared, FixedCache())
        logits, cache = step(tokens, index, ancestry, cache)
        return logits, cache["past"]  # the rest would be copied

    def step_function(self) -> Callable:
        """Returns what does the same as `DecodingStep`, made once for a search."""
        prepared = DecodingStep(*self._layers).prepared

        def step(tokens, index, ancestry, cache):
            columns = fitted_size(index + 1, COLUMNS)
            past, width = cache["past"], tokens.shape[1]
            missing = columns * width - tf.shape(past[0][0])[2]

            def grown():
                room = [[0, 0], [0, 0], [0, missing], [0, 0]]
                return tf.nest.map_structure(lambda heads: tf.pad(heads, room), past)

            past = tf.cond(missing > 0, grown, lambda: past)
            unused = [[0, 0], [0, 0], [0, columns - 1 - index]]
            ancestry = tf.pad(ancestry, unused, constant_values=-1)
            inputs = tokens, index, ancestry, cache | {"past": past}
            logits, past = self._program(prepared, *inputs)
            return logits, cache | {"past": past}

        return step


def padded_to_few_lengths(source: tf.Tensor, longest: int | None) -> tf.Tensor:
    """Pads ids [B, S] to a length that many batches have, at most `longest` positions."""
    length = tf.shape(source)[1]
    size = fitted_size(length, COLUMNS)
    if longest:  # no more have learned positions
        size = tf.maximum(length, tf.minimum(size, longest))
    return tf.pad(source, [[0, 0], [0, size - length]], constant_values=PAD_ID)


def _own_history(ancestry, width):
    """Marks the rows (column, beam) of each beam: [B, W, C + 1] -> [B, 1, W, (C + 1) * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, columns = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, columns * width))


def _repeated(columns, width):
    """Returns what each row has, of what each column has: [C] -> [C * W]."""
    return ops.reshape(
        ops.broadcast_to(columns[:, None], (ops.shape(columns)[0], width)), (-1,)
    )
