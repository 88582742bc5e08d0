"""Embeddings, the paper's positions, and the projection back to the vocabulary."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from contract import Case, check_layer, hidden_states

from tf_transformer.layers import PositionalEmbedding, PositionalEncoding, sinusoidal_positions
from tf_transformer.layers.embedding import OutputProjection

IDS = np.array([[5, 1, 2, 3], [6, 3, 0, 0]], "int32")
HIDDEN = hidden_states(2, 3, 8)
LEARNED = {"positions": "learned", "max_length": 4}
TOKENS = PositionalEmbedding(7, 8, **LEARNED)

CASES = [
    Case(PositionalEmbedding, {"vocab_size": 7, "d_model": 8}, {"inputs": IDS}),
    Case(PositionalEmbedding, {"vocab_size": 7, "d_model": 8} | LEARNED, {"inputs": IDS}),
    Case(PositionalEncoding, LEARNED, {"inputs": HIDDEN}),
    Case(OutputProjection, {"vocab_size": 7}, {"inputs": HIDDEN}, True),
    Case(OutputProjection, {"vocab_size": 7, "output_bias": True}, {"inputs": HIDDEN}, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_embeddings_keep_the_contract(case, tmp_path):
    check_layer(case, tmp_path)


def paper_positions(number: int, d_model: int) -> np.ndarray:
    """Paper 3.5, entry by entry, in float64."""
    table = np.empty((number, d_model))
    for pos, i in np.ndindex(number, d_model // 2):
        angle = pos / 10000 ** (2 * i / d_model)
        table[pos, 2 * i], table[pos, 2 * i + 1] = np.sin(angle), np.cos(angle)
    return table


@pytest.mark.parametrize("d_model", [2, 64, 512])
def test_sinusoids_match_the_paper_up_to_position_2000(d_model):
    table = sinusoidal_positions(np.arange(2000), d_model)
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    np.testing.assert_allclose(table, paper_positions(2000, d_model), atol=3e-4)


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [("float32", 3e-4), ("mixed_float16", 1e-3), ("mixed_bfloat16", 4e-3)],
)
def test_late_positions_are_only_rounded_to_the_compute_dtype(policy, tolerance):
    layer = PositionalEmbedding(vocab_size=7, d_model=16, dtype=policy)
    layer.build((None, None))
    layer.embeddings.assign(keras.ops.zeros((7, 16)))
    outputs = keras.ops.cast(layer(np.ones((1, 2000), "int32")), "float32")
    np.testing.assert_allclose(outputs[0], paper_positions(2000, 16), atol=tolerance)


@pytest.mark.parametrize(
    "positions", [{}, LEARNED | {"max_length": 9}], ids=["sinusoidal", "learned"]
)
def test_embeddings_are_scaled_by_the_root_of_d_model_and_added_to_positions(positions):
    layer = PositionalEmbedding(vocab_size=7, d_model=64, **positions)
    outputs = layer(IDS)
    if positions:
        assert layer.position_embeddings.shape == (9, 64)
        table = layer.position_embeddings.numpy()[:4]
    else:
        table = paper_positions(4, 64)
    np.testing.assert_allclose(outputs, 8 * layer.embeddings.numpy()[IDS] + table, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_the_gradient_of_looked_up_rows_is_sparse_and_float32(policy):
    """In half precision, the sum of a frequent word's gradients would lose small ones."""
    layer = PositionalEmbedding(7, 8, dtype=policy)
    layer.build(IDS.shape)
    with tf.GradientTape() as tape:
        outputs = layer(IDS)
    gradient = tape.gradient(outputs, layer.embeddings.value)
    assert isinstance(gradient, tf.IndexedSlices) and gradient.dtype == tf.float32
    counts = np.bincount(IDS.ravel(), minlength=7)
    expected = np.repeat(counts[:, None], 8, axis=1) * 8**0.5
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=5e-3)


def test_initial_embeddings_have_the_scale_of_their_positions():
    layer = PositionalEmbedding(vocab_size=500, d_model=64)
    layer.build((None, None))
    assert np.std(layer.embeddings * 8.0) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("positions", [{}, LEARNED], ids=["sinusoidal", "learned"])
def test_vectors_get_the_same_positions_as_tokens(positions):
    embedding = PositionalEmbedding(vocab_size=7, d_model=8, **positions)
    layer = PositionalEncoding(**positions)
    vectors = keras.layers.Masking()(np.zeros((2, 4, 8), "float32"))
    outputs = layer(vectors)
    np.testing.assert_array_equal(outputs._keras_mask, np.zeros((2, 4)))
    expected = embedding(IDS) - 8**0.5 * embedding.embeddings.numpy()[IDS]
    if positions:
        layer.set_weights([embedding.position_embeddings])
    np.testing.assert_allclose(layer(vectors), expected, atol=1e-6)
    np.testing.assert_allclose(layer(vectors[:, :2], offset=2), expected[:, 2:], atol=1e-6)


@pytest.mark.parametrize("positions", [{}, LEARNED], ids=["sinusoidal", "learned"])
def test_offset_continues_a_sequence(positions):
    layer = PositionalEmbedding(vocab_size=7, d_model=8, **positions)
    whole = layer(IDS)
    for column in range(4):
        step = layer(IDS[:, column : column + 1], offset=column)
        np.testing.assert_allclose(step[:, 0], whole[:, column], atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_reversed_embedding_gives_float32_logits_without_a_mask(policy):
    layer = PositionalEmbedding(vocab_size=7, d_model=8, dtype=policy)
    layer.build((None, None))
    logits = layer(keras.layers.Masking()(HIDDEN), reverse=True)
    expected = HIDDEN @ layer.embeddings.numpy().T  # not scaled: paper 3.4
    assert logits.dtype == "float32"
    assert getattr(logits, "_keras_mask", None) is None
    np.testing.assert_allclose(logits, expected, atol=1e-5 if policy == "float32" else 0.05)


def test_symbolic_logits_have_the_size_of_the_vocabulary():
    layer = PositionalEmbedding(vocab_size=7, d_model=8, dtype="mixed_bfloat16")
    logits = layer(layer(keras.Input((None,), dtype="int32")), reverse=True)
    assert (logits.shape, logits.dtype) == ((None, None, 7), "float32")


def test_the_output_projection_multiplies_by_its_kernel():
    layer = OutputProjection(vocab_size=7)
    logits = layer(keras.layers.Masking()(HIDDEN))
    assert [weight.shape for weight in layer.weights] == [(8, 7)]
    assert getattr(logits, "_keras_mask", None) is None
    np.testing.assert_allclose(logits, HIDDEN @ layer.kernel.numpy(), atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_bias_is_added_to_the_logits(tied):
    options = {"d_model": 8} if tied else {}
    layer = (PositionalEmbedding if tied else OutputProjection)(7, output_bias=True, **options)
    layer.build((None, None, 8))
    bias = hidden_states(7, seed=2)
    layer.output_bias.assign(bias)
    logits = layer(HIDDEN, reverse=True) if tied else layer(HIDDEN)
    expected = HIDDEN @ np.asarray(layer.output_kernel()) + bias
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 7}, "`d_model` must be even. Received: d_model=7."),
        ({"d_model": 8, "positions": "unknown"}, "Received: positions='unknown'."),
        ({"d_model": 8, "positions": "learned"}, "Received: max_length=None."),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalEmbedding(vocab_size=7, **arguments)


@pytest.mark.parametrize(
    ("layer", "inputs", "reason"),
    [
        (TOKENS, keras.Input((None,)), "use PositionalEncoding. Received: float32"),
        (TOKENS, HIDDEN, "use PositionalEncoding. Received: float32"),
        (TOKENS, IDS[0], r"must be integer ids \[B, T\].* Received: int32"),
        (TOKENS, np.ones((2, 5), "int32"), "Received: 5 positions, max_length=4"),
        (PositionalEncoding(), hidden_states(1, 4, 8, 8), r"Received: shape=\(1, 4, 8, 8\)"),
        (PositionalEncoding(), HIDDEN[..., 1:], "must be even. Received: d_model=7"),
    ],
)
def test_other_inputs_are_refused(layer, inputs, reason):
    with pytest.raises(ValueError, match=reason):
        layer(inputs)


def test_an_offset_counts_towards_the_learned_positions():
    with pytest.raises(ValueError, match="Received: 5 positions, max_length=4"):
        TOKENS(IDS[:, :2], offset=3)
