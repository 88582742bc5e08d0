"""Only the matrix products of a training step: a lower bound for every implementation."""

import tensorflow as tf
from harness.arrays import load_batches, real_tokens
from harness.child import serve


def setup(batches: str, model: dict, precision: str) -> dict:
    """Args:
    batches: path of the file of batches.
    model: arguments of ModelConfig.
    precision: "float32" or "mixed_bfloat16".
    """
    arrays = load_batches(batches)
    dtype = tf.float32 if precision == "float32" else tf.bfloat16
    products = [product for batch in arrays for product in _products(batch, model)]

    def work() -> dict:
        for number, *shapes in products:
            _multiply(number, *(_ones(shape, dtype) for shape in shapes))
        return real_tokens(arrays)

    return {"work": work}


def _products(batch, model: dict) -> list[tuple]:
    """Returns (number, shape, shape) of the forward products, [..., m, k] by [..., k, n]."""
    d_model, d_ff, heads = model["d_model"], model["d_ff"], model["num_heads"]
    layers, size = model["num_layers"], d_model // heads
    (rows, source), (_, target) = batch.source.shape, batch.target.shape
    products = []
    for length in (source, target):  # encoder, decoder
        m = rows * length
        products += [
            (layers, (m, d_model), (d_model, 3 * d_model)),
            (layers, (m, d_model), (d_model, d_model)),
            (layers, (m, d_model), (d_model, d_ff)),
            (layers, (m, d_ff), (d_ff, d_model)),
            *_attention(layers, rows, heads, length, length, size),
        ]
    products += [
        (2 * layers, (rows * target, d_model), (d_model, d_model)),  # cross-attention
        (layers, (rows * source, d_model), (d_model, 2 * d_model)),
        *_attention(layers, rows, heads, target, source, size),
        (1, (rows * target, d_model), (d_model, model["vocab_size"])),
    ]
    return products


def _attention(layers, rows, heads, queries, keys, size) -> list[tuple]:
    return [
        (layers, (rows, heads, queries, size), (rows, heads, size, keys)),
        (layers, (rows, heads, queries, keys), (rows, heads, keys, size)),
    ]


_MADE: dict[tuple, tf.Tensor] = {}


def _ones(shape: tuple, dtype: tf.DType) -> tf.Tensor:
    if (shape, dtype) not in _MADE:
        _MADE[shape, dtype] = tf.cast(tf.random.normal(shape), dtype)
    return _MADE[shape, dtype]


def _multiply(number: int, left: tf.Tensor, right: tf.Tensor) -> None:
    """Computes the product and the products of both gradients, `number` times."""
    for _ in range(number):
        product = tf.matmul(left, right)
        tf.matmul(product, right, transpose_b=True)
        tf.matmul(left, product, transpose_a=True)


if __name__ == "__main__":
    serve(setup, "tensorflow")
