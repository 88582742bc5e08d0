"""Steps of decoding, from the keys and values of earlier positions (paper 3.1, 3.2.3).

B batch, W beams of a sentence, C columns of the cache, S source length, D d_model, H heads, K
key dimension, V vocabulary. A column holds a position of every beam, W rows of keys and values.
It is never reordered: `ancestry` tells in which slot each earlier step of a beam was computed.
"""

from typing import Any

from keras import ops

from tf_transformer.fast.projections import Inference
from tf_transformer.layers import Decoder, PositionalEmbedding, padding_mask
from tf_transformer.layers.attention import additive
from tf_transformer.layers.embedding import OutputProjection, project_to_logits


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
    output projection may be the embedding itself.
    """

    def __init__(
        self,
        embedding: PositionalEmbedding,
        decoder: Decoder,
        projection: PositionalEmbedding | OutputProjection,
    ):
        self._embedding = embedding
        self._decoder = decoder
        self._window = decoder.attention_window
        self._output = projection.output_kernel(), projection.output_bias
        self._fused = decoder.fused_projections()
        self._inference = Inference(decoder)

    def __call__(self, tokens, index, ancestry, cache):
        """Returns float32 logits [B, W, V] and the cache with this position, `index`, in it.

        `tokens` [B, W] are those before it. `ancestry` [B, W, C + 1] has the slot in which each
        earlier step of a beam was computed, -1 in an unused column, and finally the beam's own.
        Position p is in column p, within a window of attention in column p mod C. Within a
        window, the cache may hold the last columns only.
        """
        with self._inference.on():
            hidden, past = self._decode(tokens, index, ancestry, cache)
            return project_to_logits(hidden, *self._output), {**cache, "past": past}

    def _decode(self, tokens, index, ancestry, cache):
        """Returns hidden states [B, W, D], and keys and values of all positions in use."""
        width = ops.shape(tokens)[1]
        column = ops.reshape(tokens, (-1, 1))
        embedded = self._embedding(column, offset=index)  # [B * W, 1, D]
        beams = ops.reshape(embedded, (-1, width, embedded.shape[-1]))
        positions = None
        if self._window or self._decoder.positions_in_attention:
            positions = _positions_of_rows(ancestry, index, width, ring=bool(self._window))
        if self._window:  # the cache may hold the last columns only
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
        )
        if self._window:
            last = -self._window * width
            past = [(keys[:, :, last:], values[:, :, last:]) for keys, values in past]
        return hidden, past


def _own_history(ancestry, width):
    """Marks the rows (column, slot) of each beam: [B, W, C + 1] -> [B, 1, W, (C + 1) * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, columns = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, columns * width))


def _positions_of_rows(ancestry, index, width, ring=False):
    """Returns the positions of all rows, [(C + 1) * W]; those of the last column are `index`.

    In a ring of C columns, position p is in column p mod C.
    """
    size = ops.shape(ancestry)[2] - 1
    columns = ops.arange(size, dtype="int32")
    index = ops.cast(index, "int32")
    if ring:
        columns = index - 1 - ops.mod(index - 1 - columns, size)
    columns = ops.append(columns, index)
    rows = ops.broadcast_to(columns[:, None], (ops.shape(columns)[0], width))
    return ops.reshape(rows, (-1,))
