"""Masks of heads, measurements with masked heads, pruning, and its pictures."""

import importlib.util
import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import snippets

from experiments.common import run
from experiments.heads.__main__ import main
from experiments.heads.masks import KINDS, Head, HeadMasks
from experiments.heads.pictures import importance_figure, pruning_figure
from experiments.heads.study import (
    importances,
    iterative_order,
    measures,
    pruning_curve,
    remembered,
)
from tf_transformer import (
    DecodingConfig,
    LabelSmoothedCrossEntropy,
    MultiHeadAttention,
    Transformer,
    Translator,
    UserError,
    evaluation,
    load,
)

BOS_ID = 2

# --- Masks ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(trained_run) -> Translator:
    """A translator that the tests of a module share: they must restore masked heads."""
    found = load(trained_run.path, checkpoint="best")
    return Translator(found.model, found.tokenizer, DecodingConfig(beam_size=4))


@pytest.fixture
def masks(translator):
    masks = HeadMasks(translator.model)
    yield masks
    masks.apply([])


@pytest.fixture
def pairs(trained_run) -> tuple[list[str], list[str]]:
    return trained_run.lines("dev.en")[:12], trained_run.lines("dev.de")[:12]


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
    assert str(heads[-1]) == "cross 2.3"
    sublayers = " ".join(map(str, HeadMasks(model).sublayers))
    assert sublayers == (
        "encoder 1 encoder-ff 1 encoder 2 encoder-ff 2 "
        "decoder 1 cross 1 decoder-ff 1 decoder 2 cross 2 decoder-ff 2"
    )


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


def test_without_sublayers_only_the_residual_connection_is_left():
    model = Transformer(
        9, num_layers=2, d_model=4, d_ff=8, num_heads=2, norm_first=True, attention_bias=True
    )
    for weight in model.weights:  # biases too have an effect
        weight.assign(weight + 0.1)
    masks, x = HeadMasks(model), np.random.default_rng(0).normal(size=(1, 3, 4))
    whole = model.encoder(x).numpy()
    masks.apply([each for each in masks.sublayers if each.kind.startswith("encoder")])
    only_norm = model.encoder.norm(x).numpy()
    np.testing.assert_allclose(model.encoder(x).numpy(), only_norm, atol=1e-6)
    masks.apply([])
    np.testing.assert_array_equal(model.encoder(x).numpy(), whole)
    assert not np.allclose(whole, only_norm, atol=0.1)


def test_training_leaves_masked_heads_at_zero_and_trains_the_others():
    model = Transformer(
        9, num_layers=1, d_model=8, d_ff=8, num_heads=2, attention_bias=True, dropout=0.1
    )
    HeadMasks(model).apply([Head(kind, 1, 2) for kind in KINDS])
    layers = [attention_of(model, kind) for kind in KINDS]
    before = [layer.output_dense.kernel.numpy() for layer in layers]
    ids = np.array([[5, 6, 3], [7, 8, 4]], "int32")
    model.compile("adam", LabelSmoothedCrossEntropy())
    model.fit({"source": ids, "target": ids}, ids, epochs=3, verbose=0)
    for layer, kernel in zip(layers, before, strict=True):
        output, value = layer.output_dense, layer.value_dense
        for masked in (output.kernel[4:], value.kernel[:, 4:], value.bias[4:]):
            np.testing.assert_array_equal(masked, np.zeros(masked.shape))
        assert np.all(output.kernel.numpy()[:4] != kernel[:4])


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
    assert sum(not np.array_equal(both[path], before[path]) for path in before) == 2  # W^O, W^V
    masks.apply([])
    for variable in translator.model.trainable_variables:
        np.testing.assert_array_equal(variable.numpy(), before[variable.path])


def test_an_unknown_head_is_refused(masks):
    with pytest.raises(ValueError, match=r"Received: cross 2\.1, of a model whose last head"):
        masks.apply([Head("encoder", 1, 1), Head("cross", 2, 1)])


# --- Measurements --------------------------------------------------------------------------

HEADS = [Head("encoder", 1, 1), Head("cross", 1, 2)]


def test_the_loss_is_the_mean_over_pieces_without_smoothing(translator, masks, pairs):
    total, pieces = 0.0, 0
    masks.apply(HEADS)
    for source, target in zip(*pairs, strict=True):
        ids = [
            translator.tokenizer.encode([text])[0].to_tensor().numpy()
            for text in (source, target)
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


def test_bleu_is_that_of_the_masked_model(translator, masks, pairs):
    score = measures(translator, masks, *pairs)["bleu"]
    whole, without = score([]), score(HEADS)
    masks.apply(HEADS)
    texts = translator.translate(pairs[0])
    assert without == evaluation.bleu(texts, pairs[1]).value != whole


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
    path = tmp_path / "new" / "measured.json"
    loss = remembered(path, functions)["loss"]
    assert loss(HEADS) == loss(HEADS[::-1]) == 2.2
    assert loss([]) == 0
    again = remembered(path, functions)
    assert (again["loss"](HEADS), again["bleu"](HEADS), again["loss"]([])) == (2.2, 97.9, 0)
    assert set(calls.values()) == {1}
    assert len(calls) == 3


def test_the_file_is_complete_after_a_failed_measurement(tmp_path, counted):
    def interrupted(masked):
        raise KeyboardInterrupt

    path = tmp_path / "measured.json"
    one = remembered(path, counted[1] | {"bleu": interrupted})
    one["loss"](HEADS)
    with pytest.raises(KeyboardInterrupt):
        one["bleu"](HEADS)
    assert json.loads(path.read_text("utf-8")) == {"cross 1.2, encoder 1.1": {"loss": 2.2}}


def test_a_damaged_file_is_refused(tmp_path, counted):
    path = tmp_path / "measured.json"
    path.write_text('{"cross 1.2": {"lo')
    with pytest.raises(UserError, match="measured.json cannot be read .* Delete it"):
        remembered(path, counted[1])


# --- Importance and pruning ----------------------------------------------------------------

A, B, C, D = FOUR = [Head("encoder", 1, 1), Head("decoder", 1, 1), Head("cross", 1, 1),
                     Head("cross", 1, 2)]  # fmt: skip


def loss_of(masked) -> float:
    """A and B are redundant: the model needs one of them more than anything else."""
    redundant = 5 * ({A, B} <= {*masked})
    return 1 + 0.2 * (C in masked) + 0.3 * (D in masked) + redundant + 0.1 * (B in masked)


FUNCTIONS = {"loss": loss_of, "bleu": lambda masked: 40 - 8 * loss_of(masked)}


def test_importance_is_the_change_from_masking_one_head():
    found = importances(FOUR, FUNCTIONS)
    assert [each.head for each in found] == FOUR
    assert [each.loss_change for each in found] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert [each.bleu_change for each in found] == pytest.approx([0, -0.8, -1.6, -2.4])


def test_iterative_order_keeps_one_of_two_redundant_heads():
    order = iterative_order(FOUR, loss_of)
    assert order == [A, C, D, B]
    # No other last head would give a lower loss here.
    least = min(loss_of(chosen) for chosen in itertools.combinations(FOUR, 3))
    assert loss_of(order[:3]) == least


def test_the_curve_goes_from_all_heads_to_none():
    points = pruning_curve([A, C, D, B], FUNCTIONS)
    names = list(map(str, [A, C, D, B]))
    assert [point.kept for point in points] == [4, 3, 2, 1, 0]
    assert [point.pruned for point in points] == [names[:count] for count in range(5)]
    assert [point.loss for point in points] == pytest.approx([1, 1, 1.2, 1.5, 6.6])
    assert [point.bleu for point in points] == pytest.approx(
        [40 - 8 * one.loss for one in points]
    )


@pytest.mark.parametrize("number", [24, 25, 48, 144])
def test_a_curve_of_many_heads_has_few_points(number):
    heads = [Head("cross", 1, each) for each in range(number)]
    points = pruning_curve(heads, {"loss": loss_of})
    kept = [point.kept for point in points]
    assert {point.bleu for point in points} == {None}
    assert kept[0] == number and kept[-1] == 0
    assert len(kept) <= 25
    assert {a - b for a, b in itertools.pairwise(kept)} <= {math.ceil(number / 24), 1}


# --- Pictures ------------------------------------------------------------------------------

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="draws pictures"
)
VALUES = {
    "encoder self-attention": np.array([[0.1, -0.2, 0.0], [0.3, 0.4, 0.5]]),
    "cross-attention": np.array([[1.0, 0.9, 0.8], [0.7, 0.65, 0.6]]),
}


def panels_of(figure) -> list:
    return [axes for axes in figure.axes if axes.images]


@needs_matplotlib
def test_each_head_has_a_cell_with_its_number():
    figure = importance_figure([("rise in loss", "+z.2f", VALUES)], "of a model")
    panels = panels_of(figure)
    assert [axes.get_title() for axes in panels] == list(VALUES)
    for axes, values in zip(panels, VALUES.values(), strict=True):
        [image] = axes.images
        np.testing.assert_array_equal(image.get_array(), values)
        assert image.get_clim() == (0, 1)
        written = {(text.get_position(), text.get_text()) for text in axes.texts}
        assert written == {
            ((head, layer), f"{value:+.2f}") for (layer, head), value in np.ndenumerate(values)
        }
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["1", "2", "3"]
    assert figure.get_supxlabel() == "head" and figure.get_supylabel() == "layer"
    [bar] = [axes for axes in figure.axes if not axes.images]
    assert bar.get_ylabel() == "rise in loss"


@needs_matplotlib
def test_numbers_are_readable_on_any_grey():
    for axes in panels_of(importance_figure([("a", "+.2f", VALUES)], "b")):
        [image] = axes.images
        for text in axes.texts:
            *color, _ = image.cmap(image.norm(float(text.get_text())))
            dark = float(np.mean(color)) < 0.5
            assert text.get_color() == ("white" if dark else "black")


@needs_matplotlib
def test_a_model_without_important_heads_can_be_drawn():
    zeros = {"cross-attention": -np.ones((1, 2))}
    [axes] = panels_of(importance_figure([("a", "+.2f", zeros)], "b"))
    assert axes.images[0].get_clim()[1] > 0


@needs_matplotlib
def test_the_pruning_curve_has_a_point_for_each_number_of_heads():
    figure = pruning_figure([4, 2, 0], {"BLEU": [30, 20, 1], "loss": [1, 2, 3]}, "pruned")
    bleu, loss = figure.axes
    assert (bleu.get_ylabel(), loss.get_ylabel()) == ("BLEU", "loss")
    assert bleu.get_xlabel() == "heads kept, of 4"
    whole, curve = bleu.lines
    assert curve.get_xydata().tolist() == [[4, 30], [2, 20], [0, 1]]
    assert set(whole.get_ydata()) == {30}


# --- The command -------------------------------------------------------------------------

WORDS = ["run", "--source", "dev.en", "--reference", "dev.de", "--output", "heads"]


def study() -> dict:
    return json.loads(Path("heads/heads.json").read_text("utf-8"))


@needs_matplotlib
def test_heads_are_measured_pruned_and_drawn(texts, capsys):
    words = [*WORDS, "--beam", "1", "--write", "pruned", "--keep", "8"]
    assert run(main, words) == 0
    printed = capsys.readouterr().out
    data = study()
    heads = data["importance"]
    assert [head["head"] for head in heads] == [
        f"{kind} 1.{number}" for kind in KINDS for number in range(1, len(heads) // 3 + 1)
    ]
    by_loss = sorted(heads, key=lambda head: head["loss_change"])
    names = [head["head"] for head in by_loss]
    curve = data["curve"]
    assert curve[-1]["pruned"] == names
    assert [point["kept"] for point in curve] == list(range(len(heads), -1, -1))
    assert curve[0]["loss"] < curve[-1]["loss"]
    one_masked = curve[0]["loss"] + by_loss[0]["loss_change"]
    assert curve[1]["loss"] == pytest.approx(one_masked)
    names_of_pictures = ("importance", "pruning", "sublayers")
    pictures = {f"{name}.{end}" for name in names_of_pictures for end in ("png", "svg")}
    [measured] = Path("heads").glob("measured-*.json")
    files = {path.name for path in Path("heads").iterdir()}
    assert files == {"heads.json", measured.name, *pictures}
    rows = [line.replace("|", " ").split() for line in printed.splitlines()]
    changes = data["sublayers"][0]
    loss, score = f"{changes['loss_change']:+.4f}", f"{changes['bleu_change']:+.2f}"
    assert [*changes["sublayer"].split(), loss, score] in rows
    assert ["8", f"{curve[-9]['loss']:.4f}", f"{curve[-9]['bleu']:.2f}"] in rows

    # The pruned model has the score on the curve.
    assert json.loads(Path("pruned/pruned.json").read_text()) == names[: len(heads) - 8]
    [snippet] = snippets("experiments/heads/README.md")
    test = {"sources": Path("dev.en").read_text("utf-8").splitlines()}
    test["references"] = Path("dev.de").read_text("utf-8").splitlines()
    exec(snippet, test)
    scores = test["pruned"].evaluate(test["sources"], test["references"], beam_size=1)
    assert scores.bleu.value == pytest.approx(curve[-9]["bleu"])

    # Everything has been measured: this only draws.
    before = measured.read_bytes()
    assert run(main, [*WORDS, "--beam", "1"]) == 0
    assert "measured before" in capsys.readouterr().out
    assert measured.read_bytes() == before
    assert study() == data


@needs_matplotlib
def test_without_bleu_only_the_loss_of_pairs_that_fit_is_measured(texts, capsys):
    first, *lines = Path("dev.en").read_text("utf-8").splitlines()
    Path("dev.en").write_text("\n".join([first, "one " * 1100, *lines[1:]]) + "\n", "utf-8")
    assert run(main, [*WORDS, "--no-bleu", "--iterative", "--limit", "4"]) == 0
    assert "pairs left out as too long: 1" in capsys.readouterr().out
    data = study()
    assert (data["order"], data["sentences"]) == ("iterative", 3)
    assert {point["bleu"] for point in data["curve"]} == {None}
    losses = [point["loss"] for point in data["curve"]]
    least = min(head["loss_change"] for head in data["importance"])
    assert losses[1] == pytest.approx(losses[0] + least)


@needs_matplotlib
def test_measurements_are_used_again_only_for_the_same_settings(texts):
    words = [*WORDS, "--limit", "2", "--no-bleu", "--beam", "1"]
    for more in ([], ["--iterative"]):  # no other figures
        assert run(main, [*words, *more]) == 0
    assert len(list(Path("heads").glob("measured-*.json"))) == 1
    assert run(main, [*words, "--beam", "2"]) == 0
    assert run(main, [*words, "--limit", "3"]) == 0
    assert len(list(Path("heads").glob("measured-*.json"))) == 3


@needs_matplotlib
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--write new", r"--write needs --keep, from 0 to \d+. Received: None"),
        ("--write new --keep 99", "Received: 99"),
        ("--write run --keep 3", "run exists already"),
        ("--limit 0", "expected an int from 1. Received: '0'"),
        ("--keep -1 --write new", "expected"),
        ("--source empty.en --reference empty.de", "empty.en must have at least one line"),
        ("--source no.en", "no.en cannot be read"),
        ("--source short.en", "same number of lines. Received: short.en with 7, dev.de with 8"),
        ("--checkpoint 5", "no checkpoint '5'"),
    ],
)
def test_bad_input_is_refused(texts, refused, options, expected):
    assert re.search(expected, refused(main, [*WORDS, *options.split()]))
