"""Progress of a run: what a state keeps of it, and callbacks that count, show, save, stop."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tf_transformer.base.errors import UserError
from tf_transformer.config import TrainingConfig
from tf_transformer.fast.optimizers import step_of
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run.checkpoints import CheckpointFolder, restore_state, steadier
from tf_transformer.training.sessions import Stopper

logger = logging.getLogger(__name__)

# Consecutive skipped updates before giving up; each halves the loss scale, so 200 means that
# no scale works.
MOST_SKIPPED = 200
# The remaining time is announced after this many seconds or steps, not counting the first step.
ESTIMATE_SECONDS, ESTIMATE_STEPS = 60, 49


@dataclass
class TrainingProgress:
    """Position in the data and running means, saved in every state."""

    data_step: int = 0  # index of the next batch; not the step, since float16 may skip updates
    period_steps: int = 0  # batches since the last evaluation
    period_seconds: float = 0.0  # training time since the last evaluation
    steps_per_epoch: int = 0  # batches per epoch; another number means other batches
    replicas: int = 1  # number of devices
    max_tokens_per_device: int = 0  # size of the parts that batches are computed in; 0 if whole
    # If XLA compiles the layers, which draw other dropout masks, 2; 1 with 1.1.0's lengths.
    compiled: int = 0
    # State of the model's running means, to resume within a period.
    means: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def restore(cls, path: Path, model: TokenModel) -> Self:
        """Restores model, optimizer and running means from a state; returns its progress."""
        arrays = restore_state(path, model)
        numbers = {name: arrays[name].item() for name in _NUMBERS if name in arrays}
        means = [arrays[name] for name in sorted(arrays.keys() - {*_NUMBERS})]
        progress = cls(**numbers, means=means)
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
        """Copies the model's running means, which the next `fit` resets.

        Each device keeps its own, since sums made now would round differently; of several
        workers only the sums are known.
        """
        self.means = [
            np.stack([copy.numpy() for copy in copies])
            if len(copies) == self.replicas
            else variable.numpy()
            for variable, copies in _totals(model)
        ]

    def resume_means(self, model: TokenModel) -> None:
        """Assigns the stored means, if any, to the model."""
        for (variable, copies), value in zip(_totals(model), self.means, strict=False):
            if value.shape == (len(copies),):
                for copy, own in zip(copies, value, strict=True):
                    copy.assign(own)
            else:  # of other devices
                variable.assign(value.sum())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the progress as arrays, for a state."""
        numbers = {name: np.asarray(getattr(self, name)) for name in _NUMBERS}
        return numbers | {f"mean/{i:04d}": mean for i, mean in enumerate(self.means)}

    def moved_to(self, now: Self) -> list[str]:
        """Adopts the batches and devices of `now`, and converts the position in the data.

        Returns descriptions of the changes, for a message.
        """
        changes = []
        if self.replicas != now.replicas:
            changes.append(f"{now.replicas} instead of {self.replicas} devices")
        if self.max_tokens_per_device != now.max_tokens_per_device:
            changes.append("parts of another size")
        if bool(self.compiled) != bool(now.compiled):
            changes.append(f"{'with' if now.compiled else 'without'} XLA")
        if (self.steps_per_epoch, self.compiled) != (now.steps_per_epoch, now.compiled):
            self.data_step = self.data_step * now.steps_per_epoch // self.steps_per_epoch
            changes.append("batches of another size")
        self.replicas, self.steps_per_epoch = now.replicas, now.steps_per_epoch
        self.max_tokens_per_device, self.compiled = now.max_tokens_per_device, now.compiled
        return changes


_NUMBERS = tuple(f.name for f in dataclasses.fields(TrainingProgress) if f.name != "means")


def _totals(model: TokenModel) -> list[tuple[keras.Variable, tuple[tf.Variable, ...]]]:
    """Returns the variables of the running means, each with its copies on local devices."""
    local = model.distribute_strategy.experimental_local_results
    return [(v, local(v.value)) for mean in model.running_means for v in mean.variables]


class ProgressBar(keras.callbacks.Callback):
    """A bar from one evaluation to the next; it vanishes before the evaluation's line.

    Keras's own bar is wider than most terminals and would fill the screen. `done` steps of this
    period are from earlier sessions. Without `verbose` (no terminal) nothing is shown.
    """

    def __init__(self, done: int, verbose: int) -> None:
        super().__init__()
        self.done = done
        self.verbose = verbose

    def on_epoch_begin(self, epoch, logs=None):
        """Opens the bar."""
        self.bar = tqdm(
            initial=self.done,
            total=self.done + self.params["steps"],
            bar_format="{n_fmt}/{total_fmt} |{bar}| {remaining} left{postfix}",
            disable=not self.verbose,
            leave=False,
            dynamic_ncols=True,
        )

    def on_train_batch_end(self, batch, logs=None):
        """Shows running means of the period."""
        if self.verbose:
            means = f"loss {logs['loss']:.3f}, perplexity {logs['perplexity']:.2f}"
            self.bar.set_postfix_str(means, refresh=False)
            self.bar.update()

    def on_epoch_end(self, epoch, logs=None):
        """Closes the bar."""
        self.bar.close()


class UserCallbacks(keras.callbacks.Callback):
    """Calls callbacks of `train` as one `fit` would whose epochs are the periods of the run.

    An epoch ends after its evaluation, with the numbers of its record in metrics.jsonl as logs,
    those of the dev set by Keras's names too: valid_loss is val_loss as well. What a callback
    keeps is not saved, so it begins anew in each session.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__()
        self.each = keras.callbacks.CallbackList([*callbacks])
        self.stopped = False
        self.model_of_callbacks: TokenModel | None = None  # until training begins

    def attach(self, model: TokenModel, period: int, **params: int) -> None:
        """Prepares for the `fit` of a period; `params` are those of a whole training."""
        self.period = period
        before, self.model_of_callbacks = self.model_of_callbacks, model
        if before is not model:  # once; TensorBoard then begins a file
            self.each.set_model(model)
        if before is None:
            self.each.set_params({"verbose": 0, **params})
            self.each.on_train_begin()

    def on_epoch_begin(self, epoch, logs=None):
        """Begins the period."""
        self.each.on_epoch_begin(self.period)

    def on_train_batch_begin(self, batch, logs=None):
        """Passes the call on."""
        self.each.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        """Passes the call on, and notes whether a callback stops the training."""
        ends = self.model.stop_training
        self.each.on_train_batch_end(batch, logs)
        self.stopped |= self.model.stop_training and not ends

    def end_period(self, model: TokenModel, record: Mapping[str, Any]) -> None:
        """Ends an epoch after its evaluation."""
        if self.model_of_callbacks is not None:
            model.stop_training = False
            numbers = {name: it for name, it in record.items() if not isinstance(it, str)}
            numbers |= {
                name.replace("valid_", "val_", 1): number
                for name, number in numbers.items()
                if name.startswith("valid_")
            }
            self.each.on_epoch_end(self.period, numbers)
            self.stopped |= model.stop_training

    def end(self) -> None:
        """Ends the training."""
        if self.model_of_callbacks is not None:
            self.each.on_train_end()


class StepWatch(keras.callbacks.Callback):
    """Updates the progress, saves a state from time to time, and ends `fit`.

    `fit` ends at the last step, when the stopper has a reason, and with a UserError if the loss
    or a gradient is not finite or loss scaling skips every update. The progress is updated
    after every step; `vote` makes one decision (stop, save) of the votes of all workers. The
    states are in `folder`.
    """

    def __init__(
        self,
        progress: TrainingProgress,
        training: TrainingConfig,
        stopper: Stopper,
        vote: Callable[[Stopper, bool], tuple[bool, bool]],
        save: Callable[[], None],
        folder: CheckpointFolder,
    ) -> None:
        super().__init__()
        self.progress = progress
        self.training = training
        self.stopper = stopper
        self.vote = vote
        self.save = save
        self.folder = folder
        self.timed: list[float] | None = []  # seconds of steps until the estimate
        self.skipped = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Restores the running means and starts the clocks."""
        self.progress.resume_means(self.model)
        self.step = step_of(self.model.optimizer)
        self.saved = self.last = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Checks the step, counts it, votes, and stops or saves."""
        step = step_of(self.model.optimizer)
        self._require_numbers(logs["loss"], step)
        now = time.perf_counter()
        self.progress.add_step(now - self.last)
        self._estimate(step, now - self.last)
        self.last = now
        late = now - self.saved > 60 * self.training.save_minutes
        self.stopper.after_step()
        stop, save = self.vote(self.stopper, late)
        if stop or step >= self.training.steps:
            self.model.stop_training = True
        elif save:
            self.save()
            self.saved = time.perf_counter()
        self.stopper.waiting = True  # from now on there is a step to save

    def _require_numbers(self, loss: float, step: int) -> None:
        self.skipped = 0 if step > self.step else self.skipped + 1
        self.step = step
        where = f"at step {step} (batch {self.progress.data_step})"
        if not math.isfinite(loss):
            raise UserError(
                f"The loss or its gradient is not finite {where}: {loss}. "
                f"{steadier(self.model, self.folder)}"
            )
        if self.skipped >= MOST_SKIPPED:
            raise UserError(
                f"{MOST_SKIPPED} updates in a row overflowed {where}, whatever the loss scale. "
                "Start a new run in mixed_bfloat16 or float32."
            )

    def _estimate(self, step: int, seconds: float) -> None:
        """Announces the time left, once, without the first step, which takes longer."""
        if self.timed is None:
            return
        self.timed.append(seconds)
        later = self.timed[1:]
        if sum(later) >= ESTIMATE_SECONDS or len(later) == ESTIMATE_STEPS:
            left = self.training.steps - step
            expected = duration(sum(later) / len(later) * left)
            logger.info("%s steps to go, about %s", f"{left:,}", expected)
            self.timed = None


def duration(seconds: float) -> str:
    """Formats seconds as "120 days", "3 h 20 min", "12 min" or "40 s"."""
    minutes = round(seconds / 60)
    if minutes >= 100 * 60:
        return f"{round(minutes / (24 * 60)):,} days"
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"
