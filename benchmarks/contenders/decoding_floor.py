"""Only the matrix products of a search, each with separate weights.

Every step reads all weights of the decoder, as a search must; the encoder's are read once.
"""

import functools
import time
from collections.abc import Callable

import tensorflow as tf
from harness.child import serve
from harness.sentences import Work

_BYTES = 2**29  # size of the array for measuring memory bandwidth


def setup(work: str, precision: str) -> dict:
    """Args:
    work: the folder of the work.
    precision: "float32" or "bfloat16".
    """
    given = Work(work)
    dtype = tf.as_dtype(precision)
    encoder, decoder, memory = _weights(given.model, dtype)
    weights = sum(w.shape.num_elements() * dtype.size for w in decoder)
    bandwidth = _bandwidth()

    products = _search(encoder, decoder, memory)

    @functools.cache
    def rate(rows: int) -> float:
        """Returns the FLOPs per second of the largest product with this many rows."""
        left, right = tf.ones([rows, decoder[-1].shape[0]], dtype), decoder[-1]
        seconds = _fastest(lambda: tf.matmul(left, right))
        return 2 * rows * right.shape.num_elements() / seconds

    def measured(batch: int, beam: int, forced: int, batches: int) -> dict:
        rows = batch * beam
        for sentences in given.batches(batch, batches):
            positions = batch * (max(map(len, sentences)) + 1)
            arguments = (positions, rows, forced)
            products(*(tf.constant(n) for n in arguments)).numpy()
        steps = batches * forced
        flops = 2 * rows * sum(w.shape.num_elements() for w in decoder)
        return {
            "tokens": steps * batch,
            "reading_seconds": steps * weights / bandwidth,
            "computing_seconds": steps * flops / rate(rows),
        }

    return {"work": measured}


def _search(encoder: list, decoder: list, memory: list) -> Callable[..., tf.Tensor]:
    """Returns a function of (positions, beams, steps): the encoder, then decoder steps."""
    dtype = decoder[0].dtype

    @tf.function(autograph=False)
    def products(positions: tf.Tensor, beams: tf.Tensor, steps: tf.Tensor):
        for group in (encoder, memory):
            _chain(positions, group, dtype)

        def step(index, total):
            return index + 1, total + _chain(beams, decoder, dtype)

        start = (tf.constant(0), tf.zeros([], dtype))
        return tf.while_loop(lambda i, _: i < steps, step, start)[1]

    return products


def _weights(model: dict, dtype: tf.DType) -> tuple[list, list, list]:
    """Returns the kernels of the encoder, a decoder step, and the memory's projections."""
    d_model, d_ff = model["d_model"], model["d_ff"]
    layer = [(d_model, 3 * d_model), (d_model, d_model)]
    network = [(d_model, d_ff), (d_ff, d_model)]
    encoder = [*layer, *network] * model["num_layers"]
    depth = model.get("decoder_layers") or model["num_layers"]
    decoder = [*layer, (d_model, d_model), (d_model, d_model), *network] * depth
    decoder = [*decoder, (d_model, model["vocab_size"])]
    memory = [(d_model, 2 * d_model)] * depth

    def make(shapes):
        return [
            tf.Variable(tf.cast(tf.random.normal(s), dtype), trainable=False) for s in shapes
        ]

    return make(encoder), make(decoder), make(memory)


def _chain(rows: tf.Tensor, kernels: list, dtype: tf.DType) -> tf.Tensor:
    """Computes the products in sequence: each depends on a number from the one before."""
    last = tf.zeros([], dtype)
    for kernel in kernels:
        left = tf.fill([rows, kernel.shape[0]], last)
        last = tf.matmul(left, kernel)[0, 0] * tf.cast(0, dtype)
    return last


def _bandwidth() -> float:
    """Returns the bytes per second that a reduction reads from memory."""
    array = tf.ones([_BYTES // 4], tf.float32)
    return _BYTES / _fastest(lambda: tf.reduce_sum(array))


def _fastest(compute) -> float:
    """Returns the seconds of the fastest of ten computations."""
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        tf.reshape(compute(), [-1])[0].numpy()
        times.append(time.perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    serve(setup, "tensorflow")
