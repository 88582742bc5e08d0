"""`python -m tools.run_tests [--fast] [FOLDER ...]`: runs all tests within the memory there is.

TensorFlow keeps what a process has traced, so a process that runs all tests needs gigabytes.
Here each process runs `FILES` files, and ends after the one with which it has grown beyond
`MOST`; another one runs the rest. As many run at a time as there are cores, but no more than
fit into the available memory. At the end stand the tests that took longest.

With --fast, the tests that are marked slow are left out: those that use a trained run
(tests/conftest.py), and whole folders that start programs.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = 16
MOST = 1.2e9  # bytes of a process that begins with another file
BYTES = 2.5e9  # of a process and the commands that its tests start
LONGEST = 12  # tests listed at the end
INTERRUPTED, NO_TESTS = 2, 5  # pytest's exit statuses
# Names a file, in which a process writes how many tests failed and which files it left.
_REST = "TF_TRANSFORMER_FILES_LEFT"


@dataclass(frozen=True)
class Done:
    """The end of a process: which files it ran, its exit status, output and seconds."""

    files: list[Path]
    status: int
    output: str
    seconds: float

    def __str__(self) -> str:
        folders = " ".join(sorted({str(file.parent.relative_to(ROOT)) for file in self.files}))
        summary = self.output.strip().rpartition("\n")[2].strip("= ")
        verdict = ", FAILED" if self.status else ""
        took = f"{self.seconds:5.0f} s{verdict}"
        return f"{folders:26} {len(self.files):3} files {took}: {summary}"

    def durations(self) -> Iterator[tuple[float, str]]:
        """Yields the seconds and names of its longest tests, set-up included."""
        for line in re.findall(r"(?m)^[\d.]+s (?:call|setup) .*$", self.output):
            seconds, part, name = line.split(maxsplit=2)
            yield float(seconds.rstrip("s")), f"{name}{' (set-up)' * (part == 'setup')}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.run_tests", description=__doc__)
    parser.add_argument("folders", metavar="FOLDER", nargs="*", type=Path,
                        help="default: tests and experiments")  # fmt: skip
    parser.add_argument("--fast", action="store_true", help="leave out what is marked slow")
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.folders] or [
        ROOT / "tests", ROOT / "experiments"
    ]  # fmt: skip
    began, done = time.monotonic(), []
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(processes()) as pool:
        groups = [group for folder in folders for group in groups_of(folder)]
        waiting = {pool.submit(run_all, group, made, options.fast) for group in groups}
        for each in as_completed(waiting):
            done += each.result()
    longest = sorted((each for one in done for each in one.durations()), reverse=True)
    print("\nThe longest tests, in seconds:")
    for seconds, name in longest[:LONGEST]:
        print(f"{seconds:6.1f}  {name}")
    used, failed = resource.getrusage(resource.RUSAGE_CHILDREN), [d for d in done if d.status]
    cpu, peak = used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss
    print(
        f"{len(done)} processes, {len(failed)} failed; {(time.monotonic() - began) / 60:.0f} "
        f"minutes, {cpu / 60:.1f} CPU minutes, largest process {peak / 1e9:.1f} GB"
    )
    return 1 if failed else 0


def groups_of(folder: Path) -> Iterator[list[Path]]:
    """Yields the test files below a folder in their order, `FILES` at a time."""
    files = sorted(folder.rglob("test_*.py"))
    yield from (files[begin : begin + FILES] for begin in range(0, len(files), FILES))


def processes() -> int:
    """Returns the number of cores; on Linux fewer if less memory is available."""
    cores, memory = os.cpu_count() or 1, Path("/proc/meminfo")
    if not memory.exists():
        return cores
    (line,) = (each for each in memory.read_text().splitlines() if "MemAvailable" in each)
    return max(1, min(cores, int(1024 * int(line.split()[1]) / BYTES)))


def run_all(files: list[Path], made: str, fast: bool) -> list[Done]:
    """Runs pytest on files in one process after another; prints a line for each.

    `made` is the folder that all processes share.
    """
    done = []
    while files:
        with tempfile.NamedTemporaryFile("r", dir=made) as rest:
            each = run(files, made, Path(rest.name), ["-m", "not slow"] * fast)
            files = [Path(line) for line in rest.read().splitlines()[1:]]
        done += [each]
        print(each, *[each.output] * bool(each.status), sep="\n", flush=True)
    return done


def run(files: list[Path], made: str, rest: Path, options: list[str]) -> Done:
    """Runs pytest on some files; afterwards `rest` has those that another process must run."""
    began = time.monotonic()
    plugin = ["-p", "tools.run_tests", "--durations", str(LONGEST), *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *map(str, files)],
        cwd=ROOT,
        env=os.environ | {"TF_TRANSFORMER_MADE_ONCE": made, _REST: str(rest)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    failed, *left = rest.read_text().splitlines() or ["0"]
    expected = INTERRUPTED if left else NO_TESTS if options else 0  # no tests: all are slow
    status = int(failed) if done.returncode == expected else done.returncode
    ran = [file for file in files if str(file) not in left]
    return Done(ran, status, done.stdout, time.monotonic() - began)


# --- Inside pytest -----------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends a process that has grown too large before it begins with another file."""
    result = yield
    if nextitem is not None and nextitem.path != item.path and resident() > MOST:
        files = [*dict.fromkeys(each.path for each in item.session.items)]
        left = files[files.index(nextitem.path) :]
        lines = [item.session.testsfailed, *left]
        Path(os.environ[_REST]).write_text("".join(f"{line}\n" for line in lines))
        item.session.shouldstop = "the rest runs in another process"
    return result


def resident() -> int:
    """Returns the bytes of memory of this process, on Linux; elsewhere its largest so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
