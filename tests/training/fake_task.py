"""A task as small as can be: guess a token from three features, through dropout."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.evaluation.bleu import Score

FEATURES, VOCAB_SIZE = 3, 6


@dataclass(frozen=True)
class FakeResult:
    score: Score
    exact: float


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Features [B, T, 3] and labels [B, T] of a step, always the same, of changing length."""
    rng = np.random.default_rng(step)
    length = 3 + step % 3
    features = rng.normal(size=[4, length, FEATURES]).astype("float32")
    labels = 1 + features.argmax(-1)
    labels[0, -2:] = 0
    return features, labels


class FakeTask:
    """Keeps the protocol of `training.trainer.Task`.

    Args:
        scores: the dev scores of the evaluations to come, one each; an exception is raised.
        damaged_step: from this batch on, the features are NaN.
    """

    def __init__(
        self, scores: Iterator[float | BaseException], damaged_step: int | None = None
    ):
        self.scores = scores
        self.damaged_step = damaged_step
        self.models: list[keras.Model] = []

    def build_model(self) -> keras.Model:
        inputs = keras.Input((None, FEATURES), name="features")
        hidden = keras.layers.Dense(8, "relu", name="hidden")(inputs)
        hidden = keras.layers.Dropout(0.3, name="dropout")(hidden)
        logits = keras.layers.Dense(VOCAB_SIZE, name="logits")(hidden)
        self.models.append(keras.Model(inputs, logits, name="guesser"))
        return self.models[-1]

    def training_data(self, start_step: int) -> tf.data.Dataset:
        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            step = start_step
            while True:
                features, labels = batch(step)
                if self.damaged_step is not None and step >= self.damaged_step:
                    features = np.full_like(features, np.nan)
                yield features, labels
                step += 1

        return dataset(batches)

    def validation_data(self) -> tf.data.Dataset:
        batches = dataset(lambda: (batch(step) for step in (10_001, 10_002)))
        return batches.apply(tf.data.experimental.assert_cardinality(2))

    def evaluator(self, model: keras.Model) -> Callable[[], FakeResult]:
        def evaluate() -> FakeResult:
            score = next(self.scores)
            if isinstance(score, BaseException):
                raise score
            return FakeResult(Score("BLEU", score, "fake"), score / 100)

        return evaluate


def dataset(batches: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]) -> tf.data.Dataset:
    signature = (
        tf.TensorSpec([None, None, FEATURES], tf.float32),
        tf.TensorSpec([None, None], tf.int64),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=signature)
