"""Random damage to the files of a run and its text: commands must report it or be right."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.storm.lab import SMALLEST, Done, Lab, Outcome, set_options, write_builtin_text

SECONDS = 300  # time limit of a command
PAIRS = 80
TRAIN = [
    *("train", "--train", "texts/train", "--valid", "texts/dev"),
    *("--source", "en", "--target", "de", "--output", "run"),
]
SETTINGS = (
    *SMALLEST, "model.vocab_size=330", "training.steps=6", "training.evaluate_every=2",
    "training.batch_tokens=256", "training.warmup_steps=4", "training.keep_last=3",
    "training.average_last=2", "decoding.beam_size=2", "decoding.max_extra_length=5",
)  # fmt: skip
COMMANDS = {
    "train": [*TRAIN, *set_options(*SETTINGS)],
    "translate": ["translate", "run"],
    "evaluate": ["evaluate", "run", "--source", "texts/dev.en", "--reference", "texts/dev.de"],
    "card": ["card", "run"],
    "average": ["average", "run"],
    "curves": ["curves", "run"],
}

UNPROTECTED = ("tokenizer.model",)  # not damaged here: flipped bits in it go unnoticed

# Changes to these files may be edits by the user, do not affect results or, in metrics.jsonl,
# are not covered by a checksum. Commands must still end properly; results are not compared.
UNCHECKED = ("config.json", "versions.json", "card.md", "changes.jsonl", "metrics.jsonl")

# Every message about damage contains one of these.
ANNOUNCED = re.compile(
    r"damaged|is gone|was gone|not there|no longer there|missing|has changed|made again|"
    r"rebuilt|from step [\d,]+ on|lost"
)


@dataclass(frozen=True)
class Base:
    """A run to damage, and the outputs of the undamaged run.

    Attributes:
        folder: contains run/ and texts/; copied for every try.
        right: the output of each command; for train, the contents of the run afterwards.
    """

    folder: Path
    right: dict[str, object]


def tries(lab: Lab) -> Iterator[Outcome]:
    """Damages copies of a small run endlessly; see docs/results/reliability.md."""
    base = make_base(lab)
    while True:
        yield attempt(lab, base, lab.random.choice(list(COMMANDS)))


def make_base(lab: Lab) -> Base:
    """Trains the run to step 4 of 6, and runs every command on a copy of it."""
    folder = lab.folder / "base"
    (folder / "texts").mkdir(parents=True)
    write_builtin_text(folder / "texts", PAIRS)
    begin(lab, [*COMMANDS["train"], "--stop-after", "4 steps"], folder)
    return of_folder(lab, folder, COMMANDS)


def of_folder(lab: Lab, folder: Path, commands: dict[str, list[str]]) -> Base:
    """Returns the base in a folder, with the outputs of `commands`."""
    right: dict[str, object] = {}
    for name, arguments in commands.items():
        copy = fresh_copy(lab, folder)
        done = begin(lab, arguments, copy)
        right[name] = result(name, done, copy)
    return Base(folder, right)


def begin(lab: Lab, arguments: list[str], folder: Path) -> Done:
    """Runs a command without damage; it must succeed."""
    done = run(lab, arguments, folder)
    if done.status != 0:
        raise RuntimeError(f"{arguments} failed without damage: {done}")
    return done


def run(lab: Lab, arguments: list[str], folder: Path, texts: Path | None = None) -> Done:
    """Runs a command in `folder`; its input is the dev text there, or in `texts`."""
    source = (texts or folder) / "texts" / "dev.en"
    return lab.run(arguments, source.read_bytes(), SECONDS, cwd=folder)


def fresh_copy(lab: Lab, folder: Path) -> Path:
    copy = lab.folder / "now"
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy))


def attempt(lab: Lab, base: Base, command: str) -> Outcome:
    """Damages one file (sometimes two), then runs one command."""
    copy, damages = fresh_copy(lab, base.folder), []
    for _ in range(lab.random.choice((1, 1, 1, 2))):
        every = sorted(path for path in copy.rglob("*") if path.is_file())
        files = [path for path in every if path.name not in UNPROTECTED]
        path, name = lab.random.choice(files), lab.random.choice(list(DAMAGE))
        damage(path, name, lab.random)
        damages.append(f"{name} {path.relative_to(copy)}")
    done = run(lab, COMMANDS[command], copy, base.folder)
    exempt = all(
        text.endswith(UNCHECKED)
        or "/logs/" in text
        or (command == "evaluate" and "texts/" in text)  # its input, which may change
        for text in damages
    )
    problem = judge(done, exempt or result(command, done, copy) == base.right[command])
    detail = f"{', '.join(damages)}: {problem}\n{done.stdout[-500:]}{done.stderr[-1500:]}"
    return Outcome(command, not problem, detail)


def judge(done: Done, right: bool) -> str:
    """Names the promise that was broken; "" if none was."""
    if done.status is None:
        return f"no end within {SECONDS} s"
    if done.traceback or done.status not in (0, 1):
        return f"a traceback, or status {done.status}"
    if done.status == 1:
        return "" if len(done.errors) == 1 else f"{len(done.errors)} error lines"
    if right or ANNOUNCED.search(done.stdout + done.stderr):
        return ""
    return "silently another result"


def result(command: str, done: Done, folder: Path) -> object:
    """Returns the output that repaired damage must not change."""
    if command != "train" or done.status != 0:
        return done.stdout
    arrays = {}
    for name in ("step-00000006.npz", "best.npz", "average.npz"):
        with np.load(folder / "run" / "checkpoints" / name) as archive:
            arrays[name] = {key: archive[key].tobytes() for key in sorted(archive.files)}
    return arrays


def damage(path: Path, name: str, numbers: random.Random) -> None:
    """Changes a file in one of the ways of DAMAGE; sometimes restores its modification time."""
    state, data = path.stat(), path.read_bytes()
    changed = DAMAGE[name](data, numbers)
    if changed is None:
        path.unlink()
        return
    path.write_bytes(changed)
    if numbers.random() < 0.5:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _flip(data: bytes, numbers: random.Random) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    changed[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    return bytes(changed)


def _zero(data: bytes, numbers: random.Random) -> bytes:
    start = numbers.randrange(len(data) + 1)
    end = min(len(data), start + numbers.choice((1, 16, 4096)))
    return data[:start] + bytes(end - start) + data[end:]


def _truncate(data: bytes, numbers: random.Random) -> bytes:
    return data[: numbers.randrange(len(data) + 1)]


def _append(data: bytes, numbers: random.Random) -> bytes:
    return data + numbers.choice((numbers.randbytes(100), b"{}\n", b"null\n", b"5\n", b"\n"))


def _reverse_lines(data: bytes, numbers: random.Random) -> bytes:
    return b"".join(reversed(data.splitlines(keepends=True)))


def _swap_bytes(data: bytes, numbers: random.Random) -> bytes:
    if len(data) < 2:
        return data
    changed, (one, two) = bytearray(data), numbers.sample(range(len(data)), 2)
    changed[one], changed[two] = changed[two], changed[one]
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flip": _flip,
    "zero": _zero,
    "truncate": _truncate,
    "append": _append,
    "reverse": _reverse_lines,
    "swap": _swap_bytes,
    "delete": lambda data, numbers: None,
}
