"""Encoder and decoder, and their layers against KerasNLP's, from equal weights."""

import dataclasses
import inspect
from dataclasses import MISSING
from functools import partial
from typing import Unpack, get_type_hints

import keras
import keras_nlp
import numpy as np
import pytest
from contract import (
    Case,
    check_layer,
    check_padding_is_ignored,
    hidden_states,
    layer_norm,
    randomized,
)

from tf_transformer.config import ModelConfig
from tf_transformer.layers import (
    AddAndNorm,
    BlockOptions,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    sinusoidal_positions,
)
from tf_transformer.layers.block import LayerArguments
from tf_transformer.models.cached_decoding import GrowingCache

X = hidden_states(2, 5, 8)
TARGET, SOURCE = hidden_states(2, 4, 8), hidden_states(2, 5, 8, seed=1)
BOTH = {"target": TARGET, "encoder_output": SOURCE}
LAYER = {"num_heads": 2, "d_ff": 16}
NORM_ORDERS = pytest.mark.parametrize("norm_first", [False, True], ids=["post-LN", "pre-LN"])

SPLIT = {"key_dim": 3, "value_dim": 5, "norm_first": True}
STACK = LAYER | {"num_layers": 2}

CASES = [
    Case(EncoderLayer, LAYER | {"dropout": 0.1}, {"inputs": X}),
    Case(EncoderLayer, LAYER | SPLIT, {"inputs": X}),
    Case(Encoder, STACK | {"dropout": 0.1, "norm_first": True}, {"inputs": X}),
    Case(DecoderLayer, LAYER | {"dropout": 0.1}, BOTH),
    Case(DecoderLayer, LAYER | SPLIT, BOTH),
    Case(DecoderLayer, LAYER | {"cross_attention": False}, {"target": TARGET}),
    Case(Decoder, STACK | {"dropout": 0.1, "norm_first": True}, BOTH),
]


def scores_of(encoder: Encoder, **masks: np.ndarray) -> list:
    return encoder(X, **masks, return_attention_scores=True)[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_and_stacks_keep_the_contract(case, tmp_path):
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@NORM_ORDERS
@pytest.mark.parametrize(("cls", "inputs"), [(Encoder, [X]), (Decoder, [TARGET, SOURCE])])
def test_a_stack_applies_its_layers_and_then_its_norm(cls, inputs, norm_first):
    stack = cls(num_layers=3, **LAYER, dropout=0.5, norm_first=norm_first)
    stack.build(*(array.shape for array in inputs))
    randomized(stack)
    outputs, scores = stack(*inputs, return_attention_scores=True)
    (x, *memory), options = inputs, {"return_attention_scores": True}
    for layer, weights in zip(stack.layers, scores, strict=True):
        x, expected = layer(x, *memory, **options)
        pairs = zip(keras.tree.flatten(weights), keras.tree.flatten(expected), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)
    x = layer_norm(stack.norm, np.asarray(x)) if norm_first else x
    np.testing.assert_allclose(outputs, x, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(stack(*inputs), outputs)


def test_an_attention_mask_does_not_replace_the_padding_mask():
    encoder = Encoder(num_layers=2, **LAYER)
    padded = keras.layers.Masking()(np.pad(X, ((0, 0), (0, 2), (0, 0))))
    everywhere = np.ones((1, 7, 7), bool)
    np.testing.assert_allclose(encoder(padded)[:, :5], encoder(X), atol=1e-5)
    outputs = encoder(padded, attention_mask=everywhere)
    np.testing.assert_allclose(outputs[:, :5], encoder(X), atol=1e-5)
    scores = scores_of(encoder, attention_mask=np.eye(5, dtype=bool)[None])
    np.testing.assert_allclose(scores, np.broadcast_to(np.eye(5), (2, 2, 2, 5, 5)), atol=1e-6)


@NORM_ORDERS
@pytest.mark.parametrize("shape", [(2, 3, 16), (None, None, 16)])
def test_integers_are_refused_instead_of_rounding_the_kernels(norm_first, shape):
    encoder = Encoder(num_layers=1, **LAYER, norm_first=norm_first)
    inputs = keras.Input(shape[1:], dtype="int32")
    model = keras.Model(inputs, encoder(inputs))
    with pytest.raises(ValueError, match=r"floating vectors \[B, T, D\].* Received: int32"):
        model(np.ones((2, 3, 16), int))


@pytest.mark.parametrize("wrong", ["num_layers", "num_heads", "key_dim", "value_dim"])
@pytest.mark.parametrize("stack", [Encoder, Decoder])
def test_sizes_below_1_are_refused(stack, wrong):
    with pytest.raises(ValueError, match=f"`{wrong}` must be at least 1. Received: 0."):
        stack(**{"num_layers": 1, **LAYER, wrong: 0})


# --- The decoder -------------------------------------------------------------------------


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
            beams, past, memory, own, np.ones((2, 1, 1, 5), bool), decoder.fused_projections(),
            partial(GrowingCache().extended, index=t), t,
        )  # fmt: skip
        np.testing.assert_allclose(outputs, expected[:, [t, t]], atol=1e-5)


@NORM_ORDERS
def test_without_cross_attention_passes_and_steps_equal_a_causal_encoder(norm_first):
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
    past = [(np.zeros((2, 2, 0, 4), "float32"),) * 2] * 2
    for t in range(4):
        own = np.ones((1, 1, 1, t + 1), bool)
        outputs, past = decoder.step(
            TARGET[:, t : t + 1], past, [None] * 2, own, None, decoder.fused_projections(),
            partial(GrowingCache().extended, index=t), t,
        )  # fmt: skip
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


# --- What both share ---------------------------------------------------------------------


FIELDS = dataclasses.fields(BlockOptions)
FOUR = pytest.mark.parametrize("cls", [Encoder, EncoderLayer, Decoder, DecoderLayer])


@FOUR
def test_every_argument_is_annotated_and_documented(cls):
    parameters = dict(inspect.signature(cls).parameters)
    for name, parameter in parameters.items():
        assert f"    {'**' * (name == 'options')}{name}: " in cls.__doc__
        assert parameter.annotation is not parameter.empty
    assert parameters["options"].annotation == Unpack[LayerArguments]


def test_editors_know_every_option_with_its_type():
    others = {"name", "dtype", "trainable"}
    types = {field.name: field.type for field in FIELDS if field.default is not MISSING}
    known = get_type_hints(LayerArguments)
    assert {name: kind for name, kind in known.items() if name not in others} == types
    assert others < {*known}


def test_an_option_is_explained_as_the_setting_of_its_name():
    text = " ".join(BlockOptions.__doc__.split())
    settings = {field.name: field for field in dataclasses.fields(ModelConfig)}
    for name in (field.name for field in FIELDS):
        words = settings[name].metadata["help"]
        if name in ("positions", "activation"):  # of which layers take more
            words = words.partition(":" if name == "positions" else ";")[0]
        assert f" {name}: {words}" in text, name


@FOUR
def test_the_config_holds_every_argument(cls):
    layer = cls(**{"num_layers": 1} if "Layer" not in cls.__name__ else {}, **LAYER)
    names = {*inspect.signature(cls).parameters} - {"options"}
    names |= {field.name for field in FIELDS}
    assert {*layer.get_config()} == names | {"name", "trainable", "dtype"}


@FOUR
def test_an_unknown_option_is_refused(cls):
    more = {"num_layers": 1} if "Layer" not in cls.__name__ else {}
    with pytest.raises(ValueError, match="(?i)unrecognized keyword arguments.*heads"):
        cls(**more, **LAYER, heads=2)


def test_a_frozen_stack_stays_frozen_in_a_functional_model(tmp_path):
    encoder = Encoder(2, **LAYER)
    inputs = keras.Input(X.shape[1:])
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(encoder(inputs)))
    encoder.trainable = False
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (again, keras.models.clone_model(model)):
        assert [w.path for w in copy.trainable_weights] == ["head/kernel", "head/bias"]
        assert len(copy.weights) == len(model.weights)


@pytest.mark.parametrize("layer", [FeedForward(16), AddAndNorm()])
def test_a_frozen_layer_alone_stays_frozen(layer):
    layer.trainable = False
    again = type(layer).from_config(layer.get_config())
    again.build(X.shape)
    assert again.weights and not any(weight.trainable for weight in again.weights)


@pytest.mark.parametrize(("cls", "memory"), [(Encoder, []), (Decoder, [X])])
def test_a_stack_drops_out_its_embedded_input(cls, memory):
    stack = cls(num_layers=1, **LAYER, dropout=0.5)
    stack.layers.clear()
    ones = np.ones((1, 50, 8), "float32")
    assert set(np.unique(stack(ones, *memory, training=True))) == {0.0, 2.0}
    np.testing.assert_array_equal(stack(ones, *memory, training=False), ones)


@pytest.mark.parametrize(("cls", "memory"), [(EncoderLayer, []), (DecoderLayer, [X])])
def test_a_layer_drops_out_the_output_of_every_sublayer(cls, memory):
    keras.utils.set_random_seed(1)
    layer = cls(**LAYER, dropout=0.9999, norm_first=True)
    np.testing.assert_array_equal(layer(X, *memory, training=True), X)  # only residuals


@pytest.mark.parametrize(
    ("name", "sublayer", "other"),
    [
        ("attention_dropout", "self_attention", "feed_forward"),
        ("activation_dropout", "feed_forward", "self_attention"),
    ],
)
def test_dropout_inside_a_sublayer_has_its_own_rate(name, sublayer, other):
    keras.utils.set_random_seed(1)
    layer = EncoderLayer(**LAYER, norm_first=True, **{name: 0.9999})
    layer.build(X.shape)
    outputs = layer(X, training=True)
    silent = getattr(layer, sublayer)
    assert silent.get_config()["dropout"] == 0.9999
    assert getattr(layer, other).get_config()["dropout"] == 0
    silent.set_weights([np.zeros_like(weight) for weight in silent.get_weights()])
    np.testing.assert_allclose(layer(X), outputs, atol=1e-6)


D, H, F = 16, 4, 24
# --- KerasNLP's layers, an independent implementation, from equal weights ----------------

OPTIONS = {"activation": "relu", "layer_norm_epsilon": 1e-6}
MASK = np.arange(7)[None] < np.array([[7], [4], [1]])


def copy_attention(ours, theirs):
    """Ours has kernels [D, H * K] and no biases; the biases of theirs are initially zero."""
    for name in ("query", "key", "value"):
        kernel = np.asarray(getattr(ours, f"{name}_dense").kernel).reshape(D, H, D // H)
        getattr(theirs, f"{name}_dense").kernel.assign(kernel)
    theirs.output_dense.kernel.assign(
        np.asarray(ours.output_dense.kernel).reshape(H, D // H, D)
    )


def copy_norm(ours, theirs):
    theirs.gamma.assign(ours.norm.gamma)
    theirs.beta.assign(ours.norm.beta)


def copy_layer(ours, theirs):
    """Makes our biases and norms random first: 0 and 1 would hide wrong uses."""
    for weight in ours.trainable_variables:
        if weight.path.rpartition("/")[2] in ("bias", "beta", "gamma"):
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    for name in ("self_attention", "cross_attention"):
        if getattr(ours, name, None):
            copy_attention(getattr(ours, name), getattr(theirs, f"_{name}_layer"))
            copy_norm(getattr(ours, f"{name}_norm"), getattr(theirs, f"_{name}_layer_norm"))
    for name, part in (
        ("intermediate", ours.feed_forward.inner),
        ("output", ours.feed_forward.outer),
    ):
        dense = getattr(theirs, f"_feedforward_{name}_dense")
        dense.kernel.assign(part.kernel)
        dense.bias.assign(part.bias)
    copy_norm(ours.feed_forward_norm, theirs._feedforward_layer_norm)


@NORM_ORDERS
def test_encoder_layer_equals_keras_nlp(norm_first):
    ours = EncoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerEncoder(F, H, **OPTIONS, normalize_first=norm_first)
    x = keras.random.normal((3, 7, D))
    ours(x), theirs(x)
    copy_layer(ours, theirs)
    expected = theirs(x, padding_mask=MASK)
    np.testing.assert_allclose(np.asarray(ours(x, mask=MASK)), expected, atol=2e-5)


@NORM_ORDERS
def test_decoder_layer_equals_keras_nlp(norm_first):
    ours = DecoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerDecoder(F, H, **OPTIONS, normalize_first=norm_first)
    target, encoded = keras.random.normal((3, 6, D)), keras.random.normal((3, 7, D))
    ours(target, encoded), theirs(target, encoded)
    copy_layer(ours, theirs)
    expected = theirs(target, encoded, encoder_padding_mask=MASK)
    actual = ours(target, encoded, encoder_output_mask=MASK)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=2e-5)


def test_positions_equal_keras_nlp():
    expected = keras_nlp.layers.SinePositionEncoding()(np.zeros((1, 50, D), "float32"))[0]
    actual = sinusoidal_positions(np.arange(50), D)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-5)
