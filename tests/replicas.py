"""Tiny models and uneven batches, trained on one or several replicas, or by hand."""

from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID
from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    TokenCount,
)
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer

VOCAB_SIZE, SMOOTHING = 16, 0.1
LOSS = LabelSmoothedCrossEntropy(SMOOTHING)
Batch = tuple[dict[str, np.ndarray], np.ndarray]

# Rows of each batch: over 4 replicas, some have one row more than others, or none at all.
ROWS = (4, 5, 1, 8, 2, 3)


def strategy_of(replicas: int) -> tf.distribute.Strategy:
    if replicas == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def batch(rows: int, seed: int) -> Batch:
    """Sentences of very different lengths: the first of a batch has the most tokens."""
    rng = np.random.default_rng(seed)
    length = 4 + 2 * (seed % 3)
    source, labels = rng.integers(4, VOCAB_SIZE, [2, rows, length])
    lengths = np.linspace(length, 1, rows).astype(int)[:, None]
    for side in (source, labels):
        side[np.arange(length) >= lengths] = 0
    target = np.pad(labels, [(0, 0), (1, 0)], constant_values=BOS_ID)[:, :-1]
    return {"source": source, "target": np.where(labels, target, 0)}, labels


def batches(rows: Sequence[int] = ROWS) -> list[Batch]:
    return [batch(count, seed) for seed, count in enumerate(rows)]


def weighted_batches() -> list[tuple]:
    """The batches with a random weight for each position, padding too."""
    rng = np.random.default_rng(0)
    return [
        (inputs, labels, rng.uniform(0, 2, labels.shape).astype("float32"))
        for inputs, labels in batches()
    ]


def dataset(elements: Sequence[tuple]) -> tf.data.Dataset:
    """Of elements with any number of rows and columns, as a notebook makes it.

    TensorFlow may compute in the memory of a generator's arrays: it gets copies.
    """

    def spec(array) -> tf.TensorSpec:
        dtype = tf.float32 if array.dtype.kind == "f" else tf.int32
        return tf.TensorSpec([None] * array.ndim, dtype)

    signature = tf.nest.map_structure(spec, elements[0])

    def copies() -> Iterator[tuple]:
        for element in elements:
            yield tf.nest.map_structure(np.copy, element)

    made = tf.data.Dataset.from_generator(copies, output_signature=signature)
    return made.apply(tf.data.experimental.assert_cardinality(len(elements)))


def transformer(kind: type[keras.Model] = Transformer, **changes: object) -> Transformer:
    """Always the same weights; without dropout, unless it is asked for."""
    keras.utils.set_random_seed(1)
    sizes = {"vocab_size": VOCAB_SIZE, "num_layers": 1, "d_model": 8, "d_ff": 16}
    return kind(**sizes | {"num_heads": 2, "dropout": 0.0} | changes)


def token_inputs() -> dict[str, keras.KerasTensor]:
    names = ("source", "target")
    return {name: keras.Input((None,), dtype="int32", name=name) for name in names}


def guesser(kind: type[keras.Model] = TokenModel, dropout: float = 0.0) -> keras.Model:
    """Embeddings of source and target, added; a layer; logits: quick to make and to trace."""
    keras.utils.set_random_seed(1)
    inputs = token_inputs()
    embedding = keras.layers.Embedding(VOCAB_SIZE, 8, name="embedding")
    hidden = keras.layers.Add()([embedding(ids) for ids in inputs.values()])
    hidden = keras.layers.Dropout(dropout, name="dropout")(hidden)
    hidden = keras.layers.Dense(8, "relu", name="hidden")(hidden)
    logits = keras.layers.Dense(VOCAB_SIZE, dtype="float32", name="logits")(hidden)
    return kind(inputs, logits, name="guesser")


def metrics() -> list[keras.metrics.Metric]:
    return [Perplexity(), TokenAccuracy(), TokenCount()]


def fitted(
    replicas: int = 1,
    data: Sequence[tuple] | None = None,
    make: Callable[[], keras.Model] = guesser,
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: Adam(0.01),
    callbacks: Sequence[keras.callbacks.Callback] = (),
    validated: bool = False,
    **compiled: object,
) -> tuple[keras.Model, dict[str, float]]:
    """One epoch of `fit`, as in a notebook, perhaps `validated` on the same batches."""
    elements = batches() if data is None else data
    with strategy_of(replicas).scope():
        model = make()
        model.compile(optimizer(), **{"loss": LOSS, "metrics": metrics()} | compiled)
    history = model.fit(
        dataset(elements),
        validation_data=dataset(elements) if validated else None,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
    return model, {name: values[0] for name, values in history.history.items()}


def stepped_by_hand(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, elements: Sequence[tuple]
) -> keras.Model:
    """The definition: one-hot targets, the weighted mean over tokens, Keras's optimizer."""
    for inputs, labels, *sample_weight in elements:
        weights = (labels != 0) * np.ones_like(labels, "float32")
        weights = weights * sample_weight[0] if sample_weight else weights
        targets = (1 - SMOOTHING) * np.eye(VOCAB_SIZE)[labels] + SMOOTHING / VOCAB_SIZE
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets.astype("float32"), logits)
            loss = tf.reduce_sum(losses * weights) / weights.sum()
        gradients = tape.gradient(loss, model.trainable_variables)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(dense, model.trainable_variables)
    return model


def distance(one: keras.Model, other: keras.Model) -> float:
    """The largest difference of a weight."""
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(a - b).max(initial=0)) for a, b in pairs)
