"""The decoder against the right half of Figure 1 in NumPy, and its steps against its call."""

import keras
import numpy as np
import pytest
from contract import Case, check_layer, check_padding_is_ignored, hidden_states
from numpy_layers import (
    add_and_norm,
    before,
    decoder_layer,
    layer_norm,
    multi_head,
    multi_head_weights,
    randomized,
)

from tf_transformer.layers import Decoder, DecoderLayer

TARGET, SOURCE = hidden_states(2, 4, 8), hidden_states(2, 5, 8, seed=1)
INPUTS = {"target": TARGET, "encoder_output": SOURCE}
LAYER = {"num_heads": 2, "d_ff": 16}
NORM_ORDERS = pytest.mark.parametrize("norm_first", [False, True], ids=["post-LN", "pre-LN"])

CASES = [
    Case(DecoderLayer, LAYER | {"dropout": 0.1}, INPUTS),
    Case(DecoderLayer, LAYER | {"key_dim": 3, "value_dim": 5, "norm_first": True}, INPUTS),
    Case(Decoder, LAYER | {"num_layers": 2}, INPUTS),
    Case(Decoder, LAYER | {"num_layers": 2, "dropout": 0.1, "norm_first": True}, INPUTS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoder_keeps_the_contract(case, tmp_path):
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@NORM_ORDERS
def test_decoder_layer_is_figure_1(norm_first):
    layer = DecoderLayer(**LAYER, norm_first=norm_first)
    layer.build(TARGET.shape, SOURCE.shape)
    randomized(layer)
    expected = decoder_layer(layer, TARGET, SOURCE)
    np.testing.assert_allclose(layer(TARGET, SOURCE), expected, rtol=1e-3, atol=1e-3)


@NORM_ORDERS
def test_decoder_is_its_layers_one_after_another(norm_first):
    decoder = Decoder(num_layers=3, **LAYER, norm_first=norm_first)
    outputs = decoder(TARGET, SOURCE)
    assert len(decoder.layers) == 3
    expected = TARGET
    for layer in decoder.layers:
        expected = decoder_layer(layer, expected, SOURCE)
    if norm_first:
        expected = layer_norm(decoder.norm, expected)
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-3)


@NORM_ORDERS
def test_attention_weights_are_those_of_each_layer_of_figure_1(norm_first):
    decoder = Decoder(num_layers=2, **LAYER, dropout=0.5, norm_first=norm_first)
    decoder.build(TARGET.shape, SOURCE.shape)
    weights = decoder.attention_weights(TARGET, SOURCE)
    causal = np.tri(4, dtype=bool)
    x = TARGET
    for layer, (self_weights, cross_weights) in zip(decoder.layers, weights, strict=True):
        own, cross = layer.self_attention, layer.cross_attention
        read = before(layer.self_attention_norm, x)
        expected = multi_head_weights(own, read, read, causal)
        np.testing.assert_allclose(self_weights, expected, rtol=1e-3, atol=1e-3)
        attended = add_and_norm(
            layer.self_attention_norm, x, lambda x, own=own: multi_head(own, x, x, causal)
        )
        read = before(layer.cross_attention_norm, attended)
        expected = multi_head_weights(cross, read, SOURCE)
        np.testing.assert_allclose(cross_weights, expected, rtol=1e-3, atol=1e-3)
        x = decoder_layer(layer, x, SOURCE)


def test_a_later_target_position_changes_no_earlier_output():
    decoder = Decoder(num_layers=2, **LAYER)
    changed = TARGET.copy()
    changed[:, 2] += 1.0
    before, after = np.asarray(decoder(TARGET, SOURCE)), np.asarray(decoder(changed, SOURCE))
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.all(np.any(after[:, 2:] != before[:, 2:], axis=-1))


def test_each_mask_hides_what_it_names():
    decoder = Decoder(num_layers=2, **LAYER)
    target_mask, source_mask = np.ones((2, 4), bool), np.arange(5) < np.array([[5], [3]])
    target_mask[0, 1] = False
    outputs = decoder(TARGET, SOURCE, target_mask=target_mask, encoder_output_mask=source_mask)
    rest = [0, 2, 3]
    first = decoder(TARGET[:1, rest], SOURCE[:1])
    np.testing.assert_allclose(np.asarray(outputs)[:1, rest], first, atol=1e-5)
    second = decoder(TARGET[1:], SOURCE[1:, :3])
    np.testing.assert_allclose(outputs[1:], second, atol=1e-5)


@NORM_ORDERS
def test_steps_of_two_equal_beams_are_the_whole_pass(norm_first):
    decoder = Decoder(num_layers=2, **LAYER, key_dim=3, value_dim=5, norm_first=norm_first)
    expected = np.asarray(decoder(TARGET, SOURCE))
    memory = [layer.cross_attention.project_memory(SOURCE) for layer in decoder.layers]
    past = [(np.zeros((2, 2, 0, 3), "float32"), np.zeros((2, 2, 0, 5), "float32"))] * 2
    for t in range(4):
        beams = np.repeat(TARGET[:, t : t + 1], 2, axis=1)  # [B, W, D]
        own = np.tile(np.eye(2, dtype=bool), t + 1)[None, None]  # [1, 1, W, (t + 1) * W]
        outputs, past = decoder.step(
            beams, past, memory, own, np.ones((2, 1, 1, 5), bool), decoder.fused_projections()
        )
        np.testing.assert_allclose(outputs, expected[:, [t, t]], atol=1e-5)


def test_each_sublayer_drops_out():
    keras.utils.set_random_seed(1)
    layer = DecoderLayer(**LAYER, dropout=0.9999, norm_first=True)
    outputs = layer(TARGET, SOURCE, training=True)
    np.testing.assert_array_equal(outputs, TARGET)  # the residuals alone


def test_dropout_starts_at_the_embedded_target():
    decoder = Decoder(num_layers=0, **LAYER, dropout=0.5)
    ones = np.ones((1, 50, 8), "float32")
    assert set(np.unique(decoder(ones, SOURCE, training=True))) == {0.0, 2.0}
    np.testing.assert_array_equal(decoder(ones, SOURCE, training=False), ones)
