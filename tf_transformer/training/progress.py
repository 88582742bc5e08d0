"""Progress of a run, saved in a state beside weights, optimizer and dropout seeds."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import keras
import numpy as np

from tf_transformer.models.token_model import TokenModel
from tf_transformer.run.checkpoints import restore_state


@dataclass
class Progress:
    """Position in the data and running means, saved in every state.

    Attributes:
        data_step: index of the next batch; not the step, since float16 may skip updates.
        period_steps: batches since the last evaluation.
        period_seconds: training time since the last evaluation.
        steps_per_epoch: batches per epoch; a different number means different batches.
        replicas: number of devices.
        max_tokens_per_device: size of the parts that batches are computed in; 0 if whole.
        means: state of the model's running means, to resume within a period.
    """

    data_step: int = 0
    period_steps: int = 0
    period_seconds: float = 0.0
    steps_per_epoch: int = 0
    replicas: int = 1
    max_tokens_per_device: int = 0
    means: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def restore(cls, path: Path, model: TokenModel) -> Self:
        """Restores model, optimizer and running means from a state; returns its progress.

        Raises:
            UserError: if the state is damaged or belongs to another model.
        """
        progress = cls.from_arrays(restore_state(path, model))
        progress.resume_means(model)
        return progress

    def add_step(self, seconds: float) -> None:
        """Counts a batch and the time it took."""
        self.data_step += 1
        self.period_steps += 1
        self.period_seconds += seconds

    def start_period(self) -> None:
        """Resets the counts and means of the period, after an evaluation."""
        self.period_steps, self.period_seconds, self.means = 0, 0.0, []

    def keep_means(self, model: TokenModel) -> None:
        """Copies the model's running means, which the next `fit` resets."""
        self.means = [variable.numpy() for variable in _totals(model)]

    def resume_means(self, model: TokenModel) -> None:
        """Assigns the stored means, if any, to the model."""
        if self.means:
            for variable, value in zip(_totals(model), self.means, strict=True):
                variable.assign(value)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the progress as arrays, for a state."""
        numbers = {name: np.asarray(getattr(self, name)) for name in _NUMBERS}
        return numbers | {f"mean/{i:04d}": mean for i, mean in enumerate(self.means)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Inverts `to_arrays`."""
        numbers = {name: arrays[name].item() for name in _NUMBERS}
        means = [arrays[name] for name in sorted(arrays.keys() - {*_NUMBERS})]
        return cls(**numbers, means=means)

    def moved_to(self, now: Self) -> list[str]:
        """Adopts the batches and devices of `now`, and converts the position in the data.

        Returns:
            Descriptions of the changes, for a message.
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


_NUMBERS = tuple(f.name for f in dataclasses.fields(Progress) if f.name != "means")


def _totals(model: TokenModel) -> list[keras.Variable]:
    return [variable for mean in model.running_means for variable in mean.variables]
