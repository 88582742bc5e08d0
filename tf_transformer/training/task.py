"""What the trainer asks of a task: it never asks which one it runs."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from tf_transformer.models.token_model import TokenModel


class Result(Protocol):
    """What a task says of a model on the dev set."""

    @property
    def metrics(self) -> dict[str, float]:
        """Everything measured, for metrics.jsonl; `training.best_by` is one of the names."""

    @property
    def headline(self) -> str:
        """The main figure for the console, such as "BLEU 39.97"."""


class Task(Protocol):
    """What the trainer asks of a task.

    Attributes:
        steps_per_epoch: batches that see all of the training data once.
        validation_steps: batches of the dev set.
        dev_set: names the content of the dev set; scores on another do not compare.
        shapes: (rows, length) of all batches of the training data.
    """

    steps_per_epoch: int
    validation_steps: int
    dev_set: str
    shapes: Sequence[tuple[int, int]]

    def build_model(self) -> TokenModel:
        """A model with float logits [B, T, V] or [B, V]; every layer has a fixed name."""

    def training_data(
        self, start_step: int, replicas: Sequence[int], num_replicas: int
    ) -> tf.data.Dataset:
        """Batches (inputs, labels [B, T] or [B]) from a step on, without end, always the same.

        Each global batch is cut into `num_replicas` shares; those of `replicas` are elements
        of their own, one after the other.
        """

    def validation_data(self, replicas: Sequence[int], num_replicas: int) -> tf.data.Dataset:
        """The dev set once, in such batches."""

    def evaluator(self, model: TokenModel) -> Callable[[], Result]:
        """A function that scores the model's present weights."""
