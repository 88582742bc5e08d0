"""The contender's side of the protocol: a line of JSON per request and per answer.

Uses only the standard library, because it also runs in the peers' virtual environments.
"""

import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def serve(setup: Callable[..., dict[str, Callable[..., dict]]], *packages: str) -> None:
    """Answers requests until stdin ends.

    The first request is for `setup`, with the contender's options as keyword arguments. It
    returns functions that can then be called by name. So can "versions", which returns those of
    Python and `packages`. A function named "memory" replaces the system's measurement of peak
    memory, and of CPU time and faults where it returns these too.

    An answer has the function's `result`, its wall-clock `seconds`, the `cpu_seconds` of all
    threads, the `faults` of pages and the `peak_bytes` since the last call of `forget_peak`.
    After a failure it has an `error` or, for a UserError of the package, its message as
    `user_error`.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that libraries' output does not mix with the answers
    functions: dict[str, Callable[..., dict]] = {
        "forget_peak": _forget_peak,
        "versions": lambda: {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in packages},
        },
    }

    def set_up(**options) -> dict:
        functions.update(setup(**options))
        return {}

    functions["setup"] = set_up
    for line in sys.stdin:
        answer = _answer(functions, json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)


def _answer(functions: dict[str, Callable[..., dict]], request: dict) -> dict:
    try:
        begun, (used, faults) = time.perf_counter(), _used()
        result = functions[request["call"]](**request["arguments"])
        (used_now, faults_now), seconds = _used(), time.perf_counter() - begun
        memory = functions.get("memory", _peak_memory)()
    except Exception as error:
        if _is_user_error(error):
            return {"user_error": str(error)}
        return {"error": traceback.format_exc()}
    own = {"cpu_seconds": used_now - used, "faults": faults_now - faults}
    return {"result": result, "seconds": seconds} | own | memory


def _is_user_error(error: Exception) -> bool:
    """Tells whether this is the package's UserError; peers' environments lack the package."""
    errors = sys.modules.get("tf_transformer.base.errors")
    return errors is not None and isinstance(error, errors.UserError)


def _used() -> tuple[float, int]:
    """Returns the processor time of this process and its page faults without input."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt


def _forget_peak() -> dict:
    """Resets the peak, if the system supports it; otherwise it covers the whole process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return {}


def resident_bytes() -> int:
    """Returns the resident memory of this process; 0 if the system does not report it."""
    return status_bytes("VmRSS:") or 0


def status_bytes(name: str, process: int | str = "self") -> int | None:
    """Returns a size from the status of a process, such as "VmRSS:"; None if it is not told."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return None


def _peak_memory() -> dict[str, int]:
    """Returns the peak resident memory, in bytes."""
    peak = status_bytes("VmHWM:")
    if peak is not None:
        return {"peak_bytes": peak}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
