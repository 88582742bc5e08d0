"""Compiles a task's model with the paper's recipe (paper 5) and runs Keras's `fit`."""

import gc
import logging
import math
import random
from pathlib import Path

import tensorflow as tf

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.errors import UserError
from tf_transformer.fast.optimizers import Adam, averaged_weights, learning_rate, step_of
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity, TokenAccuracy, TokenCount
from tf_transformer.models.schedules import TransformerSchedule
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run import Run, checkpoints
from tf_transformer.run import evaluations as evaluation
from tf_transformer.training import devices
from tf_transformer.training.callbacks import ProgressBar, StepWatch
from tf_transformer.training.interruption import Stopper
from tf_transformer.training.parts import Parts, Workload
from tf_transformer.training.progress import Progress
from tf_transformer.training.selection import BestWeights
from tf_transformer.training.task import Result, Task

logger = logging.getLogger(__name__)

# TensorFlow's error is that of a GPU, and of anything in a step that raises MemoryError.
_OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, MemoryError)


def compile_model(model: TokenModel, config: Config) -> None:
    """Loss, optimizer and metrics of the recipe, for `fit` here or in a notebook."""
    training, first = config.training, model.first_label
    model.compile(
        make_optimizer(training, config.model.d_model),
        LabelSmoothedCrossEntropy(
            training.label_smoothing, first_label=first, scatter=not training.deterministic
        ),
        metrics=[Perplexity(first_label=first), TokenAccuracy(first_label=first), TokenCount()],
        jit_compile=training.jit_compile,
        max_tokens_per_device=training.max_tokens_per_device or None,
    )


def make_optimizer(training: TrainingConfig, d_model: int) -> Adam:
    """Adam with the paper's betas, epsilon and learning rate (paper 5.3)."""
    return Adam(
        TransformerSchedule(d_model, training.warmup_steps, training.learning_rate_scale),
        beta_1=training.beta_1,
        beta_2=training.beta_2,
        epsilon=training.epsilon,
        global_clipnorm=training.clip_norm or None,
        use_ema=training.ema_decay > 0,
        ema_momentum=training.ema_decay,
        # A checkpoint's names begin with it; Keras would number the optimizers of a process.
        name="adam",
    )


class Trainer:
    """Trains a run from its last state, if there is one, and chooses the best weights.

    The run's weights come from Keras's global seed. Of several workers, all do the same, but
    only the chief measures the dev score and writes files.

    Args:
        run: where everything is kept.
        task: data, model and dev score.
        strategy: of the devices; made by `devices.make_strategy`.
        stopper: ends training early.
        verbose: 1 shows a progress bar.
    """

    def __init__(
        self,
        run: Run,
        task: Task,
        strategy: tf.distribute.Strategy | None = None,
        stopper: Stopper | None = None,
        verbose: int = 0,
    ) -> None:
        self.run = run
        self.task = task
        self.training = run.config.training
        self.folder = run.checkpoints
        self.strategy = strategy or tf.distribute.get_strategy()
        self.stopper = stopper or Stopper()
        self.verbose = verbose
        self.is_chief = devices.is_chief()
        if self.training.jit_compile and self.strategy.num_replicas_in_sync > 1:
            raise UserError("training.jit_compile needs one device: use --devices 1.")
        self.best = BestWeights(self.folder, self.training.best_by, task.dev_set)
        replicas = self.strategy.num_replicas_in_sync
        self.parts = Parts(
            Workload(
                run.config, task.shapes, replicas, devices.num_workers(), len(run.labels())
            )
        )
        self._random = random.getstate()  # Keras draws from it the seed of every weight
        self._build()
        logger.info("model: %s parameters", f"{self.model.count_params():,}")

    def _build(self) -> None:
        """The model with its first weights, at the beginning of the data."""
        with self.strategy.scope():
            self.model = self.task.build_model()
            compile_model(self.model, self.run.config)
            self.model.optimizer.build(self.model.trainable_variables)
        self.evaluate = self.task.evaluator(self.model)
        self.progress = Progress(
            steps_per_epoch=self.task.steps_per_epoch,
            replicas=self.strategy.num_replicas_in_sync,
        )

    def train(self) -> Result | None:
        """Trains to the end.

        Returns:
            The task's result with the chosen weights, `checkpoints.best`; None if not chief.

        Raises:
            Interrupted: if `stopper` said so; everything is saved.
            UserError: if training cannot go on.
        """
        self._restore()
        self.stopper.waiting = devices.num_workers() > 1  # no worker leaves by itself
        while True:
            if self._period_is_over():
                self._finish_period()
            if self._is_finished():
                return self._choose()
            if not self._fit():
                self._start_again_in_smaller_parts()
                continue
            self._save()
            self.stopper.waiting = devices.num_workers() > 1
            if self._agree(bool(self.stopper.reason), False)[0]:
                devices.part(self.strategy)
                self.stopper.check(f" at step {self._step():,}")

    def _step(self) -> int:
        return step_of(self.model.optimizer)

    def _period_is_over(self) -> bool:
        steps = self.progress.period_steps
        at_end = self._step() >= self.training.steps
        return steps >= self.training.evaluate_every or (at_end and steps > 0)

    def _is_finished(self) -> bool:
        records = evaluation.comparable(self._history(), self.task.dev_set)
        scores = [evaluation.score_of(record, self.training.best_by) for record in records]
        # Of the chief's files only the chief can be sure.
        over = self.is_chief and evaluation.patience_used_up(scores, self.training.patience)
        if over and self._step() < self.training.steps:
            logger.info("no better score in training.patience evaluations: stopping early")
        over = devices.sum_over_workers(self.strategy, over)[0] > 0
        return over or self._step() >= self.training.steps

    def _history(self) -> list[evaluation.Record]:
        """The evaluations up to the present step."""
        step = self._step()
        return [record for record in self.run.history() if record["step"] <= step]

    def _restore(self) -> None:
        path = self.folder.latest_state()
        devices.meet(self.strategy)  # all have read the same states
        if self.is_chief:
            self.folder.clear(path)
        before = None if path is None else self._read_state(path)
        size = self.parts.choose(before and before.max_tokens_per_device, self.strategy)
        self.progress.max_tokens_per_device = size
        self.model.max_tokens_per_device = size or None
        if before is not None:
            self._go_on(before)
        self.watch = StepWatch(
            self.progress, self.training, self.stopper, self._agree, self._save
        )

    def _read_state(self, path: Path) -> Progress:
        """Restores model and optimizer from a state; returns its progress."""
        stored = checkpoints.restore_state(path, self.model)
        try:
            before = Progress.from_arrays(stored)
            before.resume_means(self.model)
        except ValueError as error:
            raise UserError(
                f"The state {path} does not hold the progress of a training: {error}. Delete "
                "it to go on from the one before."
            ) from None
        return before

    def _go_on(self, before: Progress) -> None:
        here, self.progress = self.progress, before
        logger.info("going on from step %s", f"{self._step():,}")
        if self.is_chief:
            self.best.mend(self._history())
        if changes := self.progress.moved_to(here):
            changed = " and ".join(changes)
            logger.warning("%s: from here on not bit for bit as without the change", changed)

    def _fit(self) -> bool:
        """Trains to the end of the period, or a reason to stop; False if memory ran out."""
        start = self.progress.data_step
        try:
            self.model.fit(
                devices.distribute(
                    self.strategy, lambda *share: self.task.training_data(start, *share)
                ),
                steps_per_epoch=self.training.evaluate_every - self.progress.period_steps,
                shuffle=False,
                verbose=0,
                callbacks=[
                    self.watch,
                    ProgressBar(self.progress.period_steps, self.verbose),
                ],
            )
        except _OUT_OF_MEMORY:
            return False
        finally:
            # `fit` leaves its iterators in reference cycles. Collected later, in a thread that
            # makes batches, one of them could wait for that very thread.
            gc.collect()
        return True

    def _start_again_in_smaller_parts(self) -> None:
        """As if the process had been killed and started again: no step is done by halves."""
        self.parts.halve()
        del self.model, self.evaluate, self.watch
        gc.collect()  # the memory of the old model, before there is a new one
        random.setstate(self._random)
        self._build()
        self._restore()

    def _agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """All workers do the same: stop when one of them does, save when the chief does."""
        if devices.num_workers() == 1:
            return stop, save
        stops, saves, signals = devices.sum_over_workers(
            self.strategy, stop, save and self.is_chief, self.stopper.status > 0
        )
        if stops:
            self.stopper.join(by_signal=signals > 0)
        return stops > 0, saves > 0

    def _save(self) -> None:
        """Writes a state, from which training would go on; all workers come here together."""
        self.progress.keep_means(self.model)
        if not self.is_chief:
            return
        path = self.folder.state_path(self._step())
        checkpoints.save_state(path, self.model, self.progress.to_arrays())
        self.folder.rotate(self.training.keep_last)

    def _finish_period(self) -> None:
        """Evaluates, unless a session that was killed afterwards has done so."""
        step = self._step()
        means = {mean.name: float(mean.result()) for mean in self.model.running_means}
        if not any(record["step"] == step for record in self._history()):
            with averaged_weights(self.model):
                measured, result = self._measure()
                if self.is_chief:
                    self._record(self._trained(means) | measured, result)
        self.progress.start_period()

    def _measure(self) -> tuple[evaluation.Record, Result | None]:
        """Everything on the dev set: all workers find the loss, the chief the task's result."""
        logs = self.model.evaluate(
            devices.distribute(self.strategy, self.task.validation_data),
            steps=self.task.validation_steps,
            verbose=0,
            return_dict=True,
        )
        if not math.isfinite(logs["loss"]):
            raise UserError(
                f"The dev loss is {logs['loss']} at step {self._step()}. The last weights that "
                "were evaluated are intact; try a smaller training.learning_rate_scale."
            )
        result = self.evaluate() if self.is_chief else None
        metrics = {name: logs[name] for name in ("loss", "perplexity", "accuracy")}
        metrics |= result.metrics if result else {}
        return {f"valid_{name}": value for name, value in metrics.items()}, result

    def _trained(self, means: dict[str, float]) -> evaluation.Record:
        seconds = self.progress.period_seconds
        tokens = means.pop("tokens")
        return (
            {"step": self._step(), "dev_set": self.task.dev_set}
            | means
            | {
                "learning_rate": learning_rate(self.model.optimizer),
                "tokens_per_second": tokens / seconds,
                "train_seconds": seconds,
            }
        )

    def _record(self, record: evaluation.Record, result: Result) -> None:
        """Keeps the weights; the record comes last, so that what it tells of is there."""
        path = self.folder.step_path(self._step())
        checkpoints.save_weights(path, self.model)
        is_best = self.best.offer(path, record, self._history())
        self.folder.rotate(self.training.keep_last)
        self.run.write_history([*self._history(), record])
        evaluation.write_tensorboard(str(self.run.logs), record)
        line = evaluation.line(record, result.headline, is_best, self.model.unit)
        logger.info("%s", line)

    def _choose(self) -> Result | None:
        """Keeps the average of the last weights if it beats the best on the dev set."""
        average = self.folder.average
        if self.is_chief:
            used = checkpoints.average_checkpoints(
                self.folder.last(self.training.average_last), average
            )
        devices.meet(self.strategy)
        checkpoints.load_weights(average, self.model)
        measured, result = self._measure()
        if self.is_chief:
            logger.info("average of the last %d checkpoints: dev %s", used, result.headline)
            if not self.best.offer(average, measured, self._history()):
                checkpoints.load_weights(self.folder.best, self.model)
                result = self.evaluate()
        devices.part(self.strategy)
        return result
