"""Loss and BLEU are what they are called, and no measurement is made twice."""

import json
from collections import Counter

import numpy as np
import pytest

from tf_transformer.config import BOS_ID
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.studies.heads.masks import Head
from tf_transformer.studies.heads.measurements import Measurements, measures

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
    loss = measures(translator, masks, *pairs)["loss"]
    assert loss(HEADS) == pytest.approx(total / pieces, abs=1e-5)
    assert loss([]) < loss(HEADS)


def test_bleu_is_that_of_the_masked_models_translations(translator, masks, pairs):
    score = measures(translator, masks, *pairs)["bleu"]
    whole, without = score([]), score(HEADS)
    masks.apply(HEADS)
    texts = [one.text for [one] in translator.translate(pairs[0])]
    assert without == bleu(texts, pairs[1]).value != whole


@pytest.fixture
def count():
    """Counts of each figure's computations, and functions that count."""
    calls: Counter = Counter()

    def loss(masked):
        calls["loss", frozenset(masked)] += 1
        return 1.1 * len(masked)

    def score(masked):
        calls["bleu", frozenset(masked)] += 1
        return 99.9 - len(masked)

    return calls, {"loss": loss, "bleu": score}


def test_nothing_is_measured_twice_not_even_after_an_interruption(tmp_path, count):
    calls, functions = count
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


def test_what_is_on_the_disk_is_whole_when_a_measurement_fails(tmp_path, count):
    _, functions = count

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


def test_measurements_of_other_settings_are_not_mixed(tmp_path, count):
    path = tmp_path / "measurements.jsonl"
    Measurements(path, {"text": "a", "checkpoint": "x"}, count[1]).loss([])
    before = path.read_bytes()
    with pytest.raises(UserError, match="of other settings: checkpoint, text changed"):
        Measurements(path, {"text": "b", "checkpoint": "y"}, count[1])
    assert path.read_bytes() == before


def test_losses_are_kept_when_only_settings_of_bleu_change(tmp_path, count):
    calls, functions = count
    path = tmp_path / "measurements.jsonl"
    Measurements(path, {"text": "a", "decoding": 4}, functions).loss(HEADS)
    other = {"text": "a", "decoding": 1}
    again = Measurements(path, other, functions)
    assert (again.loss(HEADS), again.bleu(HEADS)) == (2.2, 97.9)
    assert set(calls.values()) == {1}
    assert json.loads(path.read_text("utf-8").splitlines()[0]) == {"settings": other}
    with pytest.raises(UserError, match="of other settings: decoding changed"):
        Measurements(path, {"text": "a", "decoding": 4}, functions)


@pytest.mark.parametrize(
    "text", ["", "{", "[]\n", '{"settings": {}}\n{"masked": ["cross"], "loss": 1}\n', "{}\n"]
)
def test_damaged_measurements_are_refused(tmp_path, count, text):
    path = tmp_path / "measurements.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match="cannot be read as measurements"):
        Measurements(path, {}, count[1])
