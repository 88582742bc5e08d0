"""One layer of Table 1 of the paper: its forward and backward pass over n positions."""

import keras
import tensorflow as tf
from harness.child import resident_bytes, serve

from tf_transformer.layers import MultiHeadAttention

NEIGHBOURHOOD = 64  # r of Table 1, half of it to each side
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
    """The package's self-attention, perhaps restricted to positions at most `window` away."""

    def __init__(self, d_model: int, num_heads: int, window: int = 0, **kwargs):
        super().__init__(**kwargs)
        size = d_model // num_heads
        self.attention = MultiHeadAttention(num_heads, size, attention_window=window)

    def call(self, x):
        return self.attention(x)


LAYERS = {
    "self-attention": SelfAttention,
    "restricted self-attention": lambda d, h: SelfAttention(d, h, NEIGHBOURHOOD // 2),
    "convolution": lambda d, _: keras.layers.Conv1D(d, KERNEL, padding="same"),
    "LSTM": lambda d, _: keras.layers.LSTM(d, return_sequences=True),
    "GRU": lambda d, _: keras.layers.GRU(d, return_sequences=True),
}

if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
