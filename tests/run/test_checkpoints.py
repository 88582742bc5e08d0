"""Checkpoints: complete, rotated, never used if damaged; the best are chosen and restored."""

from contextlib import suppress
from pathlib import Path

import keras
import numpy as np
import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import (
    CheckpointFolder,
    average_checkpoints,
    is_valid,
    load_weights,
    read_arrays,
    restore_state,
    save_state,
    save_weights,
    write_arrays,
)
from tf_transformer.training.trainer import compile_model

ARCHITECTURE = {"vocab_size": 16, "num_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}


def transformer(precision: str = "float32", **changes: object) -> Transformer:
    """A compiled Transformer with dropout."""
    config = Config(
        model=ModelConfig(**ARCHITECTURE | changes),
        training=TrainingConfig(warmup_steps=10, precision=precision),
    )
    model = Transformer(**ARCHITECTURE | changes, dtype=precision)
    compile_model(model, config)
    model.optimizer.build(model.trainable_variables)
    return model


def train_steps(model: Transformer, steps: range) -> None:
    for step in steps:
        ids = np.random.default_rng(step).integers(4, 16, [4, 6])
        model.train_on_batch({"source": ids, "target": ids}, ids[:, ::-1])


def small_model() -> keras.Model:
    layers = [keras.Input((3,)), keras.layers.Dense(2, name="dense")]
    model = keras.Sequential(layers, name="small")
    model.compile(keras.optimizers.Adam(name="adam"), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def weights(model: keras.Model) -> dict[str, np.ndarray]:
    return {v.path: v.numpy() for v in model.trainable_variables}


def optimizer_state(model: keras.Model) -> dict[str, np.ndarray]:
    return {v.path: v.numpy() for v in model.optimizer.variables}


def filled(value: float) -> keras.Model:
    """A small model with all weights `value`."""
    model = small_model()
    model.set_weights([np.full(w.shape, value) for w in model.get_weights()])
    return model


def saved(folder: CheckpointFolder, step: int, value: float = 0.0) -> Path:
    save_weights(folder.step_path(step), filled(value))
    return folder.step_path(step)


def saved_state(folder: CheckpointFolder, step: int, value: float = 0.0) -> Path:
    save_state(folder.state_path(step), filled(value), {})
    return folder.state_path(step)


@pytest.fixture
def folder(tmp_path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_a_restored_model_continues_bit_for_bit(tmp_path, precision):
    keras.utils.set_random_seed(1)
    model = transformer(precision)
    train_steps(model, range(3))
    save_state(tmp_path / "a.npz", model, {})
    train_steps(model, range(3, 6))

    keras.utils.set_random_seed(2)
    other = transformer(precision)  # with another history, which must leave no trace
    train_steps(other, range(7, 9))
    restore_state(tmp_path / "a.npz", other)
    train_steps(other, range(3, 6))
    np.testing.assert_equal(weights(other), weights(model))
    np.testing.assert_equal(optimizer_state(other), optimizer_state(model))


@pytest.mark.parametrize("changes", [{"d_ff": 16}, {"num_layers": 2}])
def test_another_architecture_is_refused_and_nothing_is_assigned(tmp_path, changes):
    stored, model = Transformer(**ARCHITECTURE), Transformer(**ARCHITECTURE | changes)
    for here, there in [(stored, model), (model, stored)]:
        here.compile(keras.optimizers.Adam(name="adam"))
        save_weights(tmp_path / "a.npz", here)
        before = weights(there)
        with pytest.raises(UserError, match="belongs to another model. Expected .* Received"):
            load_weights(tmp_path / "a.npz", there)
        np.testing.assert_equal(weights(there), before)


def test_rotation_keeps_the_newest_the_best_and_two_states(folder):
    for step in (5, 10, 100, 20):
        saved(folder, step)
        saved_state(folder, step)
    folder.best.write_bytes(b"best")
    for keep, steps in ((3, [10, 20, 100]), (1, [100]), (2, [100])):
        folder.rotate(keep)
        assert (folder.steps(), folder.state_steps()) == (steps, [20, 100])
    assert folder.best.exists()


def test_files_left_by_killed_processes_are_deleted(folder):
    saved(folder, 5)
    (folder.path / ".step-00000006.npz.4242.tmp").write_bytes(b"half")
    folder.clear(None)
    assert [path.name for path in folder.path.iterdir()] == ["step-00000005.npz"]


def test_damaged_states_do_not_outlive_newer_good_ones(folder):
    """They have higher numbers, so a rotation would keep them and delete the good ones."""
    good = saved_state(folder, 5)
    for step in (15, 16):
        saved_state(folder, step).write_bytes(b"damaged")
    assert folder.latest_state() == good
    folder.clear(good)
    for step in (6, 7):
        saved_state(folder, step)
        folder.rotate(keep=1)
    assert folder.state_steps() == [6, 7]


def test_training_does_not_start_over_if_all_states_are_damaged(folder):
    for step in (5, 6):
        saved_state(folder, step).write_bytes(b"damaged")
    with pytest.raises(UserError, match="All 2 states in .* are damaged"):
        folder.latest_state()


def test_checkpoints_are_found_by_name(folder):
    with pytest.raises(UserError, match="no checkpoint 'best'. There is none yet"):
        folder.find("best")
    state = saved_state(folder, 7)
    damaged = saved_state(folder, 9)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert folder.find("last") == state  # before the first evaluation
    with pytest.raises(UserError, match="'best'. There are: last, until training.evaluate_eve"):
        folder.find("best")
    for step in (5, 20):
        saved(folder, step)
    folder.average.write_bytes(b"average")
    assert folder.find("last") == folder.find("20") == folder.step_path(20)
    assert folder.find("average") == folder.average
    with pytest.raises(UserError, match="'best'. There are: average, 5, 20, last"):
        folder.find("best")


def change_weight(content: bytes) -> bytes:
    return content.replace(np.float32(1.5).tobytes(), np.float32(1.25).tobytes(), 1)


@pytest.mark.parametrize(
    "damage",
    [change_weight, *(lambda content, end=end: content[:end] for end in (0, 1, 100, -1))],
)
def test_a_damaged_state_is_skipped(folder, caplog, damage):
    saved_state(folder, 5, value=1.5)
    newest = saved_state(folder, 10, value=1.5)
    assert folder.latest_state() == newest
    assert not caplog.messages
    newest.write_bytes(damage(newest.read_bytes()))
    assert folder.latest_state() == folder.state_path(5)
    assert caplog.messages == ["checkpoint of step 10 is damaged: not used"]
    with pytest.raises(UserError, match="is damaged"):
        restore_state(newest, small_model())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_non_finite_weights_are_never_saved_as_a_state(folder, wrong):
    saved_state(folder, 5)
    with pytest.raises(UserError, match="model/small/dense/kernel is not finite"):
        saved_state(folder, 6, value=wrong)
    assert folder.state_steps() == [5]


def test_a_damaged_checkpoint_is_left_out_of_an_average(folder, tmp_path, caplog):
    paths = [saved(folder, step, value=step) for step in (1, 2, 3)]
    paths[1].write_bytes(paths[1].read_bytes()[:-50])
    assert average_checkpoints(paths, tmp_path / "average.npz") == [paths[0], paths[2]]
    assert "step-00000002.npz is damaged: left out" in caplog.text
    model = small_model()
    load_weights(tmp_path / "average.npz", model)
    np.testing.assert_array_equal(model.get_weights()[0], 2.0)
    with pytest.raises(UserError, match="no intact checkpoint among the 1 to average"):
        average_checkpoints(paths[1:2], tmp_path / "average.npz")


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(folder, largest_file):
    path = saved(folder, 5, value=1.0)
    before = path.read_bytes()
    for file in (path, folder.step_path(6)):
        with pytest.raises(UserError, match="Cannot write"), largest_file(len(before) // 2):
            save_weights(file, small_model())
    assert path.read_bytes() == before
    assert list(folder.path.iterdir()) == [path]


def test_no_flipped_bit_loads_other_weights(tmp_path):
    """Wherever a bit is flipped, the damage is detected or harmless."""
    path, model = tmp_path / "a.npz", small_model()
    save_weights(path, model)
    expected, intact = weights(model), path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(intact), 5):
        content = bytearray(intact)
        content[position] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        if is_valid(path):
            load_weights(path, model)
        else:
            with suppress(UserError):  # the damage may be in what decoding does not need
                load_weights(path, model)
        np.testing.assert_equal(weights(model), expected)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a checkpoint"])
def test_a_missing_or_damaged_checkpoint_is_a_user_error(tmp_path, content):
    path = tmp_path / "a.npz"
    with pytest.raises(UserError, match="There is no checkpoint"):
        load_weights(path, small_model())
    path.write_bytes(content)
    assert not is_valid(path)
    with pytest.raises(UserError, match="is damaged"):
        load_weights(path, small_model())


def corrupted(array: np.ndarray) -> dict[str, np.ndarray]:
    spoiled = array.copy()
    spoiled.flat[0] = np.nan
    return {
        "strings": np.full(array.shape, "0.5"),
        "integers": array.astype(int),
        "objects": array.astype(object),
        "no number": spoiled,
        "another shape": array[:1],
    }


@pytest.mark.parametrize("kind", corrupted(np.zeros([2, 2])))
def test_invalid_arrays_are_neither_loaded_nor_averaged(tmp_path, kind):
    model, good, bad = small_model(), tmp_path / "good.npz", tmp_path / "bad.npz"
    save_weights(good, model)
    before, arrays = weights(model), read_arrays(good)
    name = next(iter(arrays))
    write_arrays(bad, arrays | {name: corrupted(arrays[name])[kind]})
    refused = "^The checkpoint .*bad.npz (must|is damaged|belongs)[^\n]*$"
    with pytest.raises(UserError, match=refused):
        load_weights(bad, model)
    np.testing.assert_equal(weights(model), before)
    with pytest.raises(UserError, match=refused):
        average_checkpoints([good, bad], tmp_path / "mean.npz")
    assert not (tmp_path / "mean.npz").exists()
