"""Checkpoints: complete, rotated, never used if damaged; the best are chosen and restored."""

from contextlib import suppress
from pathlib import Path

import keras
import numpy as np
import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import (
    BestWeights,
    CheckpointFolder,
    add_record,
    average_checkpoints,
    best_dev_set,
    best_scores,
    is_valid,
    load_weights,
    read_arrays,
    restore_state,
    save_best,
    save_state,
    save_weights,
    write_arrays,
)
from tf_transformer.run.run import NOT_EVALUATED, what_is_unfinished
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


def test_restoring_repeats_the_dropout_masks(tmp_path):
    model = transformer(dropout=0.5)
    ids = np.full([2, 3], 5)
    save_state(tmp_path / "a.npz", model, {})
    first, second = (model({"source": ids, "target": ids}, training=True) for _ in "ab")
    restore_state(tmp_path / "a.npz", model)
    repeated = model({"source": ids, "target": ids}, training=True)
    np.testing.assert_array_equal(repeated, first)
    assert np.abs(second - first).max() > 0


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


def test_best_weights_hold_the_scores_that_chose_them(tmp_path):
    source, best = tmp_path / "a.npz", tmp_path / "best.npz"
    assert best_scores(best) == {}
    save_weights(source, filled(1.5))
    save_best(source, best, {"bleu": 30.5}, "dev")
    assert best_scores(best) == {"bleu": 30.5}
    model = small_model()
    load_weights(best, model)
    assert float(model.get_weights()[0][0, 0]) == 1.5
    best.write_bytes(best.read_bytes()[:-9])
    assert best_scores(best) == {}


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


SCORES = {10: 0.3, 20: 0.666, 30: 0.514}


def evaluation(step: int, score: float, **more: object) -> dict[str, object]:
    record = {"step": step, "valid_bleu": score, "dev_set": "one"}
    return record | {"train_seconds": 3.0, "tokens_per_second": 400.0} | more


HISTORY = [evaluation(step, score) for step, score in SCORES.items()]


@pytest.fixture
def three(tmp_path) -> CheckpointFolder:
    """Three steps whose weights equal their number, and the best of them."""
    folder = CheckpointFolder(tmp_path)
    for step in SCORES:
        write_arrays(folder.step_path(step), {"model/w": np.full(3, step, np.float32)})
    save_best(folder.step_path(20), folder.best, {"bleu": 0.666}, "one")
    return folder


@pytest.fixture
def best(three) -> BestWeights:
    return BestWeights(three, "bleu", "one")


def best_step(folder: CheckpointFolder) -> int:
    return int(read_arrays(folder.best)["model/w"][0])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_intact_best_weights_are_kept_silently(three, best, caplog):
    before = three.best.read_bytes()
    best.mend(HISTORY)
    best.mend([])
    assert three.best.read_bytes() == before
    assert caplog.messages == []


@pytest.mark.parametrize(("damage", "word"), [(flip, "is damaged"), (Path.unlink, "is gone")])
def test_lost_best_weights_are_restored_from_their_step(three, best, caplog, damage, word):
    damage(three.best)
    assert not best.offer(three.step_path(30), evaluation(40, 0.6), HISTORY)
    assert (best_step(three), best_scores(three.best)) == (20, {"bleu": 0.666})
    assert caplog.messages == [f"{three.best} {word}: restored from step-00000020.npz"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_if_the_best_step_is_not_kept_the_loss_is_reported(three, best, caplog, damage):
    three.best.unlink()
    damage(three.step_path(20))
    best.mend(HISTORY)
    assert (best_step(three), best_scores(three.best)) == (30, {"bleu": 0.514})
    assert "step-00000030.npz; better ones, of step 20, are no longer kept" in caplog.text
    best.mend(HISTORY)
    assert len(caplog.messages) == 1  # not repeated


def test_if_nothing_is_kept_the_next_evaluation_is_the_best(three, best, caplog):
    for path in (three.best, *map(three.step_path, SCORES)):
        path.unlink()
    write_arrays(three.step_path(40), {"model/w": np.full(3, 40, np.float32)})
    assert best.offer(three.step_path(40), evaluation(40, 0.1), HISTORY)
    assert best_step(three) == 40
    assert "the next evaluation replaces it" in caplog.text


def test_higher_scores_on_an_earlier_dev_set_do_not_replace_the_best(three):
    best = BestWeights(three, "bleu", "two")
    assert best.offer(three.step_path(30), evaluation(40, 0.1, dev_set="two"), HISTORY)
    assert (best_step(three), best_dev_set(three.best)) == (30, "two")
    history = [*HISTORY, evaluation(40, 0.1, dev_set="two")]
    assert not best.offer(three.step_path(10), evaluation(50, 0.05), history)


@pytest.mark.parametrize(
    ("scores", "patience", "used_up"),
    [
        ([], 1, False),
        ([10, 20], 1, False),
        ([20, 10], 1, True),
        ([10, 10], 1, True),  # equal is not better
        ([30, 10, 20], 2, True),
        ([30, 10, 20], 3, False),
        ([30, 20, 10, 0], 0, False),  # 0 is off
        ([-9.0, -7.0, -8.0], 1, True),
    ],
)
def test_patience_counts_evaluations_without_a_better_score(best, scores, patience, used_up):
    records = [evaluation(step, score) for step, score in enumerate(scores)]
    assert best.patience_used_up(records, patience) is used_up
    foreign = evaluation(99, 99.0, dev_set="another")
    assert best.patience_used_up([*records, foreign], patience) is used_up


def test_a_run_is_finished_when_the_average_of_its_last_step_is_evaluated(tmp_path):
    run = Run(tmp_path, Config())
    run.checkpoints.path.mkdir()
    run.write_history([evaluation(20, 0.5, valid_perplexity=2.0)])
    assert what_is_unfinished(run, 20) == "its average.npz is missing"
    write_arrays(run.checkpoints.average, {"model/w": np.ones(3)})
    assert what_is_unfinished(run, 20) == NOT_EVALUATED
    add_record(run.checkpoints.average, evaluation(20, 0.6))
    assert what_is_unfinished(run, 20) == ""
    run.write_history([evaluation(30, 0.6, valid_perplexity=2.0)])
    assert what_is_unfinished(run, 30) == "its training has not ended"  # an older average


def test_a_run_on_the_built_in_corpus_is_finished_when_its_patience_is_used_up(tmp_path):
    """Its dev text is in no record of files."""
    run = Run(tmp_path, Config().replace({"training.patience": 1}))
    run.checkpoints.path.mkdir()
    two = [evaluation(step, 0.6, valid_perplexity=2.0) for step in (20, 30)]
    run.write_history(two)
    write_arrays(run.checkpoints.average, {"model/w": np.ones(3)})
    add_record(run.checkpoints.average, evaluation(30, 0.5))
    assert what_is_unfinished(run, 99) == ""
    run.write_history([two[0], two[1] | {"valid_bleu": 0.7}])
    assert what_is_unfinished(run, 99) == "its training has not ended"
