"""Devices that train together: `tf.distribute` strategies, and the workers of TF_CONFIG."""

import json
import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_transformer.errors import UserError, quoted

# Makes a dataset of the shares of some replicas, in turn for each step; takes the indices of
# these replicas and the number of all replicas.
ShareOfData = Callable[[Sequence[int], int], tf.data.Dataset]


def make_strategy(devices: int | None = None) -> tf.distribute.Strategy:
    """Returns the strategy of this process; call it before TensorFlow computes anything.

    `MultiWorkerMirroredStrategy` if TF_CONFIG names several workers, else `MirroredStrategy`
    over all visible GPUs, or `devices` of them. Without a GPU, `devices` above 1 splits the
    CPU, which is no faster but allows experiments.

    Raises:
        UserError: if there are fewer GPUs than `devices`, or TF_CONFIG cannot be read.
    """
    if devices is not None and devices < 1:
        raise UserError(f"--devices must be at least 1. Received: {devices}.")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and devices and devices > len(gpus):
        raise UserError(
            f"--devices must be at most {len(gpus)}, the number of GPUs. Received: {devices}."
        )
    if gpus and devices:
        tf.config.set_visible_devices(gpus[:devices], "GPU")
    if not gpus and devices and devices > 1:
        _split_cpu(devices)
    count = devices or max(len(gpus), 1)
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


def _split_cpu(count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or []) < count:
        logical = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(cpu, logical)


def num_workers() -> int:
    """Returns the number of workers in TF_CONFIG; 1 without it."""
    return len(_tf_config().get("cluster", {}).get("worker", [])) or 1


def is_chief() -> bool:
    """Tells whether this process writes the files: worker 0, or the only one."""
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
