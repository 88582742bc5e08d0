"""Parts of a batch: how many positions a device computes at once, given its memory."""

import functools
import logging
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.training.devices import Workers
from tf_transformer.training.memory import (
    PROCESS_BYTES,
    MemoryEstimate,
    estimate_memory,
    gigabytes,
)

logger = logging.getLogger(__name__)

# Share of a device's memory that an estimate may take up: the rest is for the system, other
# programs and the error of the estimate.
SHARE = 0.8

# Files with a container's memory limit, in versions 2 and 1 of Linux control groups.
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True)
class Workload:
    """Batches of a run, and the devices that share each of them.

    The size of a part is in positions, like `training.max_tokens_per_device`; with 0 a device
    computes its whole share of a batch at once.

    Attributes:
        config: configuration of the run.
        shapes: (rows, length) of all batches.
        replicas: devices that share a batch.
        workers: processes among which the devices are divided, each on its own machine.
        encoder_outputs: see `training.task.Task`.
    """

    config: Config
    shapes: Sequence[tuple[int, int]]
    replicas: int = 1
    workers: int = 1
    encoder_outputs: int = 0

    def estimate(self, size: int) -> MemoryEstimate:
        """Estimates the memory of one device for the largest batch, in parts of `size`."""
        estimates = [
            estimate_memory(
                self.config,
                rows,
                length,
                replicas=self.replicas,
                positions=size or None,
                encoder_outputs=self.encoder_outputs,
            )
            for rows, length in self.shapes
        ]
        return max(estimates, key=lambda estimate: estimate.total)

    def needed(self, size: int, device: str) -> int:
        """Returns the bytes needed by a GPU, or in RAM by all replicas on a machine's CPU."""
        total = self.estimate(size).total
        if device != "RAM":
            return total
        return total * self.replicas // self.workers + PROCESS_BYTES

    def sizes(self) -> list[int]:
        """Returns the choices: 0 (whole share), then powers of 2 down to the longest row."""
        longest = max(length for _, length in self.shapes)
        sizes = [2**k for k in range(self._share().bit_length())]
        return [0, *(size for size in reversed(sizes) if longest <= size < self._share())]

    def has_parts(self, size: int) -> bool:
        """Tells whether a device's share of some batch is larger than `size`."""
        return 0 < size < self._share()

    def half(self, size: int) -> int | None:
        """Returns the largest choice up to half of `size`; None if a row would not fit."""
        most = (size if self.has_parts(size) else self._share()) // 2
        return next((smaller for smaller in self.sizes()[1:] if smaller <= most), None)

    def _share(self) -> int:
        """Returns the positions of the largest batch on one device."""
        return max(-(-rows // self.replicas) * length for rows, length in self.shapes)


def choose_size(work: Workload, memory: tuple[str, int], recorded: int | None = None) -> int:
    """Chooses the size of parts to train with; 0 for whole batches if they fit.

    The choice depends on the machine's total memory, not on how much of it is free now: the
    same machine always chooses the same size, and so computes the same bits.

    Args:
        work: the workload.
        memory: name of the device and its bytes, from `device_memory`.
        recorded: the run's size so far, which is kept as long as it fits.

    Returns:
        The configured size, the recorded one, or the largest that fits; if none fits, the
        smallest possible.
    """
    device, total = memory
    asked = work.config.training.max_tokens_per_device
    if asked is not None:
        return asked
    if recorded is not None and work.needed(recorded, device) <= total:
        return recorded
    sizes = work.sizes()
    fitting = (size for size in sizes if work.needed(size, device) <= SHARE * total)
    return next(fitting, sizes[-1])


class Parts:
    """The size of parts in a session, halved once if memory runs out.

    Args:
        work: the workload.

    Attributes:
        size: current size in positions; 0 for whole batches.
    """

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.size = 0
        self._is_halved = False

    def choose(self, recorded: int | None, workers: Workers) -> int:
        """Chooses the size, and announces it if batches are computed in parts.

        The chief's memory decides for all workers, which must all call this; see `choose_size`.
        """
        memory = device_memory()
        if not self._is_halved:
            size = choose_size(self.work, memory, recorded)
            self.size = int(workers.from_chief(size))
        if self.work.has_parts(self.size):
            logger.info("%s", self._description(*memory))
        self._warn_if_memory_is_taken(*memory)
        return self.size

    def halve(self) -> None:
        """Halves the size, once, after a failed allocation.

        Raises:
            UserError: after a second failure, with several workers, if the configuration asks
                for whole batches, or if there is no smaller part.
        """
        if self.work.config.training.max_tokens_per_device == 0:
            raise UserError(
                "Out of memory: a whole batch does not fit. Leave out --max-tokens-per-device "
                "0 to compute it in parts, with the same result."
            )
        size = self.work.half(self.size)
        if size is None:
            raise UserError(
                "Out of memory, and no part is smaller than one sentence: choose a smaller "
                "model, data.max_length or --batch-tokens."
            )
        if self._is_halved or self.work.workers > 1:
            raise UserError(
                f"Out of memory{self._in_parts()}. End other programs that take memory, or "
                f"give --max-tokens-per-device {size}: training resumes from its last state."
            )
        logger.warning(
            "out of memory%s: back to the last state, from there in parts of %s, with the same "
            "result up to rounding", self._in_parts(), f"{size:,}",
        )  # fmt: skip
        self.size, self._is_halved = size, True

    def _in_parts(self) -> str:
        return f" in parts of {self.size:,}" if self.work.has_parts(self.size) else ""

    def _description(self, device: str, total: int) -> str:
        tokens = f"each batch of {self.work.config.training.batch_tokens:,} tokens"
        if self.work.replicas > 1:
            tokens = f"the {self.work.replicas} shares of {tokens}"
        needed = gigabytes(self.work.needed(self.size, device))
        return (
            f"computing {tokens} in parts of {self.size:,}, with the same result: about "
            f"{needed} of {gigabytes(total)} {device} (--max-tokens-per-device 0: all at once)"
        )

    def _warn_if_memory_is_taken(self, device: str, total: int) -> None:
        free, needed = free_memory(), self.work.needed(self.size, device) - PROCESS_BYTES
        if device == "RAM" and free is not None and free < needed:
            logger.warning(
                "warning  memory: other programs leave %s of %s free, and training still needs "
                "about %s: end some of them, or give a smaller --max-tokens-per-device",
                gigabytes(free), gigabytes(total), gigabytes(needed),
            )  # fmt: skip


def device_memory() -> tuple[str, int]:
    """Returns the device that trains and its memory in bytes: the smallest GPU, else the RAM.

    RAM counts up to the container's limit. The memory of the GPUs in use comes from nvidia-smi:
    TensorFlow knows the total only after allocating it.
    """
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "")
    names = listed.split(",") if listed else [str(number) for number in range(len(gpus))]
    memory = _gpu_memory(",".join(names[: len(gpus)])) if gpus else None
    return ("RAM", _ram()) if memory is None else ("GPU", memory)


@functools.cache
def _gpu_memory(names: str) -> int | None:
    """Returns the memory of the smallest of some GPUs in bytes; None if nvidia-smi fails.

    `names` are their numbers or UUIDs, separated by commas.
    """
    command = ["nvidia-smi", f"--id={names}", "--query-gpu=memory.total"]
    command.append("--format=csv,noheader,nounits")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return min(int(line) * 2**20 for line in done.stdout.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError):
        text = "nvidia-smi does not report the memory of GPU %s: using the RAM instead"
        logger.warning(text, names)
        return None


def _ram() -> int:
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([ram, *(limit for file in _CGROUP_LIMITS if (limit := _read_int(file)))])


def _read_int(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no container, or one without a limit
        return None


def free_memory() -> int | None:
    """Returns the RAM available to programs now, in bytes; None except on Linux."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"^MemAvailable: +(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(match[1]) if match else None
