"""The loss is the mean over the real tokens of a batch, wherever it is computed.

Fails when each device divides the sum of its losses by the number of its own tokens.
"""

from pathlib import Path

import numpy as np
import pytest

from tf_transformer import LabelSmoothedCrossEntropy


def test_the_loss_is_the_mean_over_real_tokens():
    logits = np.random.default_rng(1).normal(size=(3, 4, 9))
    labels = np.array([[5, 6, 7, 3], [8, 3, 0, 0], [3, 0, 0, 0]])  # 0 is padding
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -((0.9 * np.eye(9)[labels] + 0.1 / 9) * log_probs).sum(axis=-1)
    mean = losses[labels > 0].sum() / 7
    assert float(LabelSmoothedCrossEntropy(0.1)(labels, logits)) == pytest.approx(mean)


def weights_and_moments(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the only state in a run; its progress has a sum for each device."""
    (file,) = folder.rglob("*.npz")
    with np.load(file) as arrays:
        tensors = {name: arrays[name] for name in arrays if not name.startswith("progress/")}
    return {name: a for name, a in tensors.items() if a.ndim and a.dtype.kind == "f"}


def test_training_is_the_same_on_several_devices_and_in_parts(run, corpus, tmp_path):
    def after_three_updates(name: str, *options: object) -> dict[str, np.ndarray]:
        options += ("--stop-after", "3 steps", "--output", tmp_path / name)
        run("train.py", *corpus, *options)
        return weights_and_moments(tmp_path / name)

    whole = after_three_updates("whole", "--max-tokens-per-device", 0)
    for other in (
        after_three_updates("devices", "--devices", 4),
        after_three_updates("parts", "--max-tokens-per-device", 100),
    ):
        assert whole.keys() == other.keys()
        for name, expected in whole.items():
            close = 1e-4 * np.abs(expected).max()
            np.testing.assert_allclose(other[name], expected, rtol=0, atol=close, err_msg=name)
        # Rounded otherwise, since it was computed otherwise.
        assert any((other[name] != expected).any() for name, expected in whole.items())
