"""Checkpoints: nothing is forgotten, nothing damaged is used, nothing is lost."""

import zipfile
from contextlib import suppress
from pathlib import Path

import keras
import numpy as np
import pytest

from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import (
    CheckpointFolder,
    average_checkpoints,
    load_weights,
    restore_state,
    save_state,
    save_weights,
)
from tf_transformer.run.weight_files import (
    best_scores,
    is_valid,
    read_arrays,
    save_best,
    write_arrays,
)
from tf_transformer.training.recipe import compile_model

ARCHITECTURE = {"vocab_size": 16, "num_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}


def transformer(precision: str = "float32", **changes: object) -> Transformer:
    """A compiled Transformer with dropout; names do not depend on what was built before."""
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
def test_a_restored_model_goes_on_bit_for_bit(tmp_path, precision):
    keras.utils.set_random_seed(1)
    model = transformer(precision)
    train_steps(model, range(3))
    save_state(tmp_path / "a.npz", model, {})
    train_steps(model, range(3, 6))

    keras.utils.set_random_seed(2)
    other = transformer(precision)  # with a history of its own, which must not shine through
    train_steps(other, range(7, 9))
    restore_state(tmp_path / "a.npz", other)
    train_steps(other, range(3, 6))
    np.testing.assert_equal(weights(other), weights(model))
    np.testing.assert_equal(optimizer_state(other), optimizer_state(model))


def test_restoring_brings_back_the_dropout_masks(tmp_path):
    model = transformer(dropout=0.5)
    ids = np.full([2, 3], 5)
    save_state(tmp_path / "a.npz", model, {})
    first, second = (model({"source": ids, "target": ids}, training=True) for _ in "ab")
    restore_state(tmp_path / "a.npz", model)
    again = model({"source": ids, "target": ids}, training=True)
    np.testing.assert_array_equal(again, first)
    assert np.abs(second - first).max() > 0


def test_a_fresh_optimizer_is_built_before_it_is_restored(tmp_path):
    model = small_model()
    model.train_on_batch(np.ones([2, 3]), np.ones([2, 2]))
    save_state(tmp_path / "a.npz", model, {})
    fresh = keras.models.clone_model(model)
    fresh.compile(keras.optimizers.Adam(name="adam"), "mse")
    restore_state(tmp_path / "a.npz", fresh)
    assert int(fresh.optimizer.iterations) == 1
    np.testing.assert_equal(optimizer_state(fresh), optimizer_state(model))


def test_loading_weights_leaves_the_optimizer_alone(tmp_path):
    model, other = small_model(), small_model()
    model.train_on_batch(np.ones([2, 3]), np.ones([2, 2]))
    save_weights(tmp_path / "a.npz", model)
    load_weights(tmp_path / "a.npz", other)
    np.testing.assert_equal(weights(other), weights(model))
    assert int(other.optimizer.iterations) == 0


def test_weights_load_into_a_model_that_is_not_compiled(tmp_path):
    model = transformer()
    save_weights(tmp_path / "a.npz", model)
    other = Transformer(**ARCHITECTURE)
    load_weights(tmp_path / "a.npz", other)
    np.testing.assert_equal(weights(other), weights(model))


@pytest.mark.parametrize(
    "changes", [{"d_ff": 16}, {"num_layers": 2}, {"tie_embeddings": False}, {"d_model": 16}]
)
def test_another_architecture_is_refused_and_nothing_is_assigned(tmp_path, changes):
    stored, model = Transformer(**ARCHITECTURE), Transformer(**ARCHITECTURE | changes)
    for here, there in [(stored, model), (model, stored)]:  # more weights, and fewer
        here.compile(keras.optimizers.Adam(name="adam"))
        save_weights(tmp_path / "a.npz", here)
        before = weights(there)
        with pytest.raises(UserError, match="is of another model. Expected .* Received"):
            load_weights(tmp_path / "a.npz", there)
        np.testing.assert_equal(weights(there), before)


def test_an_average_does_not_pass_for_a_checkpoint(tmp_path):
    model = small_model()
    save_weights(tmp_path / "a.npz", model)
    average_checkpoints([tmp_path / "a.npz"], tmp_path / "average.npz")
    with pytest.raises(UserError, match=r"Expected optimizer/.*Received: \(none\)"):
        restore_state(tmp_path / "average.npz", model)


def test_the_average_is_the_mean_of_the_weights(tmp_path):
    paths, kernels = [], []
    for index in range(3):
        model = small_model()
        paths.append(tmp_path / f"{index}.npz")
        save_weights(paths[-1], model)
        kernels.append(model.get_weights()[0])
    average_checkpoints(paths, tmp_path / "average.npz")
    load_weights(tmp_path / "average.npz", model)
    np.testing.assert_allclose(model.get_weights()[0], np.mean(kernels, 0), rtol=1e-6)


def test_the_average_of_equal_checkpoints_is_exact(folder, tmp_path):
    paths = [saved(folder, step, value=0.1) for step in range(7)]
    average_checkpoints(paths, tmp_path / "average.npz")
    model = small_model()
    load_weights(tmp_path / "average.npz", model)
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, np.float32(0.1))


def test_rotation_keeps_the_newest_the_best_and_two_states(folder):
    for step in (5, 10, 100, 20):
        saved(folder, step)
        saved_state(folder, step)
    folder.best.write_bytes(b"best")
    for keep, steps in ((3, [10, 20, 100]), (1, [100]), (2, [100])):
        folder.rotate(keep)
        assert (folder.steps(), folder.state_steps()) == (steps, [20, 100])
    assert folder.best.exists()


def test_a_start_clears_away_what_killed_processes_left(folder):
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


def test_training_does_not_start_over_because_all_states_are_damaged(folder):
    for step in (5, 6):
        saved_state(folder, step).write_bytes(b"damaged")
    with pytest.raises(UserError, match="All 2 states in .* are damaged"):
        folder.latest_state()


def test_last_returns_the_newest_oldest_first(folder):
    for step in (5, 100_000_000, 20):
        saved(folder, step)
    assert folder.last(2) == [folder.step_path(20), folder.step_path(100_000_000)]
    assert len(folder.last(9)) == 3


def test_checkpoints_are_found_by_name(folder):
    with pytest.raises(UserError, match="no checkpoint 'best'. There is none yet"):
        folder.find("best")
    for step in (5, 20):
        saved(folder, step)
    folder.average.write_bytes(b"average")
    assert folder.find("last") == folder.find("20") == folder.step_path(20)
    assert folder.find("average") == folder.average
    with pytest.raises(UserError, match="'best'. There are: average, 5, 20, last"):
        folder.find("best")


def test_there_is_no_latest_state_in_an_empty_or_missing_folder(folder):
    assert folder.latest_state() is None
    folder.path.mkdir()
    assert folder.latest_state() is None


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_the_latest_state_is_not_a_truncated_one(folder, caplog, keep):
    saved_state(folder, 5)
    newest = saved_state(folder, 10)
    assert folder.latest_state() == newest
    assert not caplog.messages
    newest.write_bytes(newest.read_bytes()[:keep])
    assert folder.latest_state() == folder.state_path(5)
    assert caplog.messages == ["checkpoint of step 10 is damaged: not used"]


def test_the_latest_state_is_not_one_with_a_flipped_bit(folder):
    saved_state(folder, 5, value=1.5)
    newest = saved_state(folder, 10, value=1.5)
    content = bytearray(newest.read_bytes())
    content[content.index(np.float32(1.5).tobytes())] ^= 1
    newest.write_bytes(content)
    assert folder.latest_state() == folder.state_path(5)
    with pytest.raises(UserError, match="is damaged"):
        restore_state(newest, small_model())


def test_a_state_gives_back_the_progress_it_was_given(tmp_path):
    progress = {"data_step": np.int64(7), "mean/0000": np.float32([1.5, 2.5])}
    save_state(tmp_path / "a.npz", small_model(), progress)
    np.testing.assert_equal(restore_state(tmp_path / "a.npz", small_model()), progress)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_never_a_state(folder, wrong):
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
    with pytest.raises(UserError, match="no good checkpoint to average among 1"):
        average_checkpoints(paths[1:2], tmp_path / "average.npz")


def test_the_best_weights_carry_their_scores(folder):
    assert best_scores(folder.best) == {}
    save_best(saved(folder, 5, value=1.5), folder.best, {"bleu": 30.5})
    assert best_scores(folder.best) == {"bleu": 30.5}
    model = small_model()
    load_weights(folder.best, model)
    assert float(model.get_weights()[0][0, 0]) == 1.5
    folder.best.write_bytes(folder.best.read_bytes()[:-9])
    assert best_scores(folder.best) == {}


def test_no_flipped_bit_loads_other_weights(tmp_path):
    """All over the file: the damage is seen, or it has done none."""
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
def test_what_is_no_checkpoint_is_a_user_error(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    assert not is_valid(tmp_path / "a.npz")
    with pytest.raises(UserError, match="is damaged"):
        load_weights(tmp_path / "a.npz", small_model())


def test_a_missing_checkpoint_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="There is no checkpoint"):
        load_weights(tmp_path / "a.npz", small_model())


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(folder, largest_file):
    path = saved(folder, 5, value=1.0)
    before = path.read_bytes()
    for file in (path, folder.step_path(6)):
        with pytest.raises(UserError, match="Cannot write"), largest_file(len(before) // 2):
            save_weights(file, small_model())
    assert path.read_bytes() == before
    assert list(folder.path.iterdir()) == [path]


def test_a_checkpoint_is_a_plain_archive_of_named_arrays(tmp_path):
    save_state(tmp_path / "a.npz", small_model(), {"data_step": np.int64(3)})
    assert {
        "progress/data_step",
        "model/small/dense/kernel",
        "model/small/dense/bias",
        "optimizer/adam/iteration",
    } <= {name.removesuffix(".npy") for name in zipfile.ZipFile(tmp_path / "a.npz").namelist()}


def corrupted(array: np.ndarray) -> dict[str, np.ndarray]:
    spoiled = array.copy()
    spoiled.flat[0] = np.nan
    return {
        "strings": np.full(array.shape, "0.5"),
        "bytes": np.full(array.shape, b"0.5"),
        "complex": array + 1j,
        "dates": np.zeros(array.shape, "datetime64[s]"),
        "integers": array.astype(int),
        "objects": array.astype(object),
        "no number": spoiled,
        "another shape": array[:1],
        "a record": np.zeros(array.shape, [("x", "f4")]),
    }


KINDS = list(corrupted(np.zeros([2, 2])))


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_are_no_weights_are_refused_and_nothing_is_assigned(tmp_path, kind):
    model, path = small_model(), tmp_path / "a.npz"
    before, arrays = weights(model), {f"model/{k}": v for k, v in weights(model).items()}
    name = f"model/{model.trainable_variables[0].path}"
    np.savez(path, **arrays | {name: corrupted(arrays[name])[kind]})
    with pytest.raises(UserError, match="The checkpoint .*a.npz (must|is)") as raised:
        load_weights(path, model)
    assert "\n" not in str(raised.value)
    np.testing.assert_equal(weights(model), before)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"objects"}))
def test_such_arrays_are_not_averaged(folder, tmp_path, kind):
    paths = [saved(folder, step, 1.0) for step in (1, 2)]
    arrays = read_arrays(paths[1])
    name = next(iter(arrays))
    write_arrays(paths[1], arrays | {name: corrupted(arrays[name])[kind]})
    with pytest.raises(UserError, match="step-00000002.npz (must|is of another model)"):
        average_checkpoints(paths, tmp_path / "mean.npz")
    assert not (tmp_path / "mean.npz").exists()


def test_a_file_that_is_no_archive_of_arrays_is_one_line(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/dense/kernel", b"text in place of an array")
    with pytest.raises(UserError, match="a.npz is damaged"):
        load_weights(path, small_model())
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UserError, match="a.npz is damaged"):
        load_weights(path, small_model())
    assert not is_valid(path)
    np.savez(path, members=np.zeros(3))
    assert not is_valid(path)


def test_scores_that_are_no_numbers_are_none(tmp_path):
    save_weights(tmp_path / "a.npz", small_model())
    save_best(tmp_path / "a.npz", tmp_path / "b.npz", {"bleu": 1.0})
    write_arrays(
        tmp_path / "b.npz", read_arrays(tmp_path / "b.npz") | {"best/bleu": np.array("one")}
    )
    assert best_scores(tmp_path / "b.npz") == {}
