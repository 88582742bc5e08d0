"""Keras's tools work on these layers as on its own, or refuse them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from contract import hidden_states

from tf_transformer.layers import DecoderLayer, EncoderLayer, FeedForward, MultiHeadAttention
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.transformer import Transformer

INPUTS = {"source": hidden_states(2, 5, 8), "target": hidden_states(2, 4, 8, seed=1)}


def make_model() -> keras.Model:
    """An encoder and a decoder layer that map vectors to vectors."""
    source, target = keras.Input((5, 8), name="source"), keras.Input((4, 8), name="target")
    outputs = DecoderLayer(2, 16)(target, EncoderLayer(2, 16)(source))
    return keras.Model({"source": source, "target": target}, outputs)


def test_an_exported_model_gives_the_same_outputs(tmp_path):
    model = make_model()
    expected = model(INPUTS)
    model.export(tmp_path / "saved", verbose=False)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.serve(INPUTS), expected, atol=1e-6)
    model.export(str(tmp_path / "model.tflite"), format="litert", verbose=False)
    interpreter = tf.lite.Interpreter(str(tmp_path / "model.tflite"))
    run = interpreter.get_signature_runner()
    outputs = run(**{name: array[:1] for name, array in INPUTS.items()})
    np.testing.assert_allclose(*outputs.values(), expected[:1], atol=1e-5)


@pytest.mark.parametrize("kind", ["attention", "functional", "transformer"])
def test_quantization_is_refused(kind):
    model = {
        "attention": keras.Sequential([keras.Input((5, 8)), MultiHeadAttention(2)]),
        "functional": make_model(),
        "transformer": Transformer(9, num_layers=1, d_model=8, d_ff=8, num_heads=2),
    }[kind]
    with pytest.raises(ValueError, match="Keras cannot quantize .* Received: mode='int8'"):
        model.quantize("int8")


# --- LoRA on the kernels of attention and feed-forward networks: W + alpha / r A B -------

X = hidden_states(2, 5, 8)
IDS = np.array([[5, 6, 3, 0], [7, 3, 0, 0]], "int32")
KINDS = ("query", "key", "value", "output")


def encoder_layer(rank: int | None = 3, **options) -> EncoderLayer:
    keras.utils.set_random_seed(1)
    layer = EncoderLayer(2, 16, attention_bias=True)
    layer.build(X.shape)
    if rank:
        layer.enable_lora(rank, **options)
    return layer


def test_new_adapters_change_nothing_and_are_added_to_the_kernels():
    before, after = encoder_layer(None), encoder_layer(3)
    np.testing.assert_array_equal(before(X), after(X))
    scaled = encoder_layer(3, lora_alpha=6, b_initializer="ones")
    attention = [getattr(scaled.self_attention, f"{kind}_dense") for kind in KINDS]
    for dense in (*attention, scaled.feed_forward.inner):
        merged = dense._kernel + 2 * dense.lora_kernel_a @ dense.lora_kernel_b
        np.testing.assert_allclose(dense.kernel, merged, atol=1e-6)
    assert len({dense.lora_kernel_a.numpy().tobytes() for dense in attention}) == 4


def test_only_adapters_and_biases_are_trained():
    layer = encoder_layer()
    frozen = [weight.numpy() for weight in layer.non_trainable_weights]
    trained = {"/".join(weight.path.split("/")[-2:]) for weight in layer.trainable_weights}
    assert trained == {
        f"{kind}/{name}"
        for kind in (*KINDS, "inner", "outer")
        for name in ("lora_kernel_a", "lora_kernel_b", "bias")
    }
    model = keras.Sequential([keras.Input(X.shape[1:]), layer])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = model.predict(X, verbose=0)
    model.fit(X, -X, epochs=2, verbose=0)
    assert np.abs(model.predict(X, verbose=0) - before).max() > 1e-3
    for weight, old in zip(layer.non_trainable_weights, frozen, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_a_model_is_saved_with_merged_kernels(tmp_path):
    model = Transformer(20, num_layers=1, d_model=8, d_ff=16, num_heads=2, attention_bias=True)
    model.enable_lora(2, b_initializer="ones")
    inputs = {"source": IDS, "target": IDS}
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(inputs), expected, atol=1e-5)
    assert len(again.trainable_weights) == len(again.weights) < len(model.weights)
    again.save_weights(tmp_path / "merged.weights.h5")
    model.load_weights(tmp_path / "merged.weights.h5")  # resets its adapters
    np.testing.assert_allclose(model(inputs), expected, atol=1e-5)
    inner = model.encoder.layers[0].feed_forward.inner
    assert not keras.ops.any(inner.lora_kernel_b) and keras.ops.any(inner.lora_kernel_a)


def test_adapters_learn_after_weights_are_loaded(tmp_path):
    model = Transformer(20, num_layers=1, d_model=8, d_ff=16, num_heads=2)
    model.save_weights(tmp_path / "plain.weights.h5")
    model.enable_lora(2)
    model.load_weights(tmp_path / "plain.weights.h5")
    model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy())
    model.fit({"source": IDS, "target": IDS}, IDS, verbose=0)
    learnt = [weight for weight in model.trainable_weights if weight.name.endswith("_b")]
    assert len(learnt) == 16 and all(map(keras.ops.any, learnt))


@pytest.mark.parametrize("layer", [MultiHeadAttention(2), FeedForward(8)])
def test_lora_needs_a_built_layer_and_works_only_once(layer):
    if isinstance(layer, MultiHeadAttention):
        with pytest.raises(ValueError, match="needs a built layer"):
            layer.enable_lora(2)
    layer.build(X.shape)
    layer.enable_lora(2)
    with pytest.raises(ValueError, match="once"):
        layer.enable_lora(2)


# Not a dependency: TensorFlow imports JAX if installed, which delays every process by 0.5 s.
