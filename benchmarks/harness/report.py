"""The output of a benchmark: tables on the console, and JSON with rounds and machine."""

import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tabulate import tabulate

from harness.environments import FOLDER
from harness.rounds import Measured, Spread
from tf_transformer.base.files import write_text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a table in Markdown, with columns aligned for the console."""
    align = ["left", *["right"] * (len(header) - 1)]
    return tabulate(rows, header, "pipe", disable_numparse=True, colalign=align)


def shown(spread: Spread, digits: int = 0) -> str:
    """Formats median, minimum and maximum, such as "1,204 (1,100-1,250)"."""
    median, low, high = (f"{v:,.{digits}f}" for v in dataclasses.astuple(spread))
    return f"{median} ({low}-{high})"


def machine() -> dict[str, Any]:
    """Describes the hardware, the system and its current load."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _lines_of(
            "nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"
        ),
        "system": platform.platform(),
        "commit": " ".join(_lines_of("git", "describe", "--always", "--dirty")),
        "load": os.getloadavg(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _lines_of(*command: str) -> list[str]:
    """Returns the lines that a program prints; none if the program is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.splitlines()


@dataclasses.dataclass
class Report:
    """Gathers the results of a benchmark and writes them.

    Args:
        name: the benchmark's name, and that of its files.
        settings: the benchmark's options.
        folder: the folder for the files.
    """

    name: str
    settings: Mapping[str, Any]
    folder: Path
    results: dict[str, Any] = dataclasses.field(default_factory=dict)
    before: dict[str, Any] = dataclasses.field(default_factory=machine)

    def add(self, part: str, results: Any) -> None:
        """Adds results: numbers, or `Measured` by name."""
        self.results[part] = results

    def write(self) -> Path:
        """Writes the JSON.

        Raises:
            UserError: if the disk is full or the folder cannot be written.
        """
        path = self.folder / f"{self.name}.json"
        whole = {
            "benchmark": self.name,
            "command": sys.argv,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "settings": dict(self.settings),
            "machine": self.before | {"load_at_end": os.getloadavg()},
            "results": self.results,
        }
        write_text(path, json.dumps(whole, indent=1, default=_plain) + "\n")
        return path

    def say_machine(self) -> str:
        """Describes the machine in one line, to print below the tables."""
        load, end = self.before["load"][0], os.getloadavg()[0]
        gpus = "".join(f", {gpu}" for gpu in self.before["gpus"])
        return (
            f"{self.before['processor']}, {self.before['cores']} cores{gpus}; load {load:.1f} "
            f"before, {end:.1f} at the end; commit {self.before['commit'] or 'unknown'}"
        )


def say_versions(results: Mapping[str, Measured]) -> str:
    """Lists the package versions of all contenders, each once."""
    versions: dict[str, dict[str, None]] = {}  # ordered sets, by package
    for measured in results.values():
        for package, version in measured.versions.items():
            versions.setdefault(package, {})[version] = None
    return ", ".join(f"{package} {' and '.join(each)}" for package, each in versions.items())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    return str(value)
