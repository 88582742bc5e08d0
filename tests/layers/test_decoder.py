"""The decoder against the right half of Figure 1 in NumPy; its steps against a full pass."""

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

from tf_transformer.layers import Decoder, DecoderLayer, Encoder

TARGET, SOURCE = hidden_states(2, 4, 8), hidden_states(2, 5, 8, seed=1)
INPUTS = {"target": TARGET, "encoder_output": SOURCE}
LAYER = {"num_heads": 2, "d_ff": 16}
NORM_ORDERS = pytest.mark.parametrize("norm_first", [False, True], ids=["post-LN", "pre-LN"])

CASES = [
    Case(DecoderLayer, LAYER | {"dropout": 0.1}, INPUTS),
    Case(DecoderLayer, LAYER | {"key_dim": 3, "value_dim": 5, "norm_first": True}, INPUTS),
    Case(Decoder, LAYER | {"num_layers": 2}, INPUTS),
    Case(DecoderLayer, LAYER | {"cross_attention": False}, {"target": TARGET}),
    Case(Decoder, LAYER | {"num_layers": 2, "dropout": 0.1, "norm_first": True}, INPUTS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoder_keeps_the_contract(case, tmp_path):
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@NORM_ORDERS
def test_decoder_and_its_attention_weights_match_figure_1_layer_by_layer(norm_first):
    decoder = Decoder(num_layers=3, **LAYER, dropout=0.5, norm_first=norm_first)
    decoder.build(TARGET.shape, SOURCE.shape)
    randomized(decoder)
    outputs, scores = decoder(TARGET, SOURCE, return_attention_scores=True)
    causal = np.tri(4, dtype=bool)
    x = TARGET
    for layer, (self_weights, cross_weights) in zip(decoder.layers, scores, strict=True):
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
    x = layer_norm(decoder.norm, x) if norm_first else x
    np.testing.assert_allclose(outputs, x, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(decoder(TARGET, SOURCE), outputs)


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
def test_steps_of_two_equal_beams_equal_the_full_pass(norm_first):
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


@NORM_ORDERS
def test_without_cross_attention_passes_and_steps_equal_a_causal_encoder(
    norm_first,
):
    options = LAYER | {"norm_first": norm_first}
    decoder = Decoder(2, **options, cross_attention=False)
    encoder = Encoder(2, **options)
    mask = np.array([[True] * 4, [True] * 3 + [False]])
    expected = np.asarray(encoder(TARGET, mask=mask, use_causal_mask=True))
    assert not [part for part in decoder._flatten_layers() if "cross" in part.name]
    decoder(TARGET)
    decoder.set_weights(encoder.get_weights())
    padded = keras.layers.Masking()(np.where(mask[..., None], TARGET, 0))
    outputs, scores = decoder(padded, return_attention_scores=True)
    np.testing.assert_allclose(np.asarray(outputs)[mask], expected[mask], atol=1e-5)
    assert [weights.shape for [weights] in scores] == [(2, 2, 4, 4)] * 2
    past = [None, None]
    for t in range(4):
        own = np.ones((1, 1, 1, t + 1), bool)
        outputs, past = decoder.step(
            TARGET[:, t : t + 1], past, [None] * 2, own, None, decoder.fused_projections()
        )
        np.testing.assert_allclose(outputs[:1, 0], expected[:1, t], atol=1e-5)


def test_the_attention_mask_and_the_causal_mask_are_optional():
    layer = DecoderLayer(**LAYER)
    window = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) < 2
    options = {"attention_mask": window[None], "return_attention_scores": True}
    outputs, (own, cross) = layer(TARGET, SOURCE, **options, use_causal_mask=False)
    np.testing.assert_array_equal(np.asarray(own)[0, 0] > 0, window)
    np.testing.assert_allclose(np.sum(cross, -1), 1, atol=1e-6)
    _, (own, _) = layer(TARGET, SOURCE, **options)
    np.testing.assert_array_equal(np.asarray(own)[0, 0] > 0, window & np.tri(4, dtype=bool))
    inputs = keras.Input((None, 8)), keras.Input((5, 8))
    outputs, scores = layer(*inputs, return_attention_scores=True)
    assert [weights.shape for weights in scores] == [(None, 2, None, None), (None, 2, None, 5)]


@pytest.mark.parametrize("arguments", [[TARGET], [TARGET, SOURCE]])
def test_encoder_output_must_go_with_cross_attention(arguments):
    layer = DecoderLayer(**LAYER, cross_attention=len(arguments) == 1)
    with pytest.raises(ValueError, match="`encoder_output` must be given with"):
        layer(*arguments)
