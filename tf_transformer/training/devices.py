"""Devices that train together: `tf.distribute` strategies, and the workers of TF_CONFIG.

Workers vote, wait for one another and share sums.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.training.sessions import Stopper, is_chief, num_workers

# Takes the indices of some replicas and the number of all replicas; returns a dataset of the
# shares of these, one after another for each step.
ShareOfData = Callable[[Sequence[int], int], tf.data.Dataset]

_SECONDS_TO_FETCH = 5  # time for all workers to read the last all-reduce

# Errors that TensorFlow raises in the remaining workers when one is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)


def make_strategy(devices: int | None = None) -> tf.distribute.Strategy:
    """Returns the strategy of this process; call it before TensorFlow computes anything.

    `MultiWorkerMirroredStrategy` if TF_CONFIG names several workers, `MirroredStrategy` for
    several devices, and the default strategy for one. Uses all visible GPUs, or `devices` of
    them. Without a GPU, `devices` above 1 splits the CPU, which is no faster but allows
    experiments. Raises UserError if there are fewer GPUs than `devices`, TensorFlow has
    computed something with other devices, or TF_CONFIG cannot be read.
    """
    if devices is not None and devices < 1:
        raise UserError(f"`devices` must be at least 1. Received: {devices}.")
    gpus = tf.config.list_physical_devices("GPU")
    count = devices or max(len(gpus), 1)
    if gpus and count > len(gpus):
        raise UserError(
            f"`devices` must be at most {len(gpus)}, the number of GPUs. Received: {devices}."
        )
    try:
        if gpus and devices:
            tf.config.set_visible_devices(gpus[:devices], "GPU")
        if not gpus and count > 1:
            cpu = tf.config.list_physical_devices("CPU")[0]
            if len(tf.config.get_logical_device_configuration(cpu) or []) < count:
                logical = [tf.config.LogicalDeviceConfiguration()] * count
                tf.config.set_logical_device_configuration(cpu, logical)
    except RuntimeError:
        raise UserError(
            "The number of devices must be chosen before TensorFlow computes anything: in a "
            f"notebook, restart the kernel. Received: devices={devices}, too late."
        ) from None
    if num_workers() > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if count == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(count)])
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(count)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def distribute(strategy: tf.distribute.Strategy, make: ShareOfData):
    """Returns the dataset for `fit`: each replica gets its rows of the same global batch."""
    if strategy.num_replicas_in_sync == 1:
        return make([0], 1)

    def share_of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local
        return make(range(first, first + local), replicas)

    return strategy.distribute_datasets_from_function(share_of_worker)


def describe(strategy: tf.distribute.Strategy) -> str:
    """Describes the devices in a line such as "2 GPUs (NVIDIA H200)"."""
    count = strategy.num_replicas_in_sync
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")
        text = name if count == 1 else f"{count} GPUs ({name})"
    else:
        parts = count // num_workers()
        text = f"CPU ({os.cpu_count()} cores{f', split in {parts}' if parts > 1 else ''})"
    return text if num_workers() == 1 else f"{text} on {num_workers()} workers"


class Workers:
    """This process as one of the workers of a strategy, each on its own machine.

    Every method that waits must be called by all workers; with a single one it returns at once.
    By default, the strategy is that of a single device, and the number that of TF_CONFIG.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, number: int | None = None
    ) -> None:
        self.strategy = strategy or tf.distribute.get_strategy()
        self.number = number or num_workers()
        self.is_chief = is_chief()  # whether this worker writes the files

    def vote(self, stopper: Stopper, save: bool = False) -> tuple[bool, bool]:
        """Returns one decision for all workers: (stop, save).

        They stop if any of them has a reason to, and save when the chief wants to.
        """
        stop = bool(stopper.reason)
        if self.number == 1:
            return stop, save
        stops, saves, signals = self.all_reduce(
            stop, save and self.is_chief, stopper.status > 0
        )
        if stops:
            stopper.join(by_signal=signals > 0)
        return stops > 0, saves > 0

    def stop_together(self, stopper: Stopper, where: str) -> None:
        """Raises `Interrupted` in all workers if one of them has a reason to stop.

        Afterwards a signal raises it at once in a single worker; several wait for one another.
        """
        stopper.waiting = self.number > 1
        if self.vote(stopper)[0]:
            self.final_barrier()
            stopper.check(where)

    def on_chief(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the function on the chief; returns what it returns, None on other workers."""
        return function(*arguments) if self.is_chief else None

    def from_chief(self, value: float) -> float:
        """Returns the chief's value in every worker, exact for whole numbers below 2**24."""
        return self.all_reduce(value if self.is_chief else 0)[0]

    def barrier(self) -> None:
        """Waits until all workers have called this."""
        self.all_reduce(0.0)

    def final_barrier(self) -> None:
        """Keeps every worker alive until all have read the last all-reduce."""
        if self.number > 1:
            self.barrier()
            time.sleep(_SECONDS_TO_FETCH)

    @contextmanager
    def chief_first(self) -> Iterator[None]:
        """Makes the other workers wait until the chief has run the block."""
        if not self.is_chief:
            self.barrier()
        yield
        if self.is_chief:
            self.barrier()

    def all_reduce(self, *values: float) -> list[float]:
        """Returns the sums of the values over all workers."""
        if self.number == 1:
            return list(values)
        copies = self.strategy.num_replicas_in_sync // self.number
        sums = _sum_function(self.strategy)(tf.constant(values, "float32"))
        return (self.strategy.experimental_local_results(sums)[0].numpy() / copies).tolist()


@functools.cache
def _sum_function(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the all-reduce of a vector, traced only once since it runs at every step."""

    def in_replica(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def sums(values: tf.Tensor) -> tf.Tensor:
        return strategy.run(in_replica, args=(values,))

    return sums


@contextmanager
def lost_workers_explained() -> Iterator[None]:
    """Turns TensorFlow's errors about a lost worker into a UserError."""
    try:
        yield
    except _LOST as error:
        if num_workers() == 1:
            raise
        raise UserError(
            f"Another worker has ended or cannot be reached ({type(error).__name__}). Restart "
            "all workers with the same command: training resumes from the last checkpoint."
        ) from error
