"""A program that trains without and with TensorFlow's determinism, which cannot be disabled.

It takes the arguments of train.py, and fails unless training.deterministic enables determinism
and both give the same weights.
"""

import sys
from pathlib import Path

import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

sys.path.insert(0, str(Path(__file__).parents[1]))
from replicas import batches, dataset, distance, metrics, strategy_of, transformer  # noqa: E402
from tensorflow.python.framework import config  # noqa: E402

from tf_transformer.cli.main import main  # noqa: E402
from tf_transformer.models.losses import LabelSmoothedCrossEntropy  # noqa: E402


def trained(scatter: bool):
    """Trains on two devices, in parts, with dropout."""
    loss = LabelSmoothedCrossEntropy(0.1, scatter=scatter)
    with strategy_of(2).scope():
        model = transformer(dropout=0.1)
        model.compile("adam", loss, metrics=metrics(), max_tokens_per_device=8)
    model.fit(dataset(batches()), shuffle=False, verbose=0)
    return model


plain = trained(scatter=True)
assert not config.is_op_determinism_enabled()
assert main(["train", *sys.argv[1:], "--set", "training.deterministic=true"]) == 0
assert config.is_op_determinism_enabled()
assert distance(trained(scatter=False), plain) == 0
assert distance(transformer(), plain) > 1e-3
