"""`python -m tools.run_tests [FOLDER ...]`: runs all tests within the memory there is.

TensorFlow keeps what a process has traced, so a process that runs all tests needs gigabytes.
Here each process runs the files of one folder, at most `FILES` of them, and ends. As many run
at a time as there are cores, but no more than fit into the available memory.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = 12
BYTES = 2.5e9  # of a process and the commands that its tests start


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
        verdict = "" if self.status == 0 else ", FAILED"
        took = f"{self.seconds:5.0f} s{verdict}"
        return f"{folders:26} {len(self.files):3} files {took}: {summary}"


def main() -> int:
    folders = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT / "tests"]
    groups = [group for folder in folders for group in groups_of(folder)]
    began, failed = time.monotonic(), []
    with (
        tempfile.TemporaryDirectory() as made,
        ThreadPoolExecutor(processes_at_a_time()) as pool,
    ):
        for each in as_completed([pool.submit(run, group, made) for group in groups]):
            done = each.result()
            print(done, flush=True)
            if done.status:
                print(done.output, flush=True)
                failed += [done]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss
    print(
        f"{len(groups)} groups, {len(failed)} failed; {(time.monotonic() - began) / 60:.0f} "
        f"minutes, {cpu / 60:.1f} CPU minutes, largest process {peak / 1e9:.1f} GB"
    )
    return 1 if failed else 0


def groups_of(folder: Path) -> Iterator[list[Path]]:
    """Yields the test files below a folder, those of one folder together, at most `FILES`."""
    files = sorted(folder.rglob("test_*.py"))
    for parent in dict.fromkeys(file.parent for file in files):
        own = [file for file in files if file.parent == parent]
        parts = -(-len(own) // FILES)
        yield from (own[number::parts] for number in range(parts))


def processes_at_a_time() -> int:
    """Returns the number of cores; on Linux fewer if less memory is available."""
    cores, memory = os.cpu_count() or 1, Path("/proc/meminfo")
    if not memory.exists():
        return cores
    (line,) = (each for each in memory.read_text().splitlines() if "MemAvailable" in each)
    return max(1, min(cores, int(1024 * int(line.split()[1]) / BYTES)))


def run(files: list[Path], made: str) -> Done:
    """Runs pytest on some files; `made` is the folder that the processes share."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--durations", "3", *map(str, files)],
        cwd=ROOT,
        env=os.environ | {"TF_TRANSFORMER_MADE_ONCE": made},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return Done(files, done.returncode, done.stdout, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
