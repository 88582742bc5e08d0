"""Protocols between the trainer and a task; the trainer never asks which task it runs."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from tf_transformer.models.token_model import TokenModel


class Result(Protocol):
    """Scores of a model on the dev set."""

    @property
    def metrics(self) -> dict[str, float]:
        """All scores, for metrics.jsonl; `training.best_by` is one of the names."""

    @property
    def headline(self) -> str:
        """Main score for the console, such as "BLEU 39.97"."""

    @property
    def example(self) -> str:
        """Input to try the trained model with; "" if there is none."""

    def lines(self) -> list[str]:
        """Returns samples and scores, for the end of training."""


class Task(Protocol):
    """Data, model and dev score of a run.

    Attributes:
        steps_per_epoch: batches of one pass over the training data.
        validation_steps: batches of the dev set.
        shapes: (rows, length) of all batches of the training data.
    """

    steps_per_epoch: int
    validation_steps: int
    shapes: Sequence[tuple[int, int]]

    @property
    def dev_set(self) -> str:
        """Identity of the dev set; scores on different ones are not comparable."""

    def build_model(self) -> TokenModel:
        """Builds a model with float logits [B, T, V] or [B, V] and fixed layer names."""

    def training_data(
        self, start_step: int, replicas: Sequence[int], num_replicas: int
    ) -> tf.data.Dataset:
        """Returns endless batches (inputs, labels [B, T] or [B]) from `start_step` on.

        They are a pure function of the step. Each global batch is cut into `num_replicas`
        shares; the dataset yields those of `replicas` one after another.
        """

    def validation_data(self, replicas: Sequence[int], num_replicas: int) -> tf.data.Dataset:
        """Returns one pass over the dev set, in batches like those of `training_data`."""

    def evaluator(self, model: TokenModel) -> Callable[[], Result]:
        """Returns a function that scores the model's current weights."""
