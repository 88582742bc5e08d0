"""Training of an existing run in a child process, so that its memory is freed afterwards."""

import argparse
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from tf_transformer.cli.console import import_tensorflow_quietly, run_command
from tf_transformer.cli.parser import Parser, add_command, float_from, int_from
from tf_transformer.cli.process import PARENT, run_process
from tf_transformer.progress import is_watched
from tf_transformer.run import Run
from tf_transformer.training.interruption import MAX_SECONDS, Budget, Interrupted

logger = logging.getLogger(__name__)

DONE, FAILED = 0, 1
STOPPED = 75  # by its budget, with everything saved
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = tuple(128 + number for number in _PASSED_ON)


def train_in_process(
    folder: Path, devices: int | None, seconds: float, traceback: bool = False
) -> int:
    """Trains the run in `folder` to its end, or for some seconds (0: no limit).

    In a single process, memory would grow with every row: a row of one layer leaves about
    70 MB, measured. Signals are forwarded, each once, so that the run is saved.

    Returns:
        DONE; FAILED, with the error printed; STOPPED; one of BY_SIGNAL if a signal arrived,
        however the process ended; otherwise the status of the process.
    """
    words = [str(folder), "--seconds", str(seconds)]
    words += ["--devices", str(devices)] if devices is not None else []
    words += ["--traceback"] if traceback else []
    with Relay() as relay:
        return relay.run([sys.executable, "-m", __name__, *words])


class Relay:
    """Runs a command; inside `with`, signals to this process are forwarded to it.

    If this process is killed, the command ends as on SIGTERM.
    """

    def __init__(self) -> None:
        self._first = 0
        self._pending: list[int] = []
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Self:
        # Under nohup, SIGHUP stays ignored.
        nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        numbers = [n for n in _PASSED_ON if not (nohup and n == signal.SIGHUP)]
        self._before = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, words: list[str]) -> int:
        """Runs a command; returns its status, or 128 + the signal that arrived or killed it."""
        # A new session, because a terminal sends Ctrl-C to its whole session: the child would
        # receive it twice.
        environment = os.environ | {PARENT: str(os.getpid())}
        self._process = subprocess.Popen(words, start_new_session=True, env=environment)
        self._pass_on()  # signals from before the process existed
        status = self._process.wait()
        if self._first:
            return 128 + self._first
        return 128 - status if -status in _PASSED_ON else status

    def _receive(self, number: int, _frame) -> None:
        self._first = self._first or number
        self._pending.append(number)
        self._pass_on()

    def _pass_on(self) -> None:
        """Sends each pending signal once, even if another signal interrupts this method."""
        with suppress(IndexError):
            while self._process:
                self._process.send_signal(self._pending.pop(0))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the child process."""
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float_from(0, MAX_SECONDS), default=0.0)
    parser.add_argument("--devices", type=int_from(1))


def command(options: argparse.Namespace) -> int:
    """Trains the run, in the child process."""
    import_tensorflow_quietly()

    from tf_transformer.api.training import train_run, training_session

    folder, config = Path(options.folder), Run.open(options.folder).config
    try:
        with training_session(folder, Budget(seconds=options.seconds)) as stopper:
            train_run(
                config, folder, stopper=stopper, num_devices=options.devices, bars=is_watched()
            )
    except Interrupted as stop:
        logger.info("%s", stop)
        return stop.status or STOPPED
    return DONE


def _main() -> int:
    parser = Parser()
    add_command(parser, sys.modules[__name__])
    return run_command(parser.parse())


if __name__ == "__main__":
    run_process(_main)
