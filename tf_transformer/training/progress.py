"""How far a run has come: what a state holds beside weights, optimizer and dropout seeds."""

import dataclasses
from dataclasses import dataclass, field
from typing import Self

import keras
import numpy as np

from tf_transformer.models.token_model import TokenModel


@dataclass
class Progress:
    """Position and running means of a run; all of it is in every state.

    Attributes:
        data_step: the batch that comes next; float16 may skip updates, so it is not the step.
        period_steps: batches since the last evaluation.
        period_seconds: of training since then.
        steps_per_epoch: of the data; another number tells of other batches.
        replicas: that trained so far.
        max_tokens_per_device: of the parts that batches were computed in; 0 if whole.
        means: the state of the model's running means, to go on from in the middle of a period.
    """

    data_step: int = 0
    period_steps: int = 0
    period_seconds: float = 0.0
    steps_per_epoch: int = 0
    replicas: int = 1
    max_tokens_per_device: int = 0
    means: list[np.ndarray] = field(default_factory=list)

    def add_step(self, seconds: float) -> None:
        self.data_step += 1
        self.period_steps += 1
        self.period_seconds += seconds

    def start_period(self) -> None:
        self.period_steps, self.period_seconds, self.means = 0, 0.0, []

    def keep_means(self, model: TokenModel) -> None:
        """Copies the model's running means, which `fit` resets at its beginning."""
        self.means = [variable.numpy() for variable in _totals(model)]

    def resume_means(self, model: TokenModel) -> None:
        """Assigns the means, if there are any, to the model.

        Raises:
            ValueError: if they are not such a model's.
        """
        if not self.means:
            return
        shapes = [tuple(variable.shape) for variable in _totals(model)]
        if [mean.shape for mean in self.means] != shapes or any(
            mean.dtype.kind != "f" for mean in self.means
        ):
            raise ValueError("its running means are of another model")
        for variable, value in zip(_totals(model), self.means, strict=True):
            variable.assign(value)

    def to_arrays(self) -> dict[str, np.ndarray]:
        numbers = {name: np.asarray(getattr(self, name)) for name in _NUMBERS}
        return numbers | {f"mean/{i:04d}": mean for i, mean in enumerate(self.means)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """The progress that `to_arrays` gave.

        Raises:
            ValueError: if a number is missing or cannot be of a training.
        """
        least = {"steps_per_epoch": 1, "replicas": 1}
        for name in _NUMBERS:
            value = arrays.get(name, np.array(""))
            if value.shape or value.dtype.kind not in "iuf" or not value >= least.get(name, 0):
                raise ValueError(f"{name} is {value}")
        numbers = {name: arrays[name].item() for name in _NUMBERS}
        means = [arrays[name] for name in sorted(arrays.keys() - {*_NUMBERS})]
        return cls(**numbers, means=means)

    def moved_to(self, now: Self) -> list[str]:
        """Takes over the batches and devices of `now`, and finds the place in other batches.

        Returns:
            What has changed, for a message.
        """
        changes = []
        if self.replicas != now.replicas:
            changes.append(f"{now.replicas} instead of {self.replicas} devices")
        if self.max_tokens_per_device != now.max_tokens_per_device:
            changes.append("parts of another size")
        if self.steps_per_epoch != now.steps_per_epoch:
            self.data_step = self.data_step * now.steps_per_epoch // self.steps_per_epoch
            changes.append("batches of another size")
        self.replicas, self.steps_per_epoch = now.replicas, now.steps_per_epoch
        self.max_tokens_per_device = now.max_tokens_per_device
        return changes


_NUMBERS = tuple(each.name for each in dataclasses.fields(Progress) if each.name != "means")


def _totals(model: TokenModel) -> list[keras.Variable]:
    return [variable for mean in model.running_means for variable in mean.variables]
