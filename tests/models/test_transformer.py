"""The whole model: its equivalences and its files."""

import dataclasses
import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import batches, dataset, distance, fitted, transformer

from tf_transformer.base.errors import UserError
from tf_transformer.config import BOS_ID, ModelConfig
from tf_transformer.fast.optimizers import Adam, LossScaleOptimizer, step_of
from tf_transformer.layers import BlockOptions
from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenCount,
    TransformerSchedule,
)
from tf_transformer.models.transformer import Transformer

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}
VOCAB_SIZE, DOC = 20, Transformer.__doc__
SOURCE = np.array([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]], "int32")
TARGET = np.array([[2, 11, 12, 13], [2, 14, 15, 0]], "int32")

VARIANTS = {
    "paper": {},
    "pre-LN-untied-shallow": {"norm_first": True, "tie_embeddings": False, "decoder_layers": 1},
    "learned-key_dim": {"positions": "learned", "max_length": 12, "key_dim": 3, "value_dim": 5},
    "biases-swish-none": {
        "attention_bias": True,
        "output_bias": True,
        "activation": "swish",
        "positions": "none",
    },
    "swiglu-rms-rotary": {"activation": "swiglu", "norm": "rms", "positions": "rotary"},
    "relative": {"positions": "relative", "key_dim": 3, "value_dim": 5},
}
EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def make_model(**arguments) -> Transformer:
    """Creates a model from a fixed seed, without dropout."""
    keras.utils.set_random_seed(1)
    return Transformer(VOCAB_SIZE, **(SIZES | {"dropout": 0.0} | arguments))


def logits_of(model: Transformer, source, target) -> np.ndarray:
    """Returns the logits of a forward pass without dropout."""
    return np.asarray(model({"source": source, "target": target}, training=False))


# --- Arguments ---------------------------------------------------------------------------


def test_every_setting_is_an_argument_with_its_default():
    parameters, text = inspect.signature(Transformer).parameters, " ".join(DOC.split())
    options = {field.name for field in dataclasses.fields(BlockOptions)}
    for field in dataclasses.fields(ModelConfig):
        if field.name in parameters:
            assert f"{field.name}: {field.metadata['help']}" in text
            assert parameters[field.name].default in (field.default, inspect.Parameter.empty)
        else:
            assert field.name in options
    assert Transformer(VOCAB_SIZE, **SIZES).config == ModelConfig(vocab_size=20, **SIZES)
    assert "dropout is 0.1, query_key_gain and value_gain are 2^-0.5" in text
    assert (ModelConfig.dropout, ModelConfig.value_gain) == (0.1, 2**-0.5)


def test_unknown_and_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        Transformer(VOCAB_SIZE, **SIZES, width=7)
    with pytest.raises(UserError, match="`num_heads` must divide `d_model`.* num_heads=3"):
        Transformer(VOCAB_SIZE, **SIZES | {"num_heads": 3})


# --- Equivalences ------------------------------------------------------------------------


def walk(variant, by_xla=False) -> dict:
    """Compares steps of beams with full passes over their histories; returns the last cache."""
    model = make_model(**variant)
    random, width = np.random.default_rng(3), 3
    for weight in model.trainable_weights:
        if "bias" in weight.name:  # initially zero
            weight.assign(random.normal(size=weight.shape))
    step, cache = model.start_search(SOURCE, by_xla)
    histories = np.empty((2, width, 0), "int32")
    ancestry = np.empty((2, width, 0), "int32")
    for index in range(6):
        tokens = random.integers(4, VOCAB_SIZE, (2, width)) if index else [[BOS_ID] * 3] * 2
        histories = np.concatenate([histories, np.int32(tokens)[..., None]], axis=-1)
        own = np.broadcast_to(np.arange(width, dtype="int32"), (2, width))[..., None]
        ancestry = np.concatenate([ancestry, own], axis=-1)
        logits, cache = step(histories[..., -1], tf.constant(index), ancestry, cache)

        rows = np.repeat(SOURCE, width, axis=0)
        full = logits_of(model, rows, histories.reshape(2 * width, -1))[:, -1]
        np.testing.assert_allclose(logits, full.reshape(2, width, -1), atol=1e-5)
        # The search drops some beams, duplicates others and reorders them.
        parents = random.integers(0, width, (2, width, 1))
        histories = np.take_along_axis(histories, parents, axis=1)
        ancestry = np.take_along_axis(ancestry, parents, axis=1)
    return cache


@EVERY_VARIANT
def test_a_step_of_every_beam_equals_a_full_pass_over_its_history(variant):
    walk(variant)


def test_a_step_within_a_window_equals_a_full_pass_and_caches_no_more_than_the_window():
    cache = walk({"positions": "relative", "attention_window": 2})
    assert cache["past"][0][0].shape == (2, 2, 2 * 3, 8)


@pytest.mark.parametrize(
    "variant",
    [
        VARIANTS["pre-LN-untied-shallow"] | VARIANTS["biases-swish-none"],
        VARIANTS["learned-key_dim"],
        VARIANTS["swiglu-rms-rotary"] | {"attention_window": 2},
        VARIANTS["relative"],
    ],
)
def test_a_step_compiled_by_xla_equals_it_too_when_its_cache_grows(variant, monkeypatch):
    monkeypatch.setattr("tf_transformer.models.cached_decoding.COLUMNS", 4)
    cache = walk(variant, by_xla=True)
    assert cache["past"][0][0].shape[2] == 8 * 3


def test_a_program_of_steps_has_the_same_number_whatever_was_computed_before():
    numbers = []
    for count in (1, 300):
        model = make_model()
        for _ in range(count):
            tf.constant(1.0) + 1.0
        step, cache = model.start_search(SOURCE, by_xla=True)
        step(np.zeros([2, 3], "int32"), tf.constant(0), np.zeros([2, 3, 1], "int32"), cache)
        (function,) = model._step_program._program._list_all_concrete_functions()
        numbers.append(int(function.function_def.signature.name.split("_")[-1]) % 100_000)
    assert numbers[0] == numbers[1]


@EVERY_VARIANT
def test_a_sentence_alone_equals_a_padded_row_of_a_batch(variant):
    model = make_model(**variant)
    batch = logits_of(model, SOURCE, TARGET)
    first = logits_of(model, SOURCE[:1], TARGET[:1])
    second = logits_of(model, SOURCE[1:, :3], TARGET[1:, :3])
    np.testing.assert_allclose(batch[:1], first, atol=1e-5)
    np.testing.assert_allclose(batch[1:, :3], second, atol=1e-5)


@EVERY_VARIANT
def test_a_later_target_token_changes_no_earlier_logits(variant):
    model = make_model(**variant)
    changed = TARGET.copy()
    changed[:, 2] = 18
    before, after = logits_of(model, SOURCE, TARGET), logits_of(model, SOURCE, changed)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.all(after[:, 2] != before[:, 2])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_and_carry_no_mask(policy):
    model = make_model(dtype=policy)
    logits = model({"source": SOURCE, "target": TARGET})
    assert logits.dtype == model.outputs[0].dtype == "float32"
    assert getattr(logits, "_keras_mask", None) is None
    assert {layer.compute_dtype for layer in model.encoder._flatten_layers()} == {
        keras.dtype_policies.get(policy).compute_dtype
    }
    step_logits, _ = model.step_function()(
        TARGET[:, :1], 0, np.zeros((2, 1, 1), "int32"), model.initial_cache(SOURCE)
    )
    assert step_logits.dtype == "float32"


@EVERY_VARIANT
def test_attention_weights_are_zero_at_later_and_padded_positions(variant):
    model = make_model(**variant)
    weights = {k: np.asarray(v) for k, v in model.attention_weights(SOURCE, TARGET).items()}
    shapes = {name: array.shape for name, array in weights.items()}
    assert shapes == {
        "encoder": (2, 2, 2, 5, 5),
        "decoder": (model.config.num_decoder_layers, 2, 2, 4, 4),
        "cross": (model.config.num_decoder_layers, 2, 2, 4, 5),
    }
    for array in weights.values():
        np.testing.assert_allclose(array.sum(axis=-1), 1.0, atol=1e-5)
    source = (SOURCE != 0)[:, None, None]  # [B, 1, 1, S]
    target = np.tri(4, dtype=bool) & (TARGET != 0)[:, None, None]  # [B, 1, T, T]
    for name, seen in (("encoder", source), ("decoder", target), ("cross", source)):
        expected = np.broadcast_to(seen, weights[name].shape)
        np.testing.assert_array_equal(weights[name] > 0, expected)


@pytest.mark.parametrize("layer", [0, 1])
def test_cross_attention_of_one_layer_is_computed_without_later_layers(layer):
    model = make_model()
    expected = model.attention_weights(SOURCE, TARGET)["cross"][layer]
    for late in model.decoder.layers[layer + 1 :]:
        late.self_attention.attend = None
    weights = model.cross_attention_weights(SOURCE, TARGET, layer)
    np.testing.assert_array_equal(weights, expected)


# --- Tying and norms ---------------------------------------------------------------------


def vocabulary_matrices(model: Transformer) -> list[keras.Variable]:
    return [weight for weight in model.weights if VOCAB_SIZE in weight.shape]


def changes(model: Transformer, matrix: keras.Variable, row: int) -> np.ndarray:
    """Marks the logits, bool [B, T, V], that change with one row of a matrix [V, D]."""
    before = logits_of(model, SOURCE, TARGET)
    old, new = matrix.numpy(), matrix.numpy().copy()
    new[row] += 0.5 * np.cos(np.arange(new.shape[1]))
    matrix.assign(new)
    after = logits_of(model, SOURCE, TARGET)
    matrix.assign(old)
    return before != after


def test_one_matrix_embeds_source_and_target_and_gives_logits():
    model = make_model()
    (matrix,) = vocabulary_matrices(model)
    in_source, in_target, in_neither = 6, 12, 19
    others = np.arange(VOCAB_SIZE) < 4
    assert changes(model, matrix, in_source)[0][:, others].all()
    in_first_target = changes(model, matrix, in_target)[0]
    assert in_first_target[2:, others].all()
    assert not in_first_target[:2, others].any()
    np.testing.assert_array_equal(
        changes(model, matrix, in_neither),
        np.eye(VOCAB_SIZE, dtype=bool)[[[in_neither] * 4] * 2],
    )


def test_untied_embeddings_and_projection_are_three_matrices():
    model = make_model(tie_embeddings=False)
    assert [weight.shape for weight in vocabulary_matrices(model)] == [
        (VOCAB_SIZE, 16),
        (VOCAB_SIZE, 16),
        (16, VOCAB_SIZE),
    ]
    assert changes(model, model.source_embedding.embeddings, 6)[0].all()
    assert not changes(model, model.source_embedding.embeddings, 12).any()
    assert changes(model, model.target_embedding.embeddings, 12)[0, 2:].all()
    assert not changes(model, model.target_embedding.embeddings, 6).any()


# --- Files and policies ------------------------------------------------------------------


def scheduled_adam() -> Adam:
    return Adam(TransformerSchedule(d_model=8, warmup_steps=100))


@pytest.mark.parametrize(
    ("precision", "chunked"), [("float32", True), ("mixed_float16", False)]
)
def test_a_loaded_model_is_compiled_and_continues_training(tmp_path, precision, chunked):
    make = functools.partial(transformer, dtype=precision)
    options = {"max_tokens_per_device": 8, "chunked_loss": chunked}
    model, _ = fitted(make=make, optimizer=scheduled_adam, **options)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    scaled = precision == "mixed_float16"
    assert type(loaded.optimizer) is (LossScaleOptimizer if scaled else Adam)
    assert type(getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)) is Adam
    assert type(loaded.loss) is LabelSmoothedCrossEntropy
    assert loaded.max_tokens_per_device == 8
    assert loaded.get_compile_config().get("chunked_loss", False) is chunked
    assert step_of(loaded.optimizer) == step_of(model.optimizer) > 0
    for trained in (model, loaded):
        trained.fit(dataset(batches()), shuffle=False, verbose=0)
    assert distance(model, loaded) == 0  # the schedule continues too


@pytest.mark.parametrize(
    ("variant", "policy"),
    zip(VARIANTS.values(), 3 * ["float32", "mixed_bfloat16"], strict=True),
    ids=VARIANTS,
)
def test_a_reloaded_model_keeps_its_policy_and_its_logits(variant, policy, tmp_path):
    model = make_model(num_layers=1, dtype=policy, **variant)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(again, Transformer)
    assert again.get_config() == model.get_config()
    policies = {layer.dtype_policy.name for layer in again.decoder._flatten_layers()}
    assert policies == {again.dtype_policy.name} == {policy}
    np.testing.assert_array_equal(
        logits_of(again, SOURCE, TARGET), logits_of(model, SOURCE, TARGET)
    )


def test_a_global_policy_becomes_that_of_the_model():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_model(num_layers=1)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert model.encoder.compute_dtype == "bfloat16"


@pytest.fixture
def floatx(request):
    """Sets Keras's `floatx` and policy as a notebook might."""
    keras.config.set_floatx(request.param)
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("floatx", ["float16", "bfloat16", "float64"], indirect=True)
def test_training_works_and_ids_and_counts_are_exact_with_any_floatx(floatx):
    """float16 has no odd numbers above 2,048 and none above 65,504."""
    ids = np.full((70, 1000), 4099, "int32")
    model = Transformer(5000, num_layers=1, d_model=8, d_ff=8, num_heads=2)
    assert model.encoder.compute_dtype == floatx
    model.compile("sgd", LabelSmoothedCrossEntropy(), metrics=[Perplexity(), TokenCount()])
    short = {"source": ids[:, :2], "target": ids[:, :2]}
    logs = model.fit(short, ids[:, :2], verbose=0).history
    assert np.isfinite([float(logs["loss"][0]), float(logs["perplexity"][0])]).all()
    for mean in model.running_means:
        assert {v.dtype for v in mean.variables} <= {"float32", "float64"}
    counted = TokenCount()
    counted.update_state(ids, np.zeros((*ids.shape, 1), "float32"))
    assert float(counted.result()) == 70_000
    embed = model.source_embedding
    assert np.any(embed(ids[:1, :1]) != embed(ids[:1, :1] + 1))
