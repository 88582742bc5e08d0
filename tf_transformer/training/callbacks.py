"""Callbacks for `fit`: a progress bar, and one that counts steps, saves states and may stop."""

import logging
import math
import shutil
import time
from collections.abc import Callable

import keras
from tqdm import tqdm

from tf_transformer.config import TrainingConfig
from tf_transformer.errors import UserError
from tf_transformer.fast.optimizers import step_of
from tf_transformer.training.interruption import Stopper
from tf_transformer.training.progress import Progress

logger = logging.getLogger(__name__)

# Consecutive skipped updates before giving up; each halves the loss scale, so 200 means that
# no scale works.
MOST_SKIPPED = 200
STEPS_BEFORE_ESTIMATE = 50  # the remaining time is announced after so many steps

# Width of the bar with its counts and the remaining time: `250/250 |####| 12:34 left, `.
COLUMNS_OF_BAR = 27


class ProgressBar(keras.callbacks.Callback):
    """A bar from one evaluation to the next; it vanishes before the evaluation's line.

    Keras's own bar is wider than most terminals and would fill the screen.

    Args:
        done: steps of this period done in earlier sessions.
        verbose: 1 for a moving bar, 0 for none (output that is not a terminal).
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
        """Shows as many of the running means and the rate as fit the terminal."""
        if not self.verbose:
            return
        figures = [f"loss {logs['loss']:.3f}", f"perplexity {logs['perplexity']:.2f}"]
        figures += self._rate(logs)
        room = shutil.get_terminal_size().columns - COLUMNS_OF_BAR
        while figures and len(", ".join(figures)) > room:
            figures.pop()
        self.bar.set_postfix_str(", ".join(figures), refresh=False)
        self.bar.update()

    def _rate(self, logs) -> list[str]:
        """Returns tokens (or labels) per second since the first step, which compiles."""
        # Keras logs the mean over replicas.
        tokens = logs["tokens"] * self.model.distribute_strategy.num_replicas_in_sync
        now = time.perf_counter()
        if self.bar.n == self.done:
            self.first = now, tokens
            return []
        rate = (tokens - self.first[1]) / (now - self.first[0])
        return [f"{rate:,.0f} {self.model.unit}/s"]

    def on_epoch_end(self, epoch, logs=None):
        """Closes the bar."""
        self.bar.close()


class StepWatch(keras.callbacks.Callback):
    """Updates the progress, saves a state from time to time, and ends `fit`.

    `fit` ends at the last step, when the stopper has a reason, and with a UserError if the loss
    or a gradient is not finite or loss scaling skips every update.

    Args:
        progress: progress of the run; updated after every step.
        training: settings; `steps` and `save_minutes` are used.
        stopper: counts the steps and holds a reason to stop.
        vote: combines this worker's votes into one decision (stop, save) for all workers.
        save: writes a state.
    """

    def __init__(
        self,
        progress: Progress,
        training: TrainingConfig,
        stopper: Stopper,
        vote: Callable[[Stopper, bool], tuple[bool, bool]],
        save: Callable[[], None],
    ) -> None:
        super().__init__()
        self.progress = progress
        self.training = training
        self.stopper = stopper
        self.vote = vote
        self.save = save
        self.steps_now = 0
        self.seconds_now = 0.0
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
                f"The loss or its gradient is not finite {where}: {loss}. The last state is "
                "intact: resume from it with a smaller training.learning_rate_scale, a longer "
                "training.warmup_steps or training.clip_norm=1."
            )
        if self.skipped >= MOST_SKIPPED:
            raise UserError(
                f"{MOST_SKIPPED} updates in a row overflowed {where}, whatever the loss scale. "
                "Start a new run in mixed_bfloat16 or float32."
            )

    def _estimate(self, step: int, seconds: float) -> None:
        """Announces the time left, from all steps but the first, which also compiles."""
        self.steps_now += 1
        self.seconds_now += seconds if self.steps_now > 1 else 0
        if self.steps_now == STEPS_BEFORE_ESTIMATE:
            left = self.training.steps - step
            mean = self.seconds_now / (self.steps_now - 1)
            logger.info("%s steps to go, about %s", f"{left:,}", duration(mean * left))


def duration(seconds: float) -> str:
    """Formats seconds as "120 days", "3 h 20 min", "12 min" or "40 s"."""
    minutes = round(seconds / 60)
    if minutes >= 100 * 60:
        return f"{round(minutes / (24 * 60)):,} days"
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"
