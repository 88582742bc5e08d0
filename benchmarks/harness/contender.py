"""A contender: a process that does a piece of work on request."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.environments import FOLDER, python_of
from tf_transformer.base.errors import UserError

_QUOTED_LINES = 12  # of output, when a contender fails


@dataclass(frozen=True)
class Spec:
    """A contender's script and its options.

    Attributes:
        name: name in tables and pictures.
        script: a file in contenders/, without ".py".
        environment: "own", or a requirements file in peers/, without ".txt".
        options: keyword arguments of the script's `setup`.
        threads: number of threads of its library; None for the benchmark's number.
    """

    name: str
    script: str
    environment: str = "own"
    options: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None


@dataclass(frozen=True)
class Answer:
    """The result of a call, with its time and memory.

    Attributes:
        result: return value of the function.
        seconds: wall-clock time.
        cpu_seconds: CPU time of all threads; above `seconds` if several compute.
        peak_bytes: peak memory since the first measured call.
        faults: pages that the system gave to the process.
    """

    result: dict[str, Any]
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    faults: int = 0


class Contender:
    """A running process of a `Spec`; a context manager that ends the process.

    Args:
        spec: the contender to start.
        threads: number of threads of its library, unless the spec sets one.
        gpu: whether it may use GPUs.
    """

    def __init__(self, spec: Spec, threads: int, gpu: bool = False) -> None:
        self.spec = spec
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python_of(spec.environment), str(_source(spec.script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(spec.threads or threads, gpu),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def call(self, name: str, /, **arguments) -> Answer:
        """Calls a function of the contender.

        Raises:
            UserError: if it fails, with the end of its output or, if it raised a UserError,
                with only that message.
        """
        request = json.dumps({"call": name, "arguments": arguments})
        try:
            print(request, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "user_error" in answer:
            raise UserError(answer["user_error"])
        if "error" in answer:
            raise UserError(f"{self.spec.name} failed at {name}:\n{answer['error']}")
        return Answer(**answer)

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().splitlines()[-_QUOTED_LINES:]
        return "\n".join([f"it ended with status {status}", *lines])


def _source(script: str) -> Path:
    return FOLDER / "contenders" / f"{script}.py"


def environment(threads: int, gpu: bool) -> dict[str, str]:
    """Returns environment variables that give every library the same threads and devices."""
    path = [str(FOLDER), os.environ.get("PYTHONPATH", "")]
    settings = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "KERAS_BACKEND": "tensorflow",
    }
    if not gpu:
        settings["CUDA_VISIBLE_DEVICES"] = ""
    return os.environ | settings


def make_file(script: str, files: Iterable[Path] = (), /, **options) -> str:
    """Returns the path of the output of a contender's `write`, which is cached.

    A separate process writes it, so that the benchmark does not keep TensorFlow in memory. If
    `write` returns a "note", it is printed.

    Args:
        script: a file in contenders/, without ".py"; the output is rebuilt if it changes.
        files: its inputs; the output is rebuilt if a size or modification time changes.
        options: options of its `setup`; the output is cached per set of options.

    Raises:
        UserError: if it fails.
    """
    path = FOLDER / ".cache" / f"{script}-{_key(script, files, options)}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with Contender(Spec(script, script, options=options), threads=os.cpu_count()) as maker:
            maker.call("setup", **options)
            try:
                made = maker.call("write", path=str(path)).result
            except UserError:
                if not path.exists():  # otherwise another benchmark has written it meanwhile
                    raise
            else:
                if "note" in made:
                    print(made["note"], file=sys.stderr, flush=True)
    return str(path)


def _key(script: str, files: Iterable[Path], options: dict[str, Any]) -> str:
    source = hashlib.sha256(_source(script).read_bytes()).hexdigest()
    stamps = [_stamp(file) for file in files]
    key = json.dumps([source, stamps, options], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def _stamp(file: Path) -> tuple[str, int, int] | None:
    """Returns size and time; None for a missing file, which the contender reports."""
    try:
        state = file.stat()
    except OSError:
        return None
    return str(file), state.st_size, state.st_mtime_ns
