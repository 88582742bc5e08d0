"""Several runs trained one after the other, each by `tf-transformer train` in a process."""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tf_transformer.child import BY_SIGNAL, Relay
from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.run import what_is_unfinished

logger = logging.getLogger(__name__)

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
    """Trains the runs that are not finished.

    In a single process, memory would grow with every run: one of a single layer leaves about
    70 MB, measured. Signals are forwarded, so that the run in training is saved.

    Args:
        configs: the configuration of each run, by its folder.
        arguments: returns the arguments of `train` for a run. If it raises a UserError, that
            run has failed.
        seconds: limit for all of them together; 0 for none.

    Returns:
        DONE if all are finished; FAILED if one failed, which does not stop the others; STOPPED
        at the limit; one of BY_SIGNAL if a signal arrived.
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
            with Relay() as relay:
                ended = relay.run(words)
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
