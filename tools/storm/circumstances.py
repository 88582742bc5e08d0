"""Full and read-only disks, vanished folders, closed streams: one error line, nothing lost.

Each try runs a command on a copy of a trained run, under one circumstance. It must end by
itself, with success or with one line that begins with "error: ", and leave no half-written
file. Afterwards it must be possible to resume the run.
"""

import json
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tf_transformer.run.checkpoints import is_valid
from tools.storm.lab import ROOT, Done, Lab, Outcome
from tools.storm.stops import STEPS, small_training

SECONDS = 300
_COMPLAINTS = (
    "Traceback (most recent call last)", "error: unexpected ", "Exception ignored",
    "--- Logging error",
)  # fmt: skip


@dataclass(frozen=True)
class Circumstance:
    """A circumstance that a command must survive.

    Attributes:
        popen: further arguments of `subprocess.Popen`.
        around: function from the run's folder to a context manager around the command.
        speaks: whether the command's stderr can be read.
    """

    popen: dict[str, Any] = field(default_factory=dict)
    around: Callable[[Path], AbstractContextManager[None]] = nullcontext
    speaks: bool = True


def tries(lab: Lab) -> Iterator[Outcome]:
    """Tries a command under a circumstance, endlessly."""
    training = small_training(lab.folder)
    made = lab.run(["train", *training, "--output", "trained"], seconds=SECONDS)
    if made.status:
        yield Outcome("undisturbed training", False, made.stderr)
        return
    while True:
        command = lab.random.choice([*COMMANDS, "train"])
        yield attempt(lab, lab.folder / "trained", training, command)


def attempt(
    lab: Lab, trained: Path, training: list[str], command: str, name: str | None = None
) -> Outcome:
    """Runs one command on a copy of the run `trained`, under a circumstance (default: any).

    `training` holds the arguments with which the run was trained.
    """
    circumstances = _circumstances(lab)
    name = name or lab.random.choice(list(circumstances))
    circumstance = circumstances[name]
    run, exported = lab.folder / "run", lab.folder / "exported"
    for folder in (run, exported):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(trained, run)
    more = ["--output", "run", "--set", f"training.steps={STEPS + 12}"]
    arguments = COMMANDS.get(command) or ["train", *training, *more]
    text = "The red house is big.\nGrün ist schön.\n".encode()
    with circumstance.around(run):
        done = lab.run(arguments, text, SECONDS, **circumstance.popen)
    wrong = what_is_wrong(done, circumstance.speaks) or damage(run, exported)
    if not wrong and command == "train" and run.exists():
        again = lab.run(["train", *training, *more], seconds=SECONDS)
        wrong = again.status and f"did not resume: {again.stderr}"
    detail = f"{command}: {wrong}; status {done.status}, printed:\n{done.stdout}\n{done.stderr}"
    return Outcome(f"{command}, {name}", not wrong, detail)


COMMANDS = {
    "translate": ["translate", "run"],
    "evaluate": ["evaluate", "run", "--source", "dev.en", "--reference", "dev.de"],
    "score": ["score", "run", "--source", "dev.en", "--target", "dev.de"],
    "export": ["export", "run", "--output", "exported"],
    "average": ["average", "run", "--last", "2"],
    "card": ["card", "run"],
    "curves": ["curves", "run", "--output", "curves.png"],
}


def what_is_wrong(done: Done, speaks: bool = True) -> str:
    """Describes the fault in the way a command ended; empty if there is none."""
    if done.status is None:
        return "did not end"
    for complaint in _COMPLAINTS:
        if complaint in done.stdout + done.stderr:
            return complaint
    if done.status == 0 or not speaks:
        return "" if done.status in (0, 1) else "wrong status"
    if done.status != 1 or len(done.errors) != 1:
        return f"{len(done.errors)} lines of error"
    return ""


def damage(run: Path, exported: Path) -> str:
    """Names the first half-written file of a run or an export; empty if there is none."""
    for path in (run / "checkpoints").glob("[!.]*.npz"):
        if not is_valid(path):
            return f"damaged: {path}"
    try:
        for path in run.glob("config.json"):
            json.loads(path.read_text("utf-8"))
        for path in run.glob("metrics.jsonl"):
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except ValueError as error:
        return f"damaged: {path}: {error}"
    for version in exported.glob("[!.]*"):
        if not (version / "saved_model.pb").exists():
            return f"half an export: {version}"
    return ""


def _circumstances(lab: Lab) -> dict[str, Circumstance]:
    """Returns the circumstances by name, some of them random."""
    size, files = lab.random.choice([0, 999, 9_999, 50_000]), lab.random.randint(20, 80)
    seconds = lab.random.uniform(0, 9)
    no_home = {key: value for key, value in _environment().items() if key != "HOME"}
    plain_c = _environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    buffered = _environment(PYTHONUNBUFFERED="")  # an empty value means unset
    return {
        "full disk": _with(preexec_fn=_limit(resource.RLIMIT_FSIZE, size)),
        "few descriptors": _with(preexec_fn=_limit(resource.RLIMIT_NOFILE, files)),
        "read-only run": Circumstance(around=read_only),
        "vanished run": Circumstance(around=lambda run: vanishing(run, seconds)),
        "stdout closed": _with(preexec_fn=lambda: os.close(1)),
        "stdout full": _with(preexec_fn=_full_stdout),
        "stdout full, buffered": _with(preexec_fn=_full_stdout, env=buffered),
        "stdout without a reader": _with(preexec_fn=_stdout_without_a_reader),
        "stderr closed": _with(preexec_fn=lambda: os.close(2), speaks=False),
        "no TMPDIR": _with(env=_environment(TMPDIR="/nonexistent")),
        "locale C": _with(env=plain_c),
        "no HOME": _with(env=no_home),
        "no place for Matplotlib": _with(env=_environment(MPLCONFIGDIR="/nonexistent/x")),
    }


def _with(speaks: bool = True, **popen: Any) -> Circumstance:
    return Circumstance(popen, speaks=speaks)


def _environment(**changes: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | changes


def _limit(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _full_stdout() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def _stdout_without_a_reader() -> None:
    """Replaces stdout by a pipe whose reader has gone, as after `| head`."""
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    os.close(reading)


@contextmanager
def read_only(run: Path) -> Iterator[None]:
    """Makes the folder read-only; by a mount for root, who may write anywhere."""
    if os.geteuid():
        folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
    else:
        subprocess.run(["mount", "--bind", run, run], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", run], check=True)
    try:
        yield
    finally:
        if os.geteuid():
            for folder in folders:
                folder.chmod(0o700)
        else:
            subprocess.run(["umount", run], check=True)


@contextmanager
def vanishing(run: Path, seconds: float) -> Iterator[None]:
    """Deletes the folder after some seconds."""
    timer = threading.Timer(seconds, shutil.rmtree, [run, True])
    timer.start()
    try:
        yield
    finally:
        timer.join()
        shutil.rmtree(run, ignore_errors=True)  # training may have recreated parts of it
