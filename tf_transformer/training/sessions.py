"""Sessions of training: how one ends early without losing work, several runs, the workers.

Nothing here imports TensorFlow.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import parse_json
from tf_transformer.base.system import BY_SIGNAL, ending_signals, run_child
from tf_transformer.config import Config
from tf_transformer.run import Run
from tf_transformer.run.run import what_is_unfinished

logger = logging.getLogger(__name__)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_SECONDS, _MAX_STEPS = 10_000 * 86_400, 1_000_000_000


class Interrupted(KeyboardInterrupt):
    """Raised when training stops early; everything up to that point is on disk."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status  # exit status of the process


@dataclass(frozen=True)
class Budget:
    """Limits on the time and steps of a session; 0 for no limit."""

    seconds: float = 0.0
    steps: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads "2h", "90m", "45s", "1d" or "500 steps"; UserError for anything else."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *([smhd])", text.strip())
        if match and 0 < (seconds := float(match[1]) * _SECONDS[match[2]]) <= MAX_SECONDS:
            return cls(seconds=seconds)
        match = re.fullmatch(r"(\d+) *steps?", text.strip())
        if match and 0 < float(match[1]) <= _MAX_STEPS:
            return cls(steps=int(match[1]))
        raise UserError(
            "`stop_after` must be a time such as 2h, 90m or 45s, or '500 steps', at most "
            f"10000d or {_MAX_STEPS} steps. Received: {quoted(text)}."
        )


class Stopper:
    """Handles signals in a block `with Stopper(budget) as stopper:`, and enforces a budget.

    The signals are Ctrl-C, SIGTERM and SIGHUP, which a closing terminal sends; `nohup` still
    disables SIGHUP. Outside the main thread Python cannot handle signals, and only the budget
    applies.

    While `waiting` for a step to end, a signal only sets `reason`, and the trainer saves and
    stops; otherwise there is nothing to save, and the signal raises `Interrupted` at once. A
    second signal ends the process immediately, which leaves no file half written.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.waiting = False
        self.reason = ""
        self.status = 0
        self._raised: Interrupted | None = None
        self._steps = 0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in ending_signals()}
        self.listen()
        return self

    def listen(self) -> None:
        """Installs the handlers, again once TensorFlow's multi-worker strategy took SIGTERM."""
        for number in self._before:
            signal.signal(number, self._on_signal)

    def __exit__(self, _, error: BaseException | None, __) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # While tracing, TensorFlow may have turned `Interrupted` into another exception.
        if self._raised and not isinstance(error, Interrupted | None):
            raise self._raised from None

    def after_step(self) -> bool:
        """Counts a step, which may use up the budget; returns whether to stop now."""
        self._steps += 1
        used = time.monotonic() - self._started
        if not self.reason and 0 < self.budget.steps <= self._steps:
            self.reason = f"`stop_after` ({self.budget.steps} steps)"
        if not self.reason and 0 < self.budget.seconds <= used:
            self.reason = f"`stop_after` ({self.budget.seconds:g} seconds)"
        return bool(self.reason)

    def join(self, by_signal: bool) -> None:
        """Stops because another worker does; the exit status depends on `by_signal`."""
        if not self.reason:
            self.reason = "another worker"
            self.status = 128 + signal.SIGTERM if by_signal else 0

    def check(self, where: str = "") -> None:
        """Raises `Interrupted` if there is a reason to stop."""
        if self.reason:
            raise Interrupted(f"stopped{where} by {self.reason}", self.status)

    def _on_signal(self, number: int, _frame) -> None:
        for other in self._before:
            signal.signal(other, signal.SIG_DFL)  # Python's own handler would wait for the step
        self.reason = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self.status = 128 + number
        if not self.waiting:
            self._raised = Interrupted(f"stopped by {self.reason}", self.status)
            raise self._raised
        logger.info("%s: stopping after this step; repeat to stop at once", self.reason)


DONE, FAILED = 0, 1
STOPPED = 75  # at the limit of time, with everything saved
_TRAIN = (sys.executable, "-m", "tf_transformer.cli.main", "train")


def is_finished(folder: Path, steps: int) -> bool:
    """Tells whether a folder holds a run that has been trained for `steps` to its end."""
    exists = (folder / "config.json").exists()
    return exists and not what_is_unfinished(Run.open(folder), steps)


def train_in_turn(
    configs: Mapping[Path, Config],
    arguments: Callable[[Path, Config], Sequence[str]],
    seconds: float = 0.0,
) -> int:
    """Trains the runs that are not finished, by folder, for at most `seconds` in all if not 0.

    In a single process, memory would grow with every run: one of a single layer leaves about 70
    MB, measured. Signals are forwarded, so that the run in training is saved. `arguments`
    returns those of `train` for a run, which has failed if it raises a UserError.

    Returns DONE if all are finished; FAILED if one failed, which does not stop the others;
    STOPPED at the limit; one of BY_SIGNAL if a signal arrived.
    """
    status, began = DONE, time.monotonic()
    for number, (folder, config) in enumerate(configs.items(), start=1):
        if is_finished(folder, config.training.steps):
            continue
        left = seconds - (time.monotonic() - began)
        if seconds and left <= 0:
            return STOPPED
        logger.info("\n%s (%d of %d)", folder, number, len(configs))
        limit = ["--stop-after", f"{max(1, round(left))}s"] if seconds else []
        try:
            words = [*_TRAIN, "--output", str(folder), *limit, *arguments(folder, config)]
            ended = run_child(words)
        except UserError as error:
            logger.error("error: %s", error)
            ended = FAILED
        if ended in BY_SIGNAL:
            return ended
        if ended:
            logger.error("%s failed, with status %d", folder, ended)
            status = FAILED
        elif seconds and not is_finished(folder, config.training.steps):
            return STOPPED
    return status


# --- The workers that TF_CONFIG names, and which of them this process is ---------------------


def num_workers() -> int:
    """Returns the number of workers in TF_CONFIG; 1 without it."""
    return len(_tf_config().get("cluster", {}).get("worker", [])) or 1


def is_chief() -> bool:
    """Tells whether this process writes the files: worker 0, or the only one."""
    task = _tf_config().get("task", {})
    return num_workers() == 1 or (task.get("type"), task.get("index")) == ("worker", 0)


def _tf_config() -> dict:
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = parse_json(text)
        cluster = config.get("cluster", {})
        workers = cluster.get("worker", [])
        if set(cluster) - {"worker"} or not isinstance(workers, list):
            raise ValueError("its cluster must be {'worker': [addresses]}")
        if len(workers) > 1 and config["task"]["index"] not in range(len(workers)):
            raise ValueError("its task must be {'type': 'worker', 'index': number}")
        return config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG cannot be used: {error}. Expected JSON with a cluster of workers and "
            f"this process's task. Received: {quoted(text)}."
        ) from None
