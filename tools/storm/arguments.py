"""Random command lines: one error line or a valid result, no traceback, within seconds."""

import argparse
import contextlib
import functools
import io
import random
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tf_transformer.cli.console import UNEXPECTED, import_tensorflow_quietly
from tf_transformer.cli.main import GROUP_OF, build_parser, main
from tools.storm.hostile_files import make_broken_runs, make_files, make_unfinished_runs
from tools.storm.lab import Done, Lab, Outcome, stdin_of

# Values that no numeric option accepts.
_NO_NUMBERS = (
    *("nan", "inf", "-inf", "1e999", "four", "[]", "0x10", "9" * 400, "9" * 5_000, "1e30"),
    *("-9999999999", "9223372036854775808"),
)  # fmt: skip
_NUMBERS = ("0", "1", "-1", "2.5", "7", "1000", "1000000", "2147483647", "2147483648")
_NO_TEXTS = ("", "\udcff", "a\udcffb\n")
_TEXTS = (
    *("a\nb", " ", "\x1b[31m", "é", "\u2028", "🙂" * 50, "x" * 300, "x" * 100_000, "a/b/c"),
    *("model.d_model=" + "[" * 5_000, "training.clip_norm=" + "9" * 400, "best", "last9"),
    *("model.d_ff=" + "9" * 5_000, "decoding.beam_size=1e30", "decoding.min_length=2147483648"),
    *("decoding.no_repeat_ngram=2147483648", "training.seed=null", "x" * 9_999 + "=1", "="),
    *("9" * 5_000 + "h", "9" * 5_000 + " steps", "last" + "9" * 5_000, "paper", "a.png"),
)  # fmt: skip
# Options that name output files; they only get names in the folder.
_WRITTEN = {"output", "write", "data", "alignments"}
_OUTPUTS = (
    "new",
    "a.png",
    "a.svg",
    "new/a.png",
    "directory",
    "empty",
    "empty/a.png",
    "a\nb.svg",
)
# Commands that would use the built-in corpus if they had no text.
_NEED_TEXT = ("train", "doctor", "ablate")
# Commands that end by themselves and leave the run usable.
_WITH_RUN = ("translate", "evaluate", "score", "export", "average", "convert",
             "curves", "attention", "heads", "lengths", "card")  # fmt: skip
_SECONDS = 20


@dataclass(frozen=True)
class Line:
    """A command line; `must_fail` if it has values that no command accepts."""

    arguments: list[str]
    must_fail: bool


class Writer:
    """Writes random command lines.

    Args:
        runs: runs that can be opened.
        broken_runs: runs that cannot be opened.
        files: input files.
    """

    def __init__(
        self, runs: Sequence[str], broken_runs: Sequence[str], files: Sequence[str]
    ) -> None:
        self._runs, self._broken_runs = runs, broken_runs
        self._texts = (files, [*runs, *broken_runs], _TEXTS)

    @classmethod
    def over_broken_files(cls, folder: Path, randomness: random.Random) -> Self:
        """Returns a writer of lines that never train or search; fills an empty folder."""
        files = [*make_files(folder, randomness), "/dev/null", "nowhere"]
        return cls(make_unfinished_runs(folder), [*make_broken_runs(folder), *files], files)

    def line(self, randomness: random.Random) -> Line:
        """Writes a command with all required arguments and some of its options."""
        name = randomness.choice([*GROUP_OF])
        arguments, must_fail = [name], False
        for action in _chosen_actions(name, randomness):
            if action.option_strings:
                arguments.append(action.option_strings[-1])
            if action.nargs != 0:
                value, bad = self._value(randomness, action)
                arguments.append(value)
                must_fail |= bad
        return Line(arguments, must_fail)

    def _value(self, randomness: random.Random, action: argparse.Action) -> tuple[str, bool]:
        """Returns a value for an argument, and whether every command must refuse it."""
        if not randomness.randrange(20):
            return randomness.choice(_NO_TEXTS), True
        if action.type is not None:
            bad = randomness.choice((True, False))
            good = ("1",) if action.dest == "devices" else _NUMBERS  # fixed in a process
            return randomness.choice(_NO_NUMBERS if bad else good), bad
        if action.choices:
            return randomness.choice([*action.choices]), False
        if action.dest in _WRITTEN:
            return randomness.choice(_OUTPUTS), False
        if action.dest in ("run", "runs", "model"):
            bad = bool(self._broken_runs) and randomness.choice((True, False))
            return randomness.choice(self._broken_runs if bad else self._runs), bad
        return randomness.choice(randomness.choice(self._texts)), False


@functools.cache
def parser_of(name: str) -> argparse.ArgumentParser:
    """Returns the parser of a command, built from its module."""
    [commands] = (action for action in build_parser(name)._actions if action.choices)
    return commands.choices[name]


def _chosen_actions(name: str, randomness: random.Random) -> Iterator[argparse.Action]:
    """Yields the arguments to use, chosen from the command's parser."""
    parser = parser_of(name)
    chosen = {
        randomness.choice(group._group_actions).dest
        for group in parser._mutually_exclusive_groups
        if group.required
    }
    if name in _NEED_TEXT:
        chosen |= {"train", "valid"}
    for action in parser._actions:
        wanted = action.required or action.dest == "run" or action.dest in chosen
        if action.dest not in ("help", "traceback") and (wanted or not randomness.randrange(5)):
            yield action


def run_here(arguments: Sequence[str], stdin: Path) -> Done:
    """Runs a command in this process and this folder, with a file as its standard input.

    An uncaught exception prints a traceback on stderr, as in a separate process.
    """
    signal.signal(signal.SIGALRM, _on_alarm)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        # Opened like Python's own streams; output of C code is not captured.
        out = io.TextIOWrapper(files[0], "utf-8", "strict", write_through=True)
        err = io.TextIOWrapper(files[1], "utf-8", "backslashreplace", write_through=True)
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(stdin_of(stdin))
        signal.alarm(_SECONDS)
        status = _status(arguments)
        signal.alarm(0)
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Done(status, *texts)


def _status(arguments: Sequence[str]) -> int | None:
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code
    except _TooLongError:
        return None
    except Exception:
        sys.stderr.reconfigure(errors="backslashreplace")  # the command may have changed it
        traceback.print_exc()
        return 1


def wrong(done: Done, must_fail: bool = False) -> str:
    """Describes the fault in the way a command ended; empty if there is none."""
    if done.status is None:
        return f"still running after {_SECONDS} s"
    if done.traceback or done.status == UNEXPECTED:
        return done.stderr[-2_000:]
    if done.status == 0:
        return "status 0 for an invalid command" if must_fail else ""
    if len(done.errors) != 1 or not done.stderr.endswith(f"{done.errors[0]}\n"):
        return f"no single line of error: {done.stderr[-2_000:]}"
    length = len(done.errors[0])
    return "" if length < 3_000 else f"an error of {length} characters"


class _TooLongError(BaseException):
    """Raised by the alarm; no command catches it."""


def _on_alarm(*_) -> None:
    raise _TooLongError


def tries(lab: Lab) -> Iterator[Outcome]:
    """Tries lines over broken files in this process; every twentieth over a trained run.

    The latter run in a separate process, since they may search with odd numbers and C code may
    print output.
    """
    broken = lab.folder / "broken"
    broken.mkdir()
    writer = Writer.over_broken_files(broken, lab.random)
    import_tensorflow_quietly()  # may take longer than the time limit of a command
    over_run = None
    while True:
        for _ in range(19):
            line = writer.line(lab.random)
            with contextlib.chdir(broken):
                done = run_here(line.arguments, Path("one-line"))
            yield _outcome("broken files", line, wrong(done, line.must_fail))
        over_run = over_run or _train(lab)
        line = over_run.line(lab.random)
        if line.arguments[0] in _WITH_RUN:
            done = lab.run(line.arguments, b"Good morning.\n" * 3, seconds=300)
            yield _outcome("a trained run", line, wrong(done, line.must_fail))


def _train(lab: Lab) -> Writer:
    """Trains a model on the built-in text in the folder; returns a writer of lines for it."""
    small = ("model.num_layers=1", "model.d_model=16", "model.d_ff=16", "training.steps=4",
             "training.warmup_steps=2", "training.evaluate_every=2", "model.vocab_size=600",
             "training.average_last=2", "training.batch_tokens=1024")  # fmt: skip
    settings = [word for setting in small for word in ("--set", setting)]
    done = lab.run(["train", "--output", "run", *settings], seconds=600)
    if done.status != 0:
        raise RuntimeError(f"training failed: {done.stderr}")
    (lab.folder / "text").write_text("Good morning.\n" * 3, "utf-8")
    return Writer(["run"], [], ["text", "/dev/null"])


def _outcome(what: str, line: Line, detail: str) -> Outcome:
    command = shlex.join(repr(word) if "\udcff" in word else word for word in line.arguments)
    return Outcome(what, not detail, f"tf-transformer {command}\n{detail}")
