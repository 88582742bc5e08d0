"""int8 products, and models that compute with them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from command_line import assert_refused
from tensorflow.python.framework import op_def_library
from trained import quick_export

import tf_transformer
from tf_transformer.base.errors import UserError
from tf_transformer.config import BOS_ID
from tf_transformer.data import builtin
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.interface import column
from tf_transformer.decoding.rules import Prefixes
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.fast import int8
from tf_transformer.fast.int8 import Int8Kernel, int8_works, plain_product, rounded_columns
from tf_transformer.models.ensemble import Ensemble
from tf_transformer.models.transformer import Transformer

RNG = np.random.default_rng(1)

# `ONEDNN_MAX_CPU_ISA=AVX2 make test` imitates processors without VNNI.
needs_int8 = pytest.mark.skipif(
    not int8_works(), reason="TensorFlow's int8 products are an operation of oneDNN, for x86"
)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def product(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """x @ kernel in int8, with the weights in variables."""
    weights = map(tf.Variable, rounded_columns(kernel))
    return Int8Kernel(*weights).multiply(tf.constant(x)).numpy()


@needs_int8
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 16, 8), (5, 64, 300), (40, 512, 7)])
def test_a_product_is_that_of_numpy_and_near_the_one_in_float32(rows, inner, columns):
    x, kernel = normal(rows, inner), normal(inner, columns)
    x[-1, :3], kernel[:, 0] = 30.0, 0.0
    found, exact = product(x, kernel), x @ kernel
    np.testing.assert_array_equal(found, plain_product(x, kernel))
    assert np.std(found - exact) < 0.025 * np.std(exact)
    ends = np.sign(x), np.sign(kernel)  # all at the ends of their ranges
    np.testing.assert_array_equal(product(*ends), plain_product(*ends))


@needs_int8
def test_a_row_does_not_depend_on_its_neighbours():
    x, kernel = normal(6, 32), normal(32, 10)
    x[0] *= 1e6
    x[1] = 0.0
    for row, alone in zip(product(x, kernel), x, strict=True):
        np.testing.assert_array_equal(row, product(alone[np.newaxis], kernel)[0])


@needs_int8
def test_kernels_side_by_side_give_their_products_side_by_side():
    x, kernels = normal(3, 16), [normal(16, size) for size in (4, 4, 6)]
    first, *others = (Int8Kernel(*map(tf.constant, rounded_columns(k))) for k in kernels)
    joined = first.join(others)
    assert joined.shape == (16, 14)
    np.testing.assert_array_equal(
        joined.multiply(tf.constant(x)), np.hstack([product(x, kernel) for kernel in kernels])
    )


def test_rows_of_an_embedding_are_the_columns_of_its_kernel():
    embeddings = normal(20, 8)
    kernel = Int8Kernel(*map(tf.constant, rounded_columns(embeddings.T)))
    ids = np.array([[3, 0], [19, 3]])
    error = np.abs(kernel.rows(ids) - embeddings[ids])
    assert np.all(error <= np.abs(embeddings[ids]).max(-1, keepdims=True) / 127)


# --- Models ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(trained_run):
    return tf_transformer.load(trained_run.path, precision="int8")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [source for source, _ in builtin.pairs(16)]


@needs_int8
def test_a_translation_depends_on_its_sentence_alone(translator, texts):
    for text, found in zip(texts, translator.translate(texts), strict=True):
        alone = translator.translate(text)
        assert alone == found
        # A difference in the last bit can move a value to the next of int8.
        assert alone.log_prob == pytest.approx(found.log_prob, rel=0.01)


@needs_int8
def test_every_kind_of_search_computes_in_int8(translator, trained_run, texts):
    exact = tf_transformer.load(trained_run.path)
    best, scored = translator.translate(texts), exact.score(texts, translator.translate(texts))
    far = [abs(one.log_prob - other.log_prob) for one, other in zip(best, scored, strict=True)]
    assert 1e-4 < max(far) < 0.5  # it is int8, and not far from float32
    again = translator.score(texts, best)
    for one, other in zip(again, best, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=0.01)
    ranked = translator.translate(texts[:2], n_best=3, prefix=["Der", "Ein"])
    assert [len(each) for each in ranked] == [3, 3]
    assert all(text.startswith("Ein") for text in ranked[1])
    assert len(translator.translate(texts[:2], sample=True, seed=2)) == 2
    assert translator.align(texts[0]).pairs


SOURCE = np.array([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0], [11, 3, 0, 0, 0]], "int32")
MODELS = {
    "relative": {"positions": "relative", "activation": "swiglu", "attention_window": 2},
    "rotary": {"positions": "rotary", "activation": "geglu", "tie_embeddings": False},
    "learned": {"positions": "learned", "norm": "rms", "attention_bias": True},
    "none": {"positions": "none", "norm_first": True, "key_dim": 6, "value_dim": 10},
}


def random_pair(settings: dict) -> list[Transformer]:
    """A model with random weights in float32, and the same in int8."""
    keras.utils.set_random_seed(1)
    exact = Transformer(20, num_layers=2, d_model=32, d_ff=64, num_heads=4, **settings)
    exact.set_weights([1.5 * w for w in exact.get_weights()])  # nearly uniform at first
    rounded = Transformer.from_config(exact.get_config())
    rounded.set_weights(exact.get_weights())
    int8.to_int8(rounded)
    return [exact, rounded]


def log_probs(model, tokens: tf.Tensor) -> tf.Tensor:
    """Those of the tokens [3, L] in a full pass, summed; computed eagerly."""
    target = tf.pad(tokens[:, :-1], [[0, 0], [1, 0]], constant_values=BOS_ID)
    logits = model({"source": tf.constant(SOURCE), "target": target})
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits)
    return -tf.reduce_sum(tf.where(tokens == 0, 0.0, losses), axis=1)


@needs_int8
@pytest.mark.parametrize("names", [*((name,) for name in MODELS), ("relative", "none")])
def test_a_search_in_int8_finds_what_a_full_pass_in_int8_scores_alike(names):
    models = zip(*(random_pair(MODELS[name]) for name in names), strict=True)
    exact, rounded = (Ensemble(each) if names[1:] else each[0] for each in models)
    prefix, limits = np.array([[7, 8], [9, 0], [0, 0]], "int32"), tf.constant([8, 6, 7])
    rules = [(Prefixes(), tf.constant(prefix))]

    @tf.function(autograph=False)
    def search(source):
        step, cache = rounded.start_search(source)
        return beam_search(step, cache, limits, rules, beam_size=4)

    found = search(tf.constant(SOURCE))
    tokens = found.tokens[:, 0]
    assert (*tokens[0, :2].numpy(), tokens[1, 0].numpy()) == (7, 8, 9)
    in_int8 = log_probs(rounded, tokens)
    off = np.abs(in_int8 - found.log_probs[:, 0])
    assert np.median(off) < 1e-3  # a difference in the last bit can move a value to the next
    far = np.abs(in_int8 - log_probs(exact, tokens))
    assert 0 < far.min() <= max(*off, *far) < 2.0


def test_keras_saves_no_model_in_int8_and_scales_are_no_parameters(tmp_path):
    exact, rounded = random_pair({})
    assert int8.parameters(rounded) == exact.count_params()
    exact.save(file := tmp_path / "model.keras")
    before = file.read_bytes()
    refused = pytest.raises(UserError, match="save it in float32, or export it")
    with refused:
        rounded.save(file)
    with refused:
        rounded.save_weights(tmp_path / "model.weights.h5")
    assert file.read_bytes() == before


@needs_int8
def test_an_export_in_int8_has_a_quarter_of_the_weights_once(translator, texts, tmp_path):
    folder = quick_export(translator, tmp_path / "small", "with_options", "score")
    (weights,) = folder.glob("variables/*.data-*")
    floats = sum(4 * np.prod(w.shape) for w in translator.model.weights)
    assert 0.2 * floats < weights.stat().st_size < 0.35 * floats
    assert (folder / "saved_model.pb").stat().st_size < 4e6  # graphs without weights
    inputs = {"alpha": [1.0] * 17, "max_length": [0] * 17, "prefix": [""] * 16 + ["Ein"]}
    inputs = {name: np.array(values) for name, values in inputs.items()}
    with ExportEngine(folder) as session:
        answer = session.run("with_options", {"text": column([*texts, texts[0]]), **inputs})
        target = {"source": column(texts[:2]), "target": column(texts[:2])}
        scored = session.run("score", target)["log_prob"]
    *found, begun = (best.decode() for best, *_ in answer["translations"])
    assert found == translator.translate(texts, alpha=1.0)
    assert begun.startswith("Ein")
    expected = [one.log_prob for one in translator.score(texts[:2], texts[:2])]
    assert scored == pytest.approx(expected, rel=0.05)  # as in the self-test


ANSWER = """
import sys
from pathlib import Path
from tf_transformer.base.system import import_tensorflow
import_tensorflow()
from tf_transformer.base.errors import reason
from tf_transformer.decoding.interface import column
from tf_transformer.export.saved_model import ExportEngine
for path in map(Path, sys.argv[1:]):
    with ExportEngine(path) as session:
        try:
            print(session.run("serving_default", {"text": column(["A dog ."])})["translation"])
        except Exception as error:
            print(reason(error))
"""


@needs_int8
def test_an_export_is_right_without_vnni_or_fails_in_one_sentence(
    translator, tmp_path, monkeypatch
):
    exports = [quick_export(translator, tmp_path / "exact", "serving_default")]
    monkeypatch.setattr(int8, "_WEIGHT_LEVELS", np.float32(127))  # too many for such processors
    exports.append(quick_export(translator, tmp_path / "wrong", "serving_default"))
    answers = [
        subprocess.run(
            [sys.executable, "-c", ANSWER, *map(str, exports)],
            env=os.environ | {"ONEDNN_MAX_CPU_ISA": isa},
            check=True, text=True, capture_output=True,
        ).stdout.splitlines()
        for isa in ("AVX2", "DEFAULT")
    ]  # fmt: skip
    old, new = answers
    assert old[0] == new[0] == str(np.array([translator.translate("A dog .").encode()], object))
    assert re.search(
        "Products in int8 are wrong on this machine.*in float32, or in int8", old[1]
    )
    has_vnni = "vnni" in Path("/proc/cpuinfo").read_text("utf-8")
    assert new[1] == (new[0] if has_vnni else old[1])


def absent(*arguments, **options):
    raise tf.errors.NotFoundError(None, None, "No OpKernel was registered")


def wrong(rows, columns, units):
    return tf.zeros([rows.shape[0], columns.shape[0]])


@pytest.mark.parametrize(
    ("place", "name", "instead"),
    [(op_def_library, "_apply_op_helper", absent), (int8, "_quantized_product", wrong)],
    ids=["absent", "wrong"],
)
def test_where_products_are_absent_or_wrong_int8_is_refused_in_one_line(
    trained_run, capsys, monkeypatch, place, name, instead
):
    monkeypatch.setattr(place, name, instead)
    int8_works.cache_clear()
    try:
        line = ["translate", str(trained_run.path), "--precision", "int8"]
        assert_refused(capsys, line, "oneDNN.*for int8 that is exact.*with `litert`", status=1)
    finally:
        int8_works.cache_clear()


@needs_int8
def test_int8_is_exported_in_the_format_it_was_loaded_for(translator, tmp_path):
    with pytest.raises(tf_transformer.UserError, match="must be loaded with `litert=True`"):
        translator.export(tmp_path / "small", format="litert")
