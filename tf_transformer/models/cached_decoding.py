"""Steps of decoding, from the keys and values of earlier positions (paper 3.1, 3.2.3).

B batch, W beams of a sentence, C columns of the cache, S source length, D d_model, H heads, K
key dimension, V vocabulary. A column holds a position of every beam, W rows of keys and values.
It is never reordered: `ancestry` tells in which slot each earlier step of a beam was computed.
"""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops

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


class DecodingStep:
    """Decodes one position of every beam, a step of `decoding.beam_search`.

    Prepares kernels that all steps share, so it is made once, outside the loop of a search. The
    output projection may be the embedding itself. `prepared` is that of another such step, in
    place of the layers' weights.
    """

    def __init__(
        self,
        embedding: PositionalEmbedding,
        decoder: Decoder,
        projection: PositionalEmbedding | OutputProjection,
        prepared: tuple | None = None,
    ):
        self._embedding = embedding
        self._decoder = decoder
        self._window = decoder.options.attention_window
        bias = projection.output_bias
        output, self._fused, weights = prepared or (
            (projection.output_kernel(), None if bias is None else ops.copy(bias)),
            decoder.fused_projections(),
            None,
        )
        self._output = output
        self._inference = Inference(decoder, weights)
        self.prepared = output, self._fused, self._inference.values

    def __call__(self, tokens, index, ancestry, cache, fixed=False):
        """Returns float32 logits [B, W, V] and the cache with this position, `index`, in it.

        `tokens` [B, W] are those before it. `ancestry` [B, W, C + 1] has the slot in which each
        earlier step of a beam was computed, -1 in an unused column, and finally the beam's own.
        Position p is in column p, within a window of attention in column p mod C. Within a
        window, the cache may hold the last columns only. A `fixed` cache has C columns before
        and after, position p in column p, and so has the ancestry.
        """
        with self._inference.on():
            hidden, past = self._decode(tokens, index, ancestry, cache, fixed)
            return project_to_logits(hidden, *self._output), {**cache, "past": past}

    def _decode(self, tokens, index, ancestry, cache, fixed):
        """Returns hidden states [B, W, D], and keys and values of all positions in use."""
        width = ops.shape(tokens)[1]
        column = ops.reshape(tokens, (-1, 1))
        embedded = self._embedding(column, offset=index)  # [B * W, 1, D]
        beams = ops.reshape(embedded, (-1, width, embedded.shape[-1]))
        positions = None
        if self._window or self._decoder.positions_in_attention:
            positions = _positions_of_rows(ancestry, index, width, bool(self._window), fixed)
        if self._window and not fixed:  # the cache may hold the last columns only
            columns = ops.shape(cache["past"][0][0])[2] // width + 1
            ancestry, positions = ancestry[..., -columns:], positions[-columns * width :]
        self_mask = _own_history(ancestry, width)
        if self._window:
            self_mask = ops.logical_and(self_mask, positions >= index - self._window)
        hidden, past = self._decoder.step(
            beams,
            cache["past"],
            cache["memory"],
            self_mask=additive(self_mask),
            memory_mask=additive(cache["memory_mask"]),
            fused=self._fused,
            positions=positions,
            column=index if fixed else None,
        )
        if self._window and not fixed:
            last = -self._window * width
            past = [(keys[:, :, last:], values[:, :, last:]) for keys, values in past]
        return hidden, past


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
        step = DecodingStep(*self._layers, prepared)
        logits, cache = step(tokens, index, ancestry, cache, fixed=True)
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


def _own_history(ancestry, width):
    """Marks the rows (column, slot) of each beam: [B, W, C + 1] -> [B, 1, W, (C + 1) * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, columns = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, columns * width))


def _positions_of_rows(ancestry, index, width, ring=False, fixed=False):
    """Returns the positions of all rows, [(C + 1) * W]; those of the last column are `index`.

    In a ring of C columns, position p is in column p mod C; in a `fixed` cache, of C columns
    with this position's, in column p.
    """
    size = ops.shape(ancestry)[2]
    columns = ops.arange(size if fixed else size - 1, dtype="int32")
    index = ops.cast(index, "int32")
    if ring and not fixed:
        columns = index - 1 - ops.mod(index - 1 - columns, size - 1)
    if not fixed:
        columns = ops.append(columns, index)
    rows = ops.broadcast_to(columns[:, None], (ops.shape(columns)[0], width))
    return ops.reshape(rows, (-1,))
