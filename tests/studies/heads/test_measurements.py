"""Masks of heads, and measurements with masked heads."""

import json
from collections import Counter

import numpy as np
import pytest

from tf_transformer.config import BOS_ID
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from tf_transformer.models.transformer import Transformer
from tf_transformer.studies.heads.measurements import (
    KINDS,
    Head,
    HeadMasks,
    Measurements,
    measures,
)


def attention_of(model: Transformer, kind: str) -> MultiHeadAttention:
    if kind == "encoder":
        return model.encoder.layers[0].self_attention
    [layer] = model.decoder.layers
    return layer.self_attention if kind == "decoder" else layer.cross_attention


def results(translator, pairs) -> tuple[list, list]:
    sources, targets = pairs
    found = translator.translate(sources)
    scored = translator.score(sources, targets)
    return found, [one.log_prob for one in (*found, *scored)]


def test_the_model_has_a_head_for_every_kind_layer_and_number():
    model = Transformer(50, num_layers=2, d_model=12, d_ff=8, num_heads=3)
    heads = HeadMasks(model).heads
    assert heads == [Head(kind, i, j) for kind in KINDS for i in (1, 2) for j in (1, 2, 3)]
    assert [Head.parse(str(head)) for head in heads] == heads


def test_masking_a_head_removes_its_term_from_the_sum():
    """MultiHead is the sum of head_i times its rows of W^O, plus a bias."""
    model = Transformer(
        50, num_layers=1, d_model=8, d_ff=8, num_heads=2, value_dim=3, attention_bias=True
    )
    attention = attention_of(model, "encoder")
    attention.output_dense.bias.assign(np.arange(8.0))
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    heads = scaled_dot_product_attention(*attention.project_self(x))[0].numpy()
    terms = heads @ attention.output_dense.kernel.numpy().reshape(2, 3, 8)  # [B, H, T, D]
    HeadMasks(model).apply([Head("encoder", 1, 1)])
    np.testing.assert_allclose(attention(x), terms[:, 1] + np.arange(8.0), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_masking_a_head_equals_zeroing_its_values(translator, masks, pairs, kind):
    """A head whose values are all zero has the output zero."""
    whole = results(translator, pairs)
    attention, number = attention_of(translator.model, kind), 2
    masks.apply([Head(kind, 1, number)])
    texts, log_probs = results(translator, pairs)
    masks.apply([])
    kernel = attention.value_dense.kernel.numpy()  # [D, H * value_dim]
    without = kernel.copy()
    without.reshape(len(kernel), attention.num_heads, -1)[:, number - 1] = 0
    attention.value_dense.kernel.assign(without)
    expected_texts, expected_log_probs = results(translator, pairs)
    attention.value_dense.kernel.assign(kernel)
    assert texts == expected_texts
    np.testing.assert_allclose(log_probs, expected_log_probs, atol=1e-4)
    assert not np.allclose(log_probs, whole[1], atol=1e-2)


def test_without_cross_attention_the_source_has_no_effect(translator, masks, pairs):
    masks.apply([head for head in masks.heads if head.kind == "cross"])
    sources = [pairs[0][0], "cow", " ".join(pairs[0])]
    one, *others = translator.score(sources, [pairs[1][0]] * 3)
    for other in others:
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4)


def test_masks_replace_earlier_ones_and_are_fully_removed(translator, pairs):
    before = {v.path: v.numpy() for v in translator.model.trainable_variables}
    masks = HeadMasks(translator.model)
    masks.apply([Head("cross", 1, 1)])
    masks.apply([Head("encoder", 1, 1)])
    both = {v.path: v.numpy() for v in translator.model.trainable_variables}
    assert sum(not np.array_equal(both[path], before[path]) for path in before) == 1
    masks.apply([])
    for variable in translator.model.trainable_variables:
        np.testing.assert_array_equal(variable.numpy(), before[variable.path])


def test_an_unknown_head_is_refused(masks):
    with pytest.raises(ValueError, match=r"Received: cross 2\.1, of a model whose last head"):
        masks.apply([Head("encoder", 1, 1), Head("cross", 2, 1)])


HEADS = [Head("encoder", 1, 1), Head("cross", 1, 2)]


def test_the_loss_is_the_mean_over_pieces_without_smoothing(translator, masks, pairs):
    total, pieces = 0.0, 0
    masks.apply(HEADS)
    for source, target in zip(*pairs, strict=True):
        ids = [
            translator.codec.encode([text])[0].to_tensor().numpy() for text in (source, target)
        ]
        shifted = np.concatenate([[[BOS_ID]], ids[1][:, :-1]], axis=1)
        logits = translator.model({"source": ids[0], "target": shifted}).numpy()[0]
        logits = logits.astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        total -= log_probs[np.arange(len(logits)), ids[1][0]].sum()
        pieces += len(logits)
    masks.apply([])
    loss = measures(translator.engine, translator.decoding, masks, *pairs)["loss"]
    assert loss(HEADS) == pytest.approx(total / pieces, abs=1e-5)
    assert loss([]) < loss(HEADS)


def test_bleu_is_that_of_the_masked_model(translator, masks, pairs):
    score = measures(translator.engine, translator.decoding, masks, *pairs)["bleu"]
    whole, without = score([]), score(HEADS)
    masks.apply(HEADS)
    texts = translator.translate(pairs[0])
    assert without == bleu(texts, pairs[1]).value != whole


@pytest.fixture
def counted():
    """Counts of computations by name and masked heads, and the functions that are counted."""
    calls: Counter = Counter()

    def loss(masked):
        calls["loss", frozenset(masked)] += 1
        return 1.1 * len(masked)

    def score(masked):
        calls["bleu", frozenset(masked)] += 1
        return 99.9 - len(masked)

    return calls, {"loss": loss, "bleu": score}


def test_nothing_is_measured_twice_even_after_an_interruption(tmp_path, counted):
    calls, functions = counted
    path = tmp_path / "new" / "measurements.jsonl"
    first = Measurements(path, {"text": "a"}, functions)
    assert first.loss(HEADS) == first.loss(HEADS[::-1]) == 2.2
    assert first.loss([]) == 0
    again = Measurements(path, {"text": "a"}, functions)
    assert len(again) == 2
    assert (again.loss(HEADS), again.bleu(HEADS), again.loss([])) == (2.2, 97.9, 0)
    assert set(calls.values()) == {1}
    assert len(calls) == 3
    assert len(Measurements(path, {"text": "a"}, functions)) == 3


def test_the_file_is_complete_after_a_failed_measurement(tmp_path, counted):
    _, functions = counted

    def interrupted(masked):
        raise KeyboardInterrupt

    path = tmp_path / "measurements.jsonl"
    one = Measurements(path, {}, functions | {"bleu": interrupted})
    one.loss(HEADS)
    with pytest.raises(KeyboardInterrupt):
        one.bleu(HEADS)
    one.loss([])  # writes once more
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert lines == [
        {"settings": {}},
        {"masked": ["cross 1.2", "encoder 1.1"], "loss": 2.2},
        {"masked": [], "loss": 0.0},
    ]


def test_measurements_with_other_settings_are_refused(tmp_path, counted):
    path = tmp_path / "measurements.jsonl"
    Measurements(path, {"text": "a", "checkpoint": "x"}, counted[1]).loss([])
    before = path.read_bytes()
    with pytest.raises(UserError, match="with other settings: checkpoint, text changed"):
        Measurements(path, {"text": "b", "checkpoint": "y"}, counted[1])
    assert path.read_bytes() == before


def test_losses_are_kept_when_only_bleu_settings_change(tmp_path, counted):
    calls, functions = counted
    path = tmp_path / "measurements.jsonl"
    Measurements(path, {"text": "a", "decoding": 4}, functions).loss(HEADS)
    other = {"text": "a", "decoding": 1}
    again = Measurements(path, other, functions)
    assert (again.loss(HEADS), again.bleu(HEADS)) == (2.2, 97.9)
    assert set(calls.values()) == {1}
    assert json.loads(path.read_text("utf-8").splitlines()[0]) == {"settings": other}
    with pytest.raises(UserError, match="with other settings: decoding changed"):
        Measurements(path, {"text": "a", "decoding": 4}, functions)


@pytest.mark.parametrize(
    "text", ["", "{", "[]\n", '{"settings": {}}\n{"masked": ["cross"], "loss": 1}\n', "{}\n"]
)
def test_damaged_measurements_are_refused(tmp_path, counted, text):
    path = tmp_path / "measurements.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match="cannot be read as measurements"):
        Measurements(path, {}, counted[1])
