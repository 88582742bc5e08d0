"""Plain Keras around the model: saving, policies, `fit` and `compile`."""

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
def test_a_saved_model_is_compiled_when_loaded_and_trains_on(tmp_path, precision, chunked):
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
    assert distance(model, loaded) == 0  # the schedule goes on as well


def test_a_callback_that_would_change_the_schedule_is_refused_at_once():
    model, callback = make_model(num_layers=1), keras.callbacks.ReduceLROnPlateau("loss")
    model.compile(scheduled_adam(), LabelSmoothedCrossEntropy())
    with pytest.raises(ValueError, match="compile with a number as the learning rate"):
        model.fit(INPUTS, LABELS, callbacks=[callback], verbose=0)
    model.compile(keras.optimizers.Adam(1e-3), LabelSmoothedCrossEntropy())
    model.fit(INPUTS, LABELS, callbacks=[callback], verbose=0)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@VARIANTS
def test_a_reloaded_model_keeps_its_policy_and_its_answers(variant, policy, tmp_path):
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


def test_a_global_policy_is_the_models_own():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_model(num_layers=1)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert model.encoder.compute_dtype == "bfloat16"


@pytest.fixture
def floatx(request):
    """Keras's `floatx` and policy of a notebook that has set them."""
    keras.config.set_floatx(request.param)
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("floatx", ["float16", "bfloat16", "float64"], indirect=True)
def test_any_floatx_trains_and_loses_no_token_id_and_no_count(floatx):
    """float16 knows no odd id above 2,048, and its numbers end at 65,504."""
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
    one, other = (model.source_embedding(ids[:1, :1] + number) for number in (0, 1))
    assert np.any(one != other)


def test_losses_of_keras_itself_can_train_the_model():
    model = make_model(num_layers=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, run_eagerly=True)
    assert np.isfinite(model.train_on_batch(INPUTS, LABELS))


def test_the_lengths_that_limit_decoding_are_saved(tmp_path):
    model = make_model(num_layers=1, positions="learned", max_length=64)
    model.position_limits = (9, 11)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.longest_source, loaded.longest_target) == (9, 11)
