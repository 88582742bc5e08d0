"""The independent Transformer in PyTorch learns exactly as ours from equal weights."""

import batches
import learning_ours
import pytest

pytest.importorskip("torch")

import learning_peer  # noqa: E402

MODEL = {
    "vocab_size": 1000, "num_layers": 2, "d_model": 32, "d_ff": 64, "num_heads": 4,
    "dropout": 0.0, "attention_bias": True, "norm_epsilon": 1e-5,
}  # fmt: skip
# At rates that make so small a model jump, rounding grows to 2e-3 within 25 steps.
TRAINING = {"warmup_steps": 400, "learning_rate_scale": 1.0, "label_smoothing": 0.1}
STEPS = 25


@pytest.fixture(scope="module")
def batch_file(prepared, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("peer") / "batches.npz")
    batches.setup(prepared, batch_tokens=512, number=STEPS, in_order=True)["write"](path)
    return path


@pytest.mark.parametrize("norm_first", [False, True])
def test_losses_without_dropout_are_equal_for_25_steps(batch_file, norm_first, tmp_path):
    settings = MODEL | {"norm_first": norm_first}
    ours = learning_ours.setup(batch_file, settings, TRAINING, seed=1)
    peer = learning_peer.setup(batch_file, settings, TRAINING, seed=2)
    weights = str(tmp_path / "start.npz")
    ours["start"](weights)
    peer["start_from"](weights)
    expected = [ours["train"](step, 1) for step in range(STEPS)]
    found = [peer["train"](step, 1) for step in range(STEPS)]
    for name in ("loss", "nats"):
        losses = [each[name] for each in expected]
        assert [each[name] for each in found] == pytest.approx(losses, abs=1e-5, rel=0)
    assert losses[-1] < losses[0] - 0.3


def test_a_restored_peer_goes_on_as_if_it_had_not_stopped(batch_file, tmp_path):
    settings, state = MODEL | {"dropout": 0.3, "norm_first": True}, str(tmp_path / "state.npz")
    whole = learning_peer.setup(batch_file, settings, TRAINING, seed=1)
    whole["train"](0, 3)
    whole["save"](state)
    expected = whole["train"](3, 3)
    other = learning_peer.setup(batch_file, settings, TRAINING, seed=9)
    other["restore"](state)
    assert other["train"](3, 3) == pytest.approx(expected, rel=1e-6)
