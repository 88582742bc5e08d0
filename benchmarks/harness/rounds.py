"""Rounds A B A B: contenders measured in turn, and their ratios in each round."""

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from harness.contender import Answer, Contender, Spec

THREADS = ", threads: "  # precedes the number of threads in a contender's name


@dataclass(frozen=True)
class Spread:
    """The median, minimum and maximum of some numbers."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    def scaled(self, factor: float) -> "Spread":
        return Spread(factor * self.median, factor * self.low, factor * self.high)


@dataclass
class Measured:
    """The rounds of one contender.

    Attributes:
        versions: versions of its libraries.
        warm_up: the first answer, with all one-time costs.
        answers: one for each round.
        note: added to the name in tables.
    """

    versions: dict[str, str]
    warm_up: Answer
    answers: list[Answer] = field(default_factory=list)
    note: str = ""

    def rate(self, amount: str) -> Spread:
        """Returns `amount`, a field of the results, per second."""
        return Spread.of(answer.result[amount] / answer.seconds for answer in self.answers)

    def seconds(self) -> Spread:
        return Spread.of(answer.seconds for answer in self.answers)

    def cpu_seconds(self) -> Spread:
        return Spread.of(answer.cpu_seconds for answer in self.answers)

    def peak_bytes(self) -> int:
        return self.answers[-1].peak_bytes


def times_as_fast(one: Measured, other: Measured, cpu: bool = False) -> Spread:
    """Returns how many times as fast `one` is as `other`, in the same rounds.

    Args:
        one, other: measurements in the same rounds on the same work.
        cpu: compare the CPU time of all threads, which other processes disturb less.
    """
    pairs = zip(one.answers, other.answers, strict=True)
    if cpu:
        return Spread.of(theirs.cpu_seconds / ours.cpu_seconds for ours, theirs in pairs)
    return Spread.of(theirs.seconds / ours.seconds for ours, theirs in pairs)


def with_threads(specs: Sequence[Spec], numbers: Sequence[int]) -> list[Spec]:
    """Returns a copy of each contender for each number of threads, for `fastest`.

    Without numbers, the contenders as they are.
    """
    several = [
        replace(spec, name=f"{spec.name}{THREADS}{number}", threads=number)
        for spec in specs
        for number in numbers
    ]
    return several or list(specs)


def fastest(results: Mapping[str, Measured]) -> dict[str, Measured]:
    """Returns each contender with its fastest number of threads, which goes into `note`.

    Args:
        results: measurements by names that end in THREADS and the number.
    """
    best: dict[str, Measured] = {}
    for name, each in results.items():
        name, _, number = name.rpartition(THREADS)
        if name not in best or each.seconds().median < best[name].seconds().median:
            best[name] = replace(each, note=f" ({number} thread{'s' * (number != '1')})")
    return best


def measure(
    specs: Sequence[Spec],
    cases: Mapping[str, dict[str, Any]],
    options: argparse.Namespace,
) -> Iterator[tuple[str, dict[str, Measured]]]:
    """Starts all contenders, and measures them in turn after one warm-up each.

    A contender's functions are `versions()` and `work(**arguments)`.

    Args:
        specs: the contenders.
        cases: arguments of `work` by title; cases are measured one after the other.
        options: `rounds`, in each of which every contender works once; `threads`, of the one
            contender that works at a time; and `gpu`, if the benchmark has this option.

    Yields:
        The title of a case and its measurements by the contender's name.

    Raises:
        UserError: if a contender fails.
    """
    with ExitStack() as stack:
        gpu = getattr(options, "gpu", False)
        running = [_start(stack, spec, options.threads, gpu) for spec in specs]
        for title, arguments in cases.items():
            results = _measure_case(running, title, arguments, options.rounds)
            say("")
            yield title, results


def _start(stack: ExitStack, spec: Spec, threads: int, gpu: bool) -> Contender:
    say(f"starting {spec.name}")
    contender = stack.enter_context(Contender(spec, threads, gpu))
    contender.call("setup", **spec.options)
    return contender


def _measure_case(
    running: Sequence[Contender], title: str, arguments: dict[str, Any], rounds: int
) -> dict[str, Measured]:
    results = {}
    for contender in running:
        say(f"{title}: warming up {contender.spec.name}")
        warm_up = contender.call("work", **arguments)
        versions = contender.call("versions").result
        contender.call("forget_peak")
        results[contender.spec.name] = Measured(versions, warm_up)
    for number in range(rounds):
        for contender in running:
            say(f"{title}: round {number + 1} of {rounds}, {contender.spec.name}")
            answer = contender.call("work", **arguments)
            results[contender.spec.name].answers.append(answer)
    return results


def say(text: str) -> None:
    """Prints a status line on a terminal, which the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
