"""Trains a model with Keras's `fit` (paper 5), from one evaluation to the next.

What it trains on, and how it scores, is a `Task`.
"""

import dataclasses
import functools
import gc
import itertools
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import ProgressBars
from tf_transformer.config import Config, TrainingConfig
from tf_transformer.fast.keras_hooks import number_anew
from tf_transformer.fast.optimizers import Adam, averaged_weights, learning_rate, step_of
from tf_transformer.fast.programs import prune_cache, structure_of, warn_of_failure
from tf_transformer.layers.block import Stack
from tf_transformer.layers.embedding import PositionalEmbedding
from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    TokenCount,
    TransformerSchedule,
)
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run, checkpoints
from tf_transformer.run.best import BestWeights, add_record, record_in
from tf_transformer.run.records import Record, line, write_tensorboard
from tf_transformer.training import devices
from tf_transformer.training.progress import (
    ProgressBar,
    StepWatch,
    TrainingProgress,
    UserCallbacks,
    duration,
)
from tf_transformer.training.sessions import Stopper

logger = logging.getLogger(__name__)

# TensorFlow raises its own error on a GPU, and in place of a MemoryError inside a step.
_OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, MemoryError)

# Positions that a CPU computes at once by default: the same bits on every machine.
CPU_POSITIONS = 4_096


@dataclass(frozen=True)
class Result:
    """Scores of a model on the dev set."""

    metrics: dict[str, float]  # for metrics.jsonl; `training.best_by` is one of the names
    headline: str  # the main score for the console, such as "BLEU 39.97"
    example: str  # input to try the trained model with; "" if there is none
    lines: list[str]  # samples and scores, for the end of training


class Task(Protocol):
    """Data, model and dev score of a run."""

    steps_per_epoch: int  # batches of one pass over the training data
    validation_steps: int  # batches of the dev set
    shapes: Sequence[tuple[int, int]]  # (rows, length) of all batches of the training data

    @property
    def dev_set(self) -> str:
        """Identity of the dev set; scores on different ones are not comparable."""

    def build_model(self) -> TokenModel:
        """Builds a model with float logits [B, T, V] and fixed layer names."""

    def training_data(
        self, start_step: int, replicas: Sequence[int], num_replicas: int
    ) -> tf.data.Dataset:
        """Returns endless batches (inputs, labels [B, T]) from `start_step` on.

        They are a pure function of seed and step, with all that is drawn at random, so a state
        needs only the number of the next one. Each global batch is cut into `num_replicas`
        shares; the dataset yields those of `replicas` one after another.
        """

    def validation_data(self, replicas: Sequence[int], num_replicas: int) -> tf.data.Dataset:
        """Returns one pass over the dev set, in batches like those of `training_data`."""

    def evaluator(self, model: TokenModel) -> Callable[[], Result]:
        """Returns a function that scores the model's current weights."""


class Trainer:
    """Trains a run from its last state, if it has one, and chooses the best weights.

    The initial weights come from Keras's global seed. All workers do the same, but only the
    chief measures the dev score and writes files. By default this process trains alone, and
    nothing stops it early; 1 as `verbose` shows a progress bar.
    """

    def __init__(
        self,
        run: Run,
        task: Task,
        workers: devices.Workers | None = None,
        stopper: Stopper | None = None,
        verbose: int = 0,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        self.run, self.config = run, run.config
        self.task = task
        self.training = run.config.training
        self.folder = run.checkpoints
        self.workers = workers or devices.Workers()
        self.strategy = self.workers.strategy
        self.stopper = stopper or Stopper()
        self.verbose = verbose
        self.callbacks = UserCallbacks(callbacks)
        self.replicas = replicas = self.strategy.num_replicas_in_sync
        self.best = BestWeights(self.folder, self.training.best_by, task.dev_set)
        # Positions of a device's share of the largest batch, and of parts if memory ran out.
        self.largest_share = max(-(-rows // replicas) * length for rows, length in task.shapes)
        self.halved_part: int | None = None
        self._random = random.getstate()  # Keras draws the seeds of the initial weights from it
        self._build()
        logger.info("model: %s", describe_parameters(self.model))
        files = self.training.keep_last + bool(self.training.init_from)  # one of the start
        logger.info("disk: %s", checkpoints.describe_sizes(self.model, files))

    def _build(self) -> None:
        """Builds the model with its initial weights; progress begins at the first batch."""
        with self.strategy.scope():
            self.model = self.task.build_model()
            compile_model(self.model, self.config)
            self.model.optimizer.build(self.model.trainable_variables)
        self.evaluate = self.task.evaluator(self.model)
        epoch = self.task.steps_per_epoch
        self.progress = TrainingProgress(
            steps_per_epoch=epoch,
            replicas=self.replicas,
            compiled=2 * (self.model.programs is not None),
        )

    def train(self) -> Result | None:
        """Trains to the end; returns the result with the chosen weights, None if not chief.

        Raises Interrupted if `stopper` ended the training, with everything saved, and UserError
        if it cannot continue.
        """
        self._restore()
        while True:  # a period is saved before it is evaluated
            self.workers.stop_together(self.stopper, f" at step {self._step():,}")
            if self._period_is_over():
                self._finish_period()
            if self._is_finished():
                return self._choose()
            if self._fit():
                self._save()
            else:
                self._halve_parts()
                self._build_anew()
                self._restore()

    def _step(self) -> int:
        return step_of(self.model.optimizer)

    def _is_at_end(self) -> bool:
        return self._step() >= self.training.steps

    def _period_is_over(self) -> bool:
        steps = self.progress.period_steps
        last = self._is_at_end() or self.callbacks.stopped
        return steps >= self.training.evaluate_every or (last and steps > 0)

    def _is_finished(self) -> bool:
        over = self.best.patience_used_up(self._history(), self.training.patience)
        over = self.workers.from_chief(over) > 0  # other workers may see its files late
        if over and not self._is_at_end():
            logger.info("no better score in training.patience evaluations: stopping early")
        if self.callbacks.stopped and not self._is_at_end():
            logger.info("a callback ends the training")
        return over or self.callbacks.stopped or self._is_at_end()

    def _history(self) -> list[Record]:
        """Returns the records of evaluations up to the current step."""
        return [record for record in self.run.history() if record["step"] <= self._step()]

    # --- Where training begins: in the last state, or before the first step ---------------

    def _restore(self) -> None:
        """Goes on from the newest state, after `kill -9` as after Ctrl-C, or begins.

        A state has the weights, the optimizer, the seeds of dropout, and the position in the
        data. A killed session has left each file whole, old or new: all are written and flushed
        under another name, then renamed. Programs of XLA are compiled before anything is
        loaded, so where that fails, a model that needs less takes the place of this one.
        """
        state = self._newest_state()
        self._set_part_size(state)
        while not self._compile(state):
            self._build_anew()
            self._set_part_size(state)
        if state is None:
            self._measure_start()
        else:
            self._resume(TrainingProgress.restore(state, self.model))
        self.watch = StepWatch(
            self.progress, self.training, self.stopper, self.workers.vote, self._save,
            self.folder,
        )  # fmt: skip

    def _newest_state(self) -> Path | None:
        """Returns the newest state that is whole; deletes what is damaged or half written."""
        path = self.folder.latest_state()
        self.workers.barrier()  # all see the same states before any is deleted
        self.workers.on_chief(self.folder.clear, path)
        return path

    def _set_part_size(self, state: Path | None) -> None:
        """Sets the positions computed at once: as halved, set, recorded or by default."""
        recorded = checkpoints.read_progress(state) if state else {}
        default = 0 if tf.config.get_visible_devices("GPU") else CPU_POSITIONS
        recorded_size = recorded.get("max_tokens_per_device")
        sizes = (self.halved_part, self.training.max_tokens_per_device, recorded_size, default)
        size = int(next(size for size in sizes if size is not None))
        self.progress.max_tokens_per_device = size  # 0 for a whole share of a batch
        self.model.max_tokens_per_device = size if 0 < size < self.largest_share else None
        logger.info("memory: %s", describe_memory(self.model, self.largest_share))

    def _compile(self, state: Path | None) -> bool:
        """Compiles XLA's programs, if any; returns False if the model must be built anew."""
        is_over = state is not None and state >= self.folder.state_path(self.training.steps)
        if is_over or not self.model.programs:
            return True
        try:
            if self._compile_programs():
                return True
            self._halve_parts()
        except tf.errors.OpError as error:
            self.stopper.check(" while XLA compiled")
            self._give_up_xla(error)
        return False

    def _compile_programs(self) -> bool:
        """Compiles all shapes before the first step; returns False if memory ran out.

        They are trained on as batches of padding. Gradients of zero leave a new model as it is,
        but for what counts steps: that is put back.
        """
        number_anew()
        most = self.model.max_tokens_per_device
        shapes = sorted(part_shapes(self.task.shapes, self.replicas, most))
        number = describe_programs(self.model, len(shapes))
        local = self.replicas // self.workers.number
        logger.info("XLA: compiling %s%s", number, f" on each of {local} devices" * (local > 1))
        variables = [*self.model.optimizer.variables, *self.model.non_trainable_variables]
        counts = [v for v in variables if math.prod(v.shape) <= 2]  # and seeds
        before = [v.numpy() for v in counts]
        spec, start = self.task.training_data(0, [0], 1).element_spec, time.perf_counter()
        with ProgressBars(len(shapes), bool(self.verbose)) as bars:

            def after_shape(batch, logs) -> None:
                bars("compiling", batch + 1)
                self.model.stop_training = bool(self.stopper.reason)

            shown = keras.callbacks.LambdaCallback(on_train_batch_end=after_shape)
            data = functools.partial(padding, spec, shapes)
            self.stopper.waiting = True  # a signal within TensorFlow's code could get lost
            compiled = self._fit_steps(data, len(shapes), [shown])
        self.stopper.waiting = False
        self.stopper.check(" while XLA compiled")
        if not compiled:
            return False
        for variable, value in zip(counts, before, strict=True):
            variable.assign(value)
        seconds, flags = time.perf_counter() - start, os.environ.get("TF_XLA_FLAGS")
        flags = flags or "unset, so the next session compiles again"
        logger.info("XLA: compiled in %s; TF_XLA_FLAGS is %s", duration(seconds), flags)
        prune_cache(flags)
        return True

    def _halve_parts(self) -> None:
        """Makes the next model compute in smaller parts; UserError if there are none."""
        largest = self.largest_share
        half = min(self.progress.max_tokens_per_device or largest, largest) // 2
        if half < max(length for _, length in self.task.shapes):
            raise UserError(
                "Out of memory, and no part is smaller than one sentence: set "
                "training.recompute=true, or choose a smaller data.max_length or model."
            )
        if self.workers.number > 1:  # the others wait in the middle of the step
            raise UserError(
                "Out of memory: restart all workers, to resume from the last state, with "
                f"`training.max_tokens_per_device={half}`."
            )
        logger.warning(
            "out of memory: back to the last state, on in parts of %s positions", f"{half:,}"
        )
        self.halved_part = half

    def _give_up_xla(self, error: tf.errors.OpError) -> None:
        """Makes the next model compute without XLA, which cannot compile here."""
        if self.workers.number > 1:  # the others wait in the middle of a step
            raise error
        warn_of_failure("training", error)
        self.config = dataclasses.replace(
            self.config, training=dataclasses.replace(self.training, jit_compile=False)
        )

    def _build_anew(self) -> None:
        """Builds the model again, as a new process would: no step is half applied."""
        del self.model, self.evaluate
        self.__dict__.pop("watch", None)  # it knows the model; compiling precedes it
        gc.collect()  # frees the old model before the new one is built
        random.setstate(self._random)
        self._build()

    def _resume(self, saved: TrainingProgress) -> None:
        """Goes on where a state ended, with the batches and devices of this session."""
        changes = " and ".join(saved.moved_to(self.progress))
        self.progress = saved
        if self.halved_part:  # in this session, which has said so
            return
        line = "resuming from step %s"
        if self._step() >= self.training.steps:
            line = "finished at step %s; to train further, set a larger `training.steps`"
        logger.info(line, f"{self._step():,}")
        self.workers.on_chief(self._mend)
        if changes:
            logger.warning("%s: from here on, not bit for bit as in an unchanged run", changes)

    def _mend(self) -> None:
        """Repairs metrics.jsonl and best.npz by the checkpoints of steps, which have checksums.

        A score in metrics.jsonl that differs from that in the step's checkpoint is replaced by
        it. If best.npz is damaged, gone or worse than a step kept, that step is copied to it.
        """
        history = self.run.history()
        if (corrected := self.best.corrected(history)) != history:
            self.run.write_history(corrected)
        self.best.mend(self._history())

    def _measure_start(self) -> None:
        """Evaluates weights of another run before training: they too can be the best."""
        path = self.folder.step_path(0)
        self.workers.on_chief(path.unlink, True)  # of other settings
        if not self.workers.from_chief(self.run.begins_complete):
            return
        measured, result = self._measure()
        if result is not None:
            checkpoints.save_weights(path, self.model)
            about = {"step": 0, "dev_set": self.task.dev_set, "weights": "initial weights"}
            add_record(path, measured | about)
            text = "step      0  dev perplexity %.2f  dev %s"
            logger.info(text, measured["valid_perplexity"], result.headline)

    # --- Training and evaluating ------------------------------------------------------------

    def _fit(self) -> bool:
        """Trains until the period ends or the workers stop; returns False if memory ran out."""
        start, done = self.progress.data_step, self.progress.period_steps
        every = self.training.evaluate_every
        self.callbacks.attach(
            self.model,
            self._step() // every,
            epochs=-(-self.training.steps // every),
            steps=every,
        )
        # The task's batches begin at the number `start`: `BatchPlan.batch` computes each.
        data = functools.partial(self.task.training_data, start)
        shown = ProgressBar(done, self.verbose)
        return self._fit_steps(data, every - done, [self.watch, shown, self.callbacks])

    def _fit_steps(self, data: devices.ShareOfData, steps: int, callbacks: list) -> bool:
        """Calls `fit` once; returns False if memory ran out."""
        try:
            self.model.fit(
                devices.distribute(self.strategy, data),
                steps_per_epoch=steps,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        except _OUT_OF_MEMORY:
            return False
        finally:
            # `fit` leaves its iterators in reference cycles. If one were collected later, in a
            # thread that makes batches, it could wait for that very thread.
            gc.collect()
        return True

    def _save(self) -> None:
        """Writes a state to resume from, whole or not at all; all workers must call it."""
        self.progress.keep_means(self.model)
        self.workers.on_chief(self._write_state)

    def _write_state(self) -> None:
        path = self.folder.state_path(self._step())
        checkpoints.save_state(path, self.model, self.progress.to_arrays())
        self.folder.rotate(self.training.keep_last)

    def _finish_period(self) -> None:
        """Evaluates, unless an earlier session did so and was killed right afterwards."""
        if not any(record["step"] == self._step() for record in self._history()):
            trained = self._trained()  # before the evaluation, which resets the means
            with averaged_weights(self.model):
                measured, result = self._measure()
                if result is not None:
                    self._record(trained | measured, result)
        self.progress.start_period()

    def _measure(self) -> tuple[Record, Result | None]:
        """Measures the dev set: all workers the loss, the chief the task's result as well."""
        logs = self.model.evaluate(
            devices.distribute(self.strategy, self.task.validation_data),
            steps=self.task.validation_steps,
            verbose=0,
            return_dict=True,
        )
        if not math.isfinite(logs["loss"]):
            advice = "Weights evaluated before are intact; begin again with a smaller "
            advice += "training.learning_rate_scale."
            if not self._step():
                advice = f"No update is made yet: in {self.training.precision} the weights of "
                advice += f"{self.training.init_from} are unfit for this text."
            raise UserError(f"The dev loss is {logs['loss']} at step {self._step()}. {advice}")
        result = self.workers.on_chief(self.evaluate)
        metrics = {name: logs[name] for name in ("loss", "perplexity", "accuracy")}
        metrics |= result.metrics if result else {}
        return {f"valid_{name}": value for name, value in metrics.items()}, result

    def _trained(self) -> Record:
        """Returns the training figures of a record, from the running means of the period."""
        means = {mean.name: float(mean.result()) for mean in self.model.running_means}
        tokens, seconds = means.pop("tokens"), self.progress.period_seconds
        return {
            "step": self._step(),
            "dev_set": self.task.dev_set,
            **means,
            "learning_rate": learning_rate(self.model.optimizer),
            "tokens_per_second": tokens / seconds,
            "train_seconds": seconds,
        }

    def _record(self, record: Record, result: Result) -> None:
        """Saves the weights, then their record, so that no record names missing weights."""
        path = self.folder.step_path(self._step())
        names = (f"valid_{self.training.best_by}", "valid_perplexity")
        checkpoints.save_weights(path, self.model, **{name: record[name] for name in names})
        is_best = self.best.offer(path, record, self._history())
        self.folder.rotate(self.training.keep_last)
        self.run.write_history([*self._history(), record])
        write_tensorboard(str(self.run.logs), record)
        logger.info("%s", line(record, result.headline, is_best))
        self.callbacks.end_period(self.model, record)

    def _choose(self) -> Result | None:
        """Keeps the average of the last weights if it beats the best on the dev set."""
        self.callbacks.end()
        average, last = self.folder.average, self.folder.last(self.training.average_last)
        used = self.workers.on_chief(checkpoints.average_checkpoints, last, average)
        self.workers.barrier()
        checkpoints.load_weights(average, self.model)
        measured, result = self._measure()
        if used and result:
            measured["weights"] = f"average of the last {len(used)} checkpoints"
            logger.info("%s: dev %s", measured["weights"], result.headline)
            add_record(average, measured | {"step": self._step()})
            if not self.best.offer(average, measured, self._history()):
                if record_in(self.folder.best).get("step") == 0:
                    logger.warning("training gained nothing: the initial weights are best")
                checkpoints.load_weights(self.folder.best, self.model)
                result = self.evaluate()
        self.workers.final_barrier()
        return result


# --- The recipe (paper 5.3, 5.4) ----------------------------------------------------------


def compile_model(model: TokenModel, config: Config) -> None:
    """Compiles a model with loss, optimizer and metrics, for `fit` here or in a notebook."""
    training = config.training
    by_layer = training.jit_compile
    for layer in model.layers:
        if isinstance(layer, Stack):
            layer.recompute = training.recompute
    model.compile(
        make_optimizer(training, config.model.d_model),
        LabelSmoothedCrossEntropy(
            training.label_smoothing,
            scatter=not (training.deterministic or by_layer),
        ),
        metrics=[Perplexity(), TokenAccuracy(), TokenCount()],
        jit_compile=by_layer,
        max_tokens_per_device=training.max_tokens_per_device or None,
        chunked_loss=isinstance(model, Transformer),
    )


def make_optimizer(training: TrainingConfig, d_model: int) -> Adam:
    """Returns Adam with the configured betas and epsilon, and the schedule of paper 5.3."""
    return Adam(
        TransformerSchedule(
            d_model,
            training.warmup_steps,
            training.learning_rate_scale,
            training.schedule_start,
        ),
        beta_1=training.beta_1,
        beta_2=training.beta_2,
        epsilon=training.epsilon,
        global_clipnorm=training.clip_norm or None,
        use_ema=training.ema_decay > 0,
        ema_momentum=training.ema_decay,
        # A prefix of names in checkpoints; Keras would number the optimizers of a process.
        name="adam",
    )


def describe_parameters(model: TokenModel) -> str:
    """Describes the number of parameters, and of trained ones if some are frozen."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    frozen = sum(math.prod(weight.shape) for weight in model.non_trainable_weights)
    line = f"{trained + frozen:,} parameters"
    return f"{line}, {trained:,} of them trained" if frozen else line


def describe_memory(model: TokenModel, share: int) -> str:
    """Describes the memory of a step; `share` positions are a device's share of a batch."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    # The trained ones also have gradients, their sums, Adam's moments, and copies of these.
    size = (4 * model.count_params() + 28 * trained) / 1e6
    most = model.max_tokens_per_device or share
    return f"some {size:,.0f} MB for weights and Adam, plus the layers of {most:,} positions"


def describe_programs(model: TokenModel, shapes: int) -> str:
    """Describes how many XLA programs batches of so many shapes need."""
    kinds = sum(isinstance(layer, PositionalEmbedding) for layer in model.layers)
    for stack in (layer for layer in model.layers if isinstance(layer, Stack)):
        layers = {tuple(structure_of(layer).values()) for layer in stack.layers}
        kinds += len(layers) + bool(stack.options.dropout) + bool(stack.norm)
    number = 2 * kinds * shapes + isinstance(model, Transformer)  # forward and backward; loss
    return f"{number} programs for {shapes} shapes"


def padding(
    spec: Any, shapes: Sequence[tuple[int, int]], replicas: Sequence[int], num_replicas: int
) -> tf.data.Dataset:
    """Returns endless batches of zeros with the spec of others: each shape for each replica."""

    def zeros(rows: int, length: int, each: tf.TensorSpec) -> np.ndarray:
        shape = [rows, length][: each.shape.rank] + each.shape[2:].as_list()
        return np.zeros(shape, each.dtype.as_numpy_dtype)

    def batches() -> Iterator[Any]:
        for shape, _ in itertools.product(shapes, replicas):
            yield tf.nest.map_structure(functools.partial(zeros, *shape), spec)

    return tf.data.Dataset.from_generator(batches, output_signature=spec).repeat()


def part_shapes(
    shapes: Sequence[tuple[int, int]], replicas: int, most: int | None
) -> set[tuple[int, int]]:
    """Returns the shapes (rows, length) that a device computes of batches of these shapes.

    `most` is the largest number of positions of a part, None for a share at once.
    """
    found = set()
    for rows, length in shapes:
        share = -(-rows // replicas)
        parts = -(-share // max(most // length, 1)) if most else 1
        found.add((-(-share // parts), length))
    return found
