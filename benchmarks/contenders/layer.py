"""One layer of Table 1 of the paper: its forward and backward pass over n positions."""

import keras
import tensorflow as tf
from harness.child import resident_bytes, serve
from keras import ops

from tf_transformer.layers import MultiHeadAttention

NEIGHBOURHOOD = 64  # r of Table 1
KERNEL = 3  # k of Table 1


def setup(kind: str, d_model: int, num_heads: int, batch: int) -> dict:
    """Args:
    kind: a key of `LAYERS`.
    d_model: the width d of every layer.
    num_heads: number of heads of the attention layers.
    batch: number of sequences.
    """
    layer = LAYERS[kind](d_model, num_heads)

    @tf.function(input_signature=[tf.TensorSpec([batch, None, d_model])], autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(layer(x) * x)
        return [tf.reduce_sum(g) for g in tape.gradient(total, [x, *layer.trainable_weights])]

    @tf.function(input_signature=[tf.TensorSpec([batch, None, d_model])], autograph=False)
    def forward(x):
        return tf.reduce_sum(layer(x) * x)

    layer(tf.zeros([batch, NEIGHBOURHOOD, d_model]))
    resident = resident_bytes()  # measured now, because freed memory stays with the process

    def work(length: int, backward: bool = True, times: int = 1) -> dict:
        x = tf.random.normal([batch, length, d_model])
        for _ in range(times):
            gradients = step(x) if backward else [forward(x)]
        return {"gradients": len([g.numpy() for g in gradients]), "resident_bytes": resident}

    return {"work": work}


class SelfAttention(keras.layers.Layer):
    """The package's self-attention."""

    def __init__(self, d_model: int, num_heads: int, **kwargs):
        super().__init__(**kwargs)
        self.attention = MultiHeadAttention(num_heads, d_model // num_heads)

    def call(self, x):
        return self.attention(x, x)


class RestrictedSelfAttention(keras.layers.Layer):
    """Attention to positions at most r / 2 away (paper 4), computed in blocks of r / 2.

    A block of queries is compared with the keys of its own block and of both neighbours.
    """

    def __init__(self, d_model: int, num_heads: int, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size = num_heads, d_model // num_heads
        self.projection = keras.layers.Dense(3 * d_model, use_bias=False)
        self.output_projection = keras.layers.Dense(d_model, use_bias=False)

    def build(self, shape):
        self.projection.build(shape)
        self.output_projection.build(shape)

    def call(self, x):
        batch, length, d_model = ops.shape(x)
        half = NEIGHBOURHOOD // 2
        blocks = (length + half - 1) // half
        x = ops.pad(x, [[0, 0], [0, blocks * half - length], [0, 0]])
        split = ops.reshape(self.projection(x), (batch, blocks, half, 3, self.heads, self.size))
        query, key, value = (split[:, :, :, i] for i in range(3))  # [B, blocks, half, H, K]
        key, value = _with_neighbours(key), _with_neighbours(value)
        scores = ops.einsum("bnqhk,bnmhk->bnhqm", query, key) / self.size**0.5
        scores = scores + _outside(blocks, half, length)
        mixed = ops.einsum("bnhqm,bnmhk->bnqhk", ops.softmax(scores), value)
        mixed = ops.reshape(mixed, (batch, blocks * half, d_model))[:, :length]
        return self.output_projection(mixed)


def _with_neighbours(blocks):
    """Joins each block with both neighbours: [B, N, half, ...] -> [B, N, 3 half, ...]."""
    around = ops.pad(blocks, [[0, 0], [1, 1]] + [[0, 0]] * 3)
    return ops.concatenate([around[:, :-2], blocks, around[:, 2:]], axis=2)


def _outside(blocks, half: int, length):
    """Returns -1e9 for keys too far away or out of range: [1, blocks, 1, half, 3 half]."""
    starts = ops.arange(blocks)[:, None] * half
    queries = starts + ops.arange(half)
    keys = starts + ops.arange(3 * half) - half
    far = ops.abs(queries[:, :, None] - keys[:, None, :]) > half
    beyond = (keys < 0) | (keys >= length)
    wrong = far | beyond[:, None, :]
    return ops.cast(wrong, "float32")[None, :, None] * -1e9


LAYERS = {
    "self-attention": SelfAttention,
    "restricted self-attention": RestrictedSelfAttention,
    "convolution": lambda d, _: keras.layers.Conv1D(d, KERNEL, padding="same"),
    "LSTM": lambda d, _: keras.layers.LSTM(d, return_sequences=True),
    "GRU": lambda d, _: keras.layers.GRU(d, return_sequences=True),
}

if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
