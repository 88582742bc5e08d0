"""Which devices train together: `tf.distribute` strategies, and what belongs to each worker."""

import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from tf_transformer.errors import UserError, quoted

_SECONDS_TO_FETCH = 5

# What TensorFlow raises in the workers that are left.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)

# Makes the batches of some replicas: replica 0, 1 ... of each step in turn.
ShareOfData = Callable[[Sequence[int], int], tf.data.Dataset]


def make_strategy(devices: int | None = None) -> tf.distribute.Strategy:
    """The strategy for this process; call it before TensorFlow computes anything.

    With TF_CONFIG naming several workers, `MultiWorkerMirroredStrategy`; else
    `MirroredStrategy` over all visible GPUs, or `devices` of them. Without a GPU, `devices`
    above 1 splits the CPU, which is no faster: it is there to try things out.

    Raises:
        UserError: if there are fewer GPUs than `devices`, or TF_CONFIG cannot be read.
    """
    if devices is not None and devices < 1:
        raise UserError(f"--devices must be at least 1. Received: {devices}.")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and devices and devices > len(gpus):
        raise UserError(
            f"--devices must be at most {len(gpus)}, the GPUs. Received: {devices}."
        )
    if gpus and devices:
        tf.config.set_visible_devices(gpus[:devices], "GPU")
    if not gpus and devices and devices > 1:
        _split_cpu(devices)
    number = devices or max(len(gpus), 1)
    if num_workers() > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if number == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(number)])
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(number)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def _split_cpu(number: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or []) < number:
        parts = [tf.config.LogicalDeviceConfiguration()] * number
        tf.config.set_logical_device_configuration(cpu, parts)


def num_workers() -> int:
    """The workers that TF_CONFIG names; 1 without it."""
    return len(_tf_config().get("cluster", {}).get("worker", [])) or 1


def is_chief() -> bool:
    """Whether this process writes the files: worker 0, or the only one."""
    task = _tf_config().get("task", {})
    return num_workers() == 1 or (task.get("type"), task.get("index")) == ("worker", 0)


def _tf_config() -> dict:
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        workers = config.get("cluster", {}).get("worker", [])
        others = set(config.get("cluster", {})) - {"worker"}
        if others or not isinstance(workers, list):
            raise ValueError("its cluster must be {'worker': [addresses]}")
        if len(workers) > 1 and config["task"]["index"] not in range(len(workers)):
            raise ValueError("its task must be {'type': 'worker', 'index': number}")
        return config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG cannot be used: {error}. Expected JSON with a cluster of workers and "
            f"this process's task. Received: {quoted(text)}."
        ) from None


def distribute(strategy: tf.distribute.Strategy, make: ShareOfData):
    """The dataset for `fit`: every replica gets its own rows of the same global batch."""
    if strategy.num_replicas_in_sync == 1:
        return make([0], 1)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local
        return make(range(first, first + local), replicas)

    return strategy.distribute_datasets_from_function(of_worker)


def sum_over_workers(strategy: tf.distribute.Strategy, *values: float) -> list[float]:
    """The sums of what every worker gives; each waits here for the others."""
    if num_workers() == 1:
        return list(values)
    copies = strategy.num_replicas_in_sync // num_workers()
    sums = _summing(strategy)(tf.constant(values, "float32"))
    return (strategy.experimental_local_results(sums)[0].numpy() / copies).tolist()


@functools.cache
def _summing(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Made once: it is called at every step."""

    def of_replica(mine: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(mine))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def summed(mine: tf.Tensor) -> tf.Tensor:
        return strategy.run(of_replica, args=(mine,))

    return summed


@contextmanager
def chief_first(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """A block that the chief runs before the other workers do."""
    if not is_chief():
        meet(strategy)
    yield
    if is_chief():
        meet(strategy)


def meet(strategy: tf.distribute.Strategy) -> None:
    """Waits for all workers to come here."""
    sum_over_workers(strategy, 0.0)


def part(strategy: tf.distribute.Strategy) -> None:
    """Meets for the last time: nobody may end while another still fetches its sum from him."""
    if num_workers() > 1:
        meet(strategy)
        time.sleep(_SECONDS_TO_FETCH)


@contextmanager
def lost_workers_explained() -> Iterator[None]:
    """Turns what TensorFlow raises when another worker is gone into a UserError."""
    try:
        yield
    except _LOST as error:
        if num_workers() == 1:
            raise
        raise UserError(
            f"Another worker has ended or cannot be reached ({type(error).__name__}). Start "
            "all again with the same command: training goes on from the last checkpoint."
        ) from error


def describe(strategy: tf.distribute.Strategy) -> str:
    """Such as "2 GPUs (NVIDIA H200)"."""
    number = strategy.num_replicas_in_sync
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")
        text = name if number == 1 else f"{number} GPUs ({name})"
    else:
        parts = number // num_workers()
        text = f"CPU ({os.cpu_count()} cores{f', split in {parts}' if parts > 1 else ''})"
    return text if num_workers() == 1 else f"{text} on {num_workers()} workers"
