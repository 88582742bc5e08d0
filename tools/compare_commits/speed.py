"""Ratios of seconds, NEW to OLD, for the same work done in turn: A B A B."""

import json
import resource
import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tools.compare_commits.texts import write_texts
from tools.compare_commits.trees import Program, Tree

_PERIOD = 12
_TRAIN = (
    "train.py --train train --valid dev --source ab --target ba --set model.vocab_size=300 "
    f"--set training.steps={3 * _PERIOD} --set training.evaluate_every={_PERIOD} "
    "--set training.average_last=1 --set decoding.beam_size=1 --output"
)
_EXPORT = "export.py run --beam 4 --min-length 40 --max-length 40 --output exported"

Times = tuple[float, float]  # wall and CPU seconds


def print_speed(old: Tree, new: Tree, folder: Path, rounds: int) -> None:
    """Prints the ratios of wall and CPU seconds, NEW to OLD, for each kind of work."""
    with ExitStack() as stack:
        pair = [stack.enter_context(Subject(tree, folder / name))
                for tree, name in ((old, "old"), (new, "new"))]  # fmt: skip
        works = ("fit", "decode", "help", "train")
        times = {work: ([], []) for work in works}
        for number in range(rounds + 1):
            for work in works:
                for subject, found in zip(pair, times[work], strict=True):
                    measured = subject.times(work)
                    if number:  # not the first round, which has one-time costs
                        found.append(measured)
    print(f"{rounds} rounds, NEW / OLD: median (lowest to highest)\n")
    for work, (before, now) in times.items():
        ratios = [_ratio([x[i] for x in before], [x[i] for x in now]) for i in (0, 1)]
        wall = statistics.median(seconds for seconds, _ in now)
        print(f"{work:8} {1000 * wall:8.1f} ms  wall {ratios[0]}  CPU {ratios[1]}")


def _ratio(before: list[float], now: list[float]) -> str:
    ratios = [b / a for a, b in zip(before, now, strict=True)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


class Subject:
    """A tree with an exported model, and a process that fits and decodes on request."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        (folder / "answers").mkdir(parents=True)
        write_texts(folder)
        self.tree, self.folder = tree, folder
        self.number = 0
        self._run(f"{_TRAIN} run")
        self._run(_EXPORT)
        self.process = subprocess.Popen(
            tree.command(["steps.py", "exported/1"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env=tree.environment(),
        )

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def times(self, work: str) -> Times:
        """Times a training step with `fit` or train.py, a decoding step, or --help."""
        if work in ("fit", "decode"):
            print(work, file=self.process.stdin, flush=True)
            return tuple(json.loads(self.process.stdout.readline()))
        if work == "help":
            return self._run("tf-transformer --help")
        self.number += 1
        _, cpu = self._run(f"{_TRAIN} run-{self.number}")
        lines = (self.folder / f"run-{self.number}" / "metrics.jsonl").read_text().splitlines()
        periods = [json.loads(line)["train_seconds"] for line in lines[1:]]
        return min(periods) / _PERIOD, cpu / (3 * _PERIOD)  # CPU seconds of the whole session

    def _run(self, line: str) -> Times:
        began, cpu_began = time.perf_counter(), _children_cpu()
        if why := self.tree.run(Program("timed", line.split()), self.folder):
            raise RuntimeError(f"{self.tree.path}: {why}")
        return time.perf_counter() - began, _children_cpu() - cpu_began


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
