"""The model in plain Keras: saving, policies, `fit` and `compile`."""

import functools

import keras
import numpy as np
import pytest
from replicas import batches, dataset, distance, fitted, transformer
from small_transformer import SOURCE, TARGET, VARIANTS, logits_of, make_model

from tf_transformer.fast.optimizers import Adam, LossScaleOptimizer, step_of
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity, TokenCount
from tf_transformer.models.schedules import TransformerSchedule
from tf_transformer.models.transformer import Transformer

LABELS = np.array([[11, 12, 13, 3], [14, 15, 3, 0]], "int32")
INPUTS = {"source": SOURCE, "target": TARGET}


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
    assert loaded.get_compile_config()["chunked_loss"] is chunked
    assert step_of(loaded.optimizer) == step_of(model.optimizer) > 0
    for trained in (model, loaded):
        trained.fit(dataset(batches()), shuffle=False, verbose=0)
    assert distance(model, loaded) == 0  # the schedule continues too


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@VARIANTS
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


def test_a_loss_of_keras_can_train_the_model():
    model = make_model(num_layers=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, run_eagerly=True)
    assert np.isfinite(model.train_on_batch(INPUTS, LABELS))
