"""The workers that TF_CONFIG names, and which of them this process is; without TensorFlow."""

import os

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import parse_json


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
        config = parse_json(text)
        cluster = config.get("cluster", {})
        workers = cluster.get("worker", [])
        if set(cluster) - {"worker"} or not isinstance(workers, list):
            raise ValueError("its cluster must be {'worker': [addresses]}")
        if len(workers) > 1 and config["task"]["index"] not in range(len(workers)):
            raise ValueError("its task must be {'type': 'worker', 'index': number}")
        return config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"TF_CONFIG cannot be used: {error}. Expected JSON with a cluster of workers and "
            f"this process's task. Received: {quoted(text)}."
        ) from None
