"""Keras's tools work on models of these layers as on its own layers, or refuse them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from contract import hidden_states

from tf_transformer.layers import DecoderLayer, EncoderLayer, MultiHeadAttention
from tf_transformer.models.transformer import Transformer

INPUTS = {"source": hidden_states(2, 5, 8), "target": hidden_states(2, 4, 8, seed=1)}


def make_model() -> keras.Model:
    """An encoder and a decoder layer that map vectors to vectors."""
    source, target = keras.Input((5, 8), name="source"), keras.Input((4, 8), name="target")
    outputs = DecoderLayer(2, 16)(target, EncoderLayer(2, 16)(source))
    return keras.Model({"source": source, "target": target}, outputs)


def test_a_clone_has_equal_layers_and_weights_of_its_own():
    model = make_model()
    clone = keras.models.clone_model(model)
    assert np.any(clone(INPUTS) != model(INPUTS))
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(INPUTS), model(INPUTS))


def test_a_summary_lists_layers_without_their_sublayers():
    lines: list[str] = []
    make_model().summary(print_fn=lambda text, **_: lines.append(text), expand_nested=True)
    assert "DecoderLayer" in "".join(lines) and "cross_attention" not in "".join(lines)


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


@pytest.mark.parametrize("kind", ["layer", "attention", "functional", "transformer"])
def test_quantization_is_refused(kind):
    attention = MultiHeadAttention(2, dropout=0.1)
    model = {
        "layer": attention,
        "attention": keras.Sequential([keras.Input((5, 8)), attention]),
        "functional": make_model(),
        "transformer": Transformer(9, num_layers=1, d_model=8, d_ff=8, num_heads=2),
    }[kind]
    with pytest.raises(ValueError, match="cannot be quantized: .* Received: mode='int8'"):
        model.quantize("int8")
