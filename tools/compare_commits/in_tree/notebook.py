"""README's notebook: `fit` trains and saves a model, `load` loads it and continues."""

import sys

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    Transformer,
    TransformerSchedule,
)


def main() -> None:
    keras.utils.set_random_seed(1)
    {"fit": fit, "load": load}[sys.argv[1]]()


def fit() -> None:
    model = Transformer(vocab_size=60, num_layers=2, d_model=32, d_ff=64, num_heads=4)
    model.compile(
        keras.optimizers.Adam(TransformerSchedule(32, 20), beta_2=0.98, epsilon=1e-9),
        LabelSmoothedCrossEntropy(0.1),
        metrics=[Perplexity()],
    )
    train_and_keep(model, "runs/fit.npz")
    model.save("model.keras")


def load() -> None:
    train_and_keep(keras.saving.load_model("model.keras"), "answers/load_model.npz")


def train_and_keep(model: keras.Model, path: str) -> None:
    """Writes predictions and scores, then trains, and writes its history and the weights."""
    data = dataset()
    logits = model.predict(data, verbose=0)
    scores = model.evaluate(data, verbose=0)
    history = model.fit(data, shuffle=False, epochs=2, verbose=0).history
    weights = {f"weights/{weight.path}": weight.numpy() for weight in model.weights}
    np.savez(path, logits=logits, scores=scores, **history, **weights)


def dataset() -> tf.data.Dataset:
    rng = np.random.default_rng(1)
    source, answers = rng.integers(4, 60, (2, 64, 9), dtype="int32")
    answers[:, 6:] *= rng.integers(0, 2, (64, 1), dtype="int32")  # padding
    target = np.pad(answers, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    inputs = {"source": source, "target": target}
    return tf.data.Dataset.from_tensor_slices((inputs, answers)).batch(16)


main()
