"""Signals for child processes, forks, and a silent import of TensorFlow."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, NoReturn, Self

from tf_transformer.base.errors import UserError, quoted

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = tuple(128 + number for number in _PASSED_ON)


def ending_signals() -> list[int]:
    """Lists SIGINT, SIGTERM and, unless nohup ignores it, SIGHUP of a closing terminal."""
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [n for n in _PASSED_ON if not (nohup and n == signal.SIGHUP)]


def run_child(words: Sequence[str]) -> int:
    """Runs a command; signals to this process are forwarded to it, each once.

    Returns its status, or 128 + the signal that arrived or killed it.
    """
    first, pending, process = 0, list[int](), None

    def pass_on() -> None:
        """Sends each pending signal once, even if another signal interrupts this function."""
        with suppress(IndexError):
            while process:
                process.send_signal(pending.pop(0))

    def receive(number: int, _frame: object) -> None:
        nonlocal first
        first = first or number
        pending.append(number)
        pass_on()

    before = {n: signal.signal(n, receive) for n in ending_signals()}
    try:
        # A new session, because a terminal sends Ctrl-C to its whole session: the child would
        # receive it twice.
        process = subprocess.Popen(words, start_new_session=True)
        pass_on()  # signals from before the process existed
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if first:
        return 128 + first
    return 128 - status if -status in _PASSED_ON else status


_process = 0  # the one in which a model was loaded, if there is one


class InOneProcess:
    """Computes in TensorFlow, whose threads a forked process lacks, so that it would wait."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Returns an object; from now on, `refuse_in_fork` refuses in forks of this process."""
        global _process
        _process = _process or os.getpid()
        return super().__new__(cls)

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled or copied."""
        raise UserError("A loaded model cannot be pickled or copied: load it in each process.")


def refuse_in_fork() -> None:
    """Raises UserError if this process was forked from one in which a model was loaded."""
    if _process not in (0, os.getpid()):
        raise UserError(
            "This process was forked from one in which a model was loaded: load only after the "
            "fork."
        )


@contextmanager
def stderr_held_back() -> Iterator[None]:
    """Holds back output to stderr, including that of C++, and discards it if all goes well."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:  # after Ctrl-C it is discarded as well
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


def import_tensorflow() -> None:
    """Imports TensorFlow and lists the devices, with stderr held back unless that fails.

    No environment variable silences everything that its C++ code prints on import.

    Raises UserError where it could not compute, if Keras uses another backend, or if tf.keras
    is another Keras.
    """
    refuse_in_fork()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if keras := sys.modules.get("keras"):
        backend = keras.config.backend()
    if backend != "tensorflow":
        raise UserError(
            "Set KERAS_BACKEND=tensorflow, before Keras is imported: this needs its TensorFlow "
            f"backend. Received: {quoted(backend)}."
        )
    legacy = os.environ.get("TF_USE_LEGACY_KERAS")
    if legacy in ("1", "true", "True"):
        raise UserError(
            "Unset TF_USE_LEGACY_KERAS, or set TF_USE_LEGACY_KERAS=0: this needs Keras 3. "
            f"Received: {quoted(legacy)}."
        )
    if "tensorflow" not in sys.modules and find_spec("tensorflow") is None:
        raise UserError("This needs TensorFlow, which is not installed: pip install tensorflow")
    with stderr_held_back():
        import tensorflow as tf

        tf.config.list_physical_devices("GPU")
        tf.get_logger().setLevel("ERROR")
