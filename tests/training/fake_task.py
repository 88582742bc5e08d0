"""A minimal task: predict a token from three features, through dropout."""

from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import Config
from tf_transformer.models.token_model import TokenModel
from tf_transformer.training.trainer import Result, compile_model

FEATURES, VOCAB_SIZE = 3, 6
NUM_ROWS = 4

Arrays = tuple[np.ndarray, np.ndarray]


def result_of(bleu: float) -> Result:
    """Returns a score; chrF falls as BLEU rises."""
    metrics = {"bleu": bleu, "exact": bleu / 100, "chrf": 100 - bleu}
    return Result(metrics, f"BLEU {bleu:.2f}", "", [])


def batch(step: int) -> Arrays:
    """Returns features [B, T, 3] and labels [B, T] of a step; T depends on the step."""
    rng = np.random.default_rng(step)
    length = 3 + step % 3
    features = rng.normal(size=[NUM_ROWS, length, FEATURES]).astype("float32")
    labels = 1 + features.argmax(-1)
    labels[0, -2:] = 0
    return features, labels


class FakeTask:
    """Implements `training.trainer.Task`.

    Args:
        scores: dev scores of successive evaluations; an exception among them is raised.
        damaged_step: batch from which on the features are NaN.
    """

    steps_per_epoch = 7
    validation_steps = 2
    dev_set = "two batches"
    shapes = ((4, 3), (4, 4), (4, 5))

    def __init__(
        self, scores: Iterator[float | BaseException], damaged_step: int | None = None
    ) -> None:
        self.scores = scores
        self.damaged_step = damaged_step
        self.models: list[keras.Model] = []

    def build_model(self) -> TokenModel:
        inputs = keras.Input((None, FEATURES), name="features")
        hidden = keras.layers.Dense(8, "relu", name="hidden")(inputs)
        hidden = keras.layers.Dropout(0.3, name="dropout")(hidden)
        logits = keras.layers.Dense(VOCAB_SIZE, name="logits", dtype="float32")(hidden)
        self.models.append(TokenModel(inputs, logits, name="guesser"))
        return self.models[-1]

    def training_data(
        self, start_step: int, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        def batches() -> Iterator[Arrays]:
            step = start_step
            while True:
                features, labels = batch(step)
                if self.damaged_step is not None and step >= self.damaged_step:
                    features = np.full_like(features, np.nan)
                for replica in replicas:
                    yield features[replica::num_replicas], labels[replica::num_replicas]
                step += 1

        return dataset(batches)

    def validation_data(
        self, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        def batches() -> Iterator[Arrays]:
            for features, labels in map(batch, (10_001, 10_002)):
                for replica in replicas:
                    yield features[replica::num_replicas], labels[replica::num_replicas]

        return dataset(batches)

    def evaluator(self, model: keras.Model) -> Callable[[], Result]:
        def evaluate() -> Result:
            score = next(self.scores)
            if isinstance(score, BaseException):
                raise score
            return result_of(score)

        return evaluate


def compiled_model(config: Config) -> TokenModel:
    """Returns the task's model, compiled as in the trainer."""
    model = FakeTask(iter(())).build_model()
    compile_model(model, config)
    return model


def dataset(batches: Callable[[], Iterator[Arrays]]) -> tf.data.Dataset:
    signature = (
        tf.TensorSpec([None, None, FEATURES], tf.float32),
        tf.TensorSpec([None, None], tf.int64),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=signature)
