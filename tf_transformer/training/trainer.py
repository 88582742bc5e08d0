"""Compiles a task's model with the paper's recipe (paper 5) and runs Keras's `fit`."""

import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol

import keras
import tensorflow as tf

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.files import replacing
from tf_transformer.run import Run
from tf_transformer.training.callbacks import (
    Evaluation,
    ProgressBar,
    StepLimit,
    best_bleu,
    patience_used_up,
)
from tf_transformer.training.checkpoints import (
    average_checkpoints,
    is_valid,
    load_weights,
    restore_checkpoint,
)
from tf_transformer.training.losses import LabelSmoothedCrossEntropy
from tf_transformer.training.metrics import Perplexity, TokenAccuracy, TokenCount
from tf_transformer.training.schedules import TransformerSchedule

logger = logging.getLogger(__name__)


class Task(Protocol):
    """What the trainer asks of a task."""

    def build_model(self) -> keras.Model:
        """A model whose output is float logits [B, T, V]; every layer has a fixed name."""

    def training_data(self, start_step: int) -> tf.data.Dataset:
        """Batches (inputs, labels [B, T]) from a step on, without end and always the same."""

    def validation_data(self) -> tf.data.Dataset:
        """The dev set once, in such batches."""

    def evaluator(self, model: keras.Model) -> Callable[[], Any]:
        """A function that scores the model's present weights: `.score.value` and `.exact`."""


def train(run: Run, task: Task, verbose: int) -> Any:
    """Trains, from the last checkpoint if there is one, and chooses the best weights.

    Args:
        run: where everything is kept.
        task: data, model and dev score; its weights come from Keras's global seed.
        verbose: 1 shows a progress bar.

    Returns:
        The task's dev result with the chosen weights, which are `run.checkpoints.best`.
    """
    config = run.config
    model = task.build_model()
    compile_model(model, config)
    logger.info("model: %s parameters", f"{model.count_params():,}")
    evaluate = task.evaluator(model)
    start = _restore(run, model)
    history = [record for record in run.history() if record["step"] <= start]
    used_up = patience_used_up(history, config.training.patience)
    if start < config.training.steps and not used_up:
        _fit(run, task, model, evaluate, start, verbose)
    return _choose(run, model, evaluate)


def compile_model(model: keras.Model, config: Config) -> None:
    """Loss, optimizer and metrics of the recipe, for `fit` here or in a notebook."""
    training = config.training
    model.compile(
        optimizer=make_optimizer(training, config.model.d_model),
        loss=LabelSmoothedCrossEntropy(training.label_smoothing),
        metrics=[Perplexity(), TokenAccuracy(), TokenCount()],
        jit_compile=training.jit_compile,
    )


def make_optimizer(training: TrainingConfig, d_model: int) -> keras.optimizers.Optimizer:
    """Adam with the paper's betas, epsilon and learning rate (paper 5.3)."""
    return keras.optimizers.Adam(
        TransformerSchedule(d_model, training.warmup_steps, training.learning_rate_scale),
        beta_1=training.beta_1,
        beta_2=training.beta_2,
        epsilon=training.epsilon,
        global_clipnorm=training.clip_norm or None,
        # A checkpoint's names begin with it; Keras would number the optimizers of a process.
        name="adam",
    )


def _restore(run: Run, model: keras.Model) -> int:
    """Restores the newest good checkpoint; the step it was written at, or 0."""
    found = run.checkpoints.latest_valid()
    for step in run.checkpoints.steps():
        if found is None or step > found[0]:
            logger.warning("checkpoint of step %d is damaged: not used", step)
    if found is None:
        return 0
    step, path = found
    restore_checkpoint(path, model)
    logger.info("going on from step %s", f"{step:,}")
    return step


def _fit(run: Run, task: Task, model, evaluate, start: int, verbose: int) -> None:
    training = run.config.training
    model.fit(
        task.training_data(start),
        validation_data=task.validation_data(),
        epochs=sys.maxsize,  # StepLimit ends it; updates that float16 skips do not count
        steps_per_epoch=training.evaluate_every,
        shuffle=False,
        verbose=0,
        callbacks=[
            ProgressBar(verbose),
            StepLimit(training.steps),
            Evaluation(run, evaluate),
        ],
    )


def _choose(run: Run, model: keras.Model, evaluate: Callable[[], Any]) -> Any:
    """Keeps the average of the last checkpoints if it beats the best one on the dev set."""
    folder = run.checkpoints
    paths = folder.last(run.config.training.average_last)
    average_checkpoints(paths, folder.average)
    load_weights(folder.average, model)
    averaged = evaluate()
    bleu = averaged.score.value
    logger.info("average of the last %d checkpoints: dev BLEU %.2f", len(paths), bleu)
    if bleu >= best_bleu(run.history()) or not is_valid(folder.best):
        with replacing(folder.best) as temporary:
            temporary.write_bytes(folder.average.read_bytes())
        return averaged
    load_weights(folder.best, model)
    return evaluate()
