"""Weight files: damage is detected, and only finite numbers of the right shapes are loaded."""

import zipfile
from contextlib import suppress

import numpy as np
import pytest
from test_checkpoints import filled, small_model, weights

from tf_transformer.errors import UserError
from tf_transformer.run.checkpoints import average_checkpoints, load_weights, save_weights
from tf_transformer.run.weight_files import (
    best_scores,
    is_valid,
    read_arrays,
    save_best,
    write_arrays,
)


def test_best_weights_hold_the_scores_that_chose_them(tmp_path):
    source, best = tmp_path / "a.npz", tmp_path / "best.npz"
    assert best_scores(best) == {}
    save_weights(source, filled(1.5))
    save_best(source, best, {"bleu": 30.5}, "dev")
    assert best_scores(best) == {"bleu": 30.5}
    model = small_model()
    load_weights(best, model)
    assert float(model.get_weights()[0][0, 0]) == 1.5
    write_arrays(best, read_arrays(best) | {"best/bleu": np.array("one")})
    assert best_scores(best) == {}
    save_best(source, best, {"bleu": 30.5}, "dev")
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
        "bytes": np.full(array.shape, b"0.5"),
        "complex": array + 1j,
        "dates": np.zeros(array.shape, "datetime64[s]"),
        "integers": array.astype(int),
        "objects": array.astype(object),
        "no number": spoiled,
        "another shape": array[:1],
        "a record": np.zeros(array.shape, [("x", "f4")]),
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


def test_a_file_without_named_arrays_is_a_user_error(tmp_path):
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
