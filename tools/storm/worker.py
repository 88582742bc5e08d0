"""Runs commands in sequence in one process, which imports TensorFlow only once."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tools.storm.lab import Done

COMMANDS = 40  # per process, to bound its memory


class Worker:
    """A process that runs commands, replaced after COMMANDS of them and after one that hangs.

    Args:
        folder: the folder for the commands' output.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: multiprocessing.Process | None = None
        self._left = 0

    def run(self, arguments: Sequence[str], folder: Path, stdin: Path, seconds: float) -> Done:
        """Runs `tf-transformer ARGUMENTS` in `folder` with the file `stdin` as its input."""
        if not self._left:
            self.close()
            self._start()
        self._left -= 1
        outputs = [self.folder / name for name in ("stdout", "stderr")]
        status = None
        self._pipe.send((list(arguments), folder, stdin, outputs))
        try:
            if self._pipe.poll(seconds):
                status = self._pipe.recv()
        except EOFError:  # the process is gone
            status = -1
        if status in (None, -1):
            self.close()
        texts = [path.read_text(errors="replace") if path.exists() else "" for path in outputs]
        return Done(status, *texts)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._left = COMMANDS

    def close(self) -> None:
        """Ends the process at once."""
        if self._process:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process, self._left = None, 0


def _serve(pipe: Connection) -> None:
    """Runs the commands that it receives, and returns their exit status."""
    from tf_transformer.cli.main import main

    while True:
        try:
            arguments, folder, stdin, outputs = pipe.recv()
        except EOFError:
            return
        os.chdir(folder)
        for number, path in enumerate((stdin, *outputs)):
            mode = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(path, mode, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        try:
            with open(0, encoding="utf-8", closefd=False) as sys.stdin:
                status = main(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.send(status)
