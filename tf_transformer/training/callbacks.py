"""What happens during `fit`: progress bar, and at evaluations score, checkpoint and logs."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tqdm import tqdm

from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.training.checkpoints import save_checkpoint

logger = logging.getLogger(__name__)


class ProgressBar(keras.callbacks.Callback):
    """One bar from evaluation to evaluation; it makes room for the evaluation's line.

    Keras's own bar is wider than most terminals and would fill the screen.

    Args:
        verbose: 1 for a moving bar, 0 for none (output that is not a terminal).
    """

    def __init__(self, verbose: int) -> None:
        super().__init__()
        self.verbose = verbose

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.perf_counter()
        self.bar = tqdm(
            total=self.params["steps"],
            unit="step",
            disable=not self.verbose,
            leave=False,
            dynamic_ncols=True,
        )

    def on_train_batch_end(self, batch, logs=None):
        rate = logs["tokens"] / (time.perf_counter() - self.started)
        self.bar.set_postfix_str(
            f"loss {logs['loss']:.3f}, perplexity {logs['perplexity']:.2f}, "
            f"{rate:,.0f} tokens/s, learning rate {learning_rate(self.model):.2e}",
            refresh=False,
        )
        self.bar.update()

    def on_epoch_end(self, epoch, logs=None):
        self.bar.close()


class StepLimit(keras.callbacks.Callback):
    """Ends training at an exact step, and at once if the loss is no longer a number."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        _require_finite(logs["loss"], step)
        if step >= self.steps:
            self.model.stop_training = True


class Evaluation(keras.callbacks.Callback):
    """At the end of each Keras epoch, that is every `training.evaluate_every` steps.

    Translates the dev set, writes a checkpoint, keeps the best, appends to metrics.jsonl and
    TensorBoard, prints one line, and stops early if `training.patience` is used up.
    """

    def __init__(self, run: Run, evaluate: Callable[[], Any]) -> None:
        super().__init__()
        self.run = run
        self.evaluate = evaluate
        self.writer = tf.summary.create_file_writer(str(run.logs))

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.perf_counter()

    def on_test_begin(self, logs=None):
        self.seconds = time.perf_counter() - self.started  # of training, without validation

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        # The loss of the last update was measured before it: this one tells of the weights.
        _require_finite(logs["val_loss"], step)
        result = self.evaluate()
        record = {
            "step": step,
            "loss": logs["loss"],
            "perplexity": logs["perplexity"],
            "accuracy": logs["accuracy"],
            "valid_loss": logs["val_loss"],
            "valid_perplexity": logs["val_perplexity"],
            "valid_accuracy": logs["val_accuracy"],
            "valid_bleu": result.score.value,
            "valid_exact": result.exact,
            "learning_rate": learning_rate(self.model),
            "tokens_per_second": logs["tokens"] / self.seconds,
            "train_seconds": self.seconds,
        }
        history = [past for past in self.run.history() if past["step"] < step]
        best = best_bleu(history)
        history.append(record)
        self.run.write_history(history)
        self._save(step, is_best=record["valid_bleu"] > best)
        self._write_tensorboard(record)
        logger.info("%s", _line(record, best))
        if patience_used_up(history, self.run.config.training.patience):
            logger.info("no better dev BLEU in training.patience evaluations: stopping early")
            self.model.stop_training = True

    def _save(self, step: int, is_best: bool) -> None:
        folder = self.run.checkpoints
        if is_best:
            save_checkpoint(folder.best, self.model)
        # Last of all: training goes on from here, so whatever is missing before is redone.
        save_checkpoint(folder.step_path(step), self.model)
        folder.rotate(self.run.config.training.keep_last)

    def _write_tensorboard(self, record: dict[str, float]) -> None:
        with self.writer.as_default(step=record["step"]):
            for name, value in record.items():
                tf.summary.scalar(name, value)
        self.writer.flush()


def best_bleu(history: list[dict[str, Any]]) -> float:
    """The highest dev BLEU of some evaluations; -1 of none, which any score beats."""
    return max((record["valid_bleu"] for record in history), default=-1.0)


def patience_used_up(history: list[dict[str, Any]], patience: int) -> bool:
    """Whether the last `patience` evaluations brought no better dev BLEU; never at 0."""
    return 0 < patience < len(history) and (
        best_bleu(history[-patience:]) <= best_bleu(history[:-patience])
    )


def learning_rate(model: keras.Model) -> float:
    """The rate of the next update."""
    return float(model.optimizer.learning_rate)


def _require_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise UserError(
            f"The loss is {loss} at step {step}. The last checkpoint is intact; try a smaller "
            "training.learning_rate_scale, a longer training.warmup_steps or "
            "training.clip_norm=1."
        )


def _line(record: dict[str, float], best: float) -> str:
    mark = "  best" if record["valid_bleu"] > best else ""
    return (
        f"step {record['step']:>6,}  loss {record['loss']:.3f}  "
        f"perplexity {record['perplexity']:.2f}  dev perplexity "
        f"{record['valid_perplexity']:.2f}  dev BLEU {record['valid_bleu']:.2f}  "
        f"{record['tokens_per_second']:,.0f} tokens/s{mark}"
    )
