"""`training.deterministic`: training works, and computes the same weights.

As a program, this file trains without and with TensorFlow's determinism, which cannot be
disabled. It takes the arguments of train.py, and fails unless training.deterministic enables
determinism and both give the same weights.
"""

import sys
from pathlib import Path

import tensorflow as tf


def test_training_works_and_is_the_same_with_deterministic_operations(trained_run, tmp_path):
    """On one device and on two, in parts; a GPU's operations are not tested."""
    from command_line import run_command

    options = [*trained_run.options, "--output", str(tmp_path / "run")]
    options += ["--batch-tokens", "512", "--max-tokens-per-device", "256"]
    options += ["--set", f"data.tokenizer={trained_run.path / 'tokenizer.model'}"]
    options += ["--stop-after", "2 steps"]  # before any evaluation
    done = run_command([sys.executable, __file__, *options])
    assert done.returncode == 0, done.stderr.decode()
    assert b"stopped at step 2 by `stop_after`" in done.stdout + done.stderr


def trained(scatter: bool):
    """Trains on two devices, in parts, with dropout."""
    from replicas import batches, dataset, guesser, metrics, strategy_of

    from tf_transformer.models.losses import LabelSmoothedCrossEntropy

    loss = LabelSmoothedCrossEntropy(0.1, scatter=scatter)
    with strategy_of(2).scope():
        model = guesser(dropout=0.1)
        model.compile("adam", loss, metrics=metrics(), max_tokens_per_device=8)
    model.fit(dataset(batches()), shuffle=False, verbose=0)
    return model


def compare(arguments: list[str]) -> None:
    from replicas import distance, guesser
    from tensorflow.python.framework import config

    from tf_transformer.cli.main import main

    plain = trained(scatter=True)
    assert not config.is_op_determinism_enabled()
    assert main(["train", *arguments, "--set", "training.deterministic=true"]) == 0
    assert config.is_op_determinism_enabled()
    assert distance(trained(scatter=False), plain) == 0
    assert distance(guesser(), plain) > 1e-3


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    compare(sys.argv[1:])
