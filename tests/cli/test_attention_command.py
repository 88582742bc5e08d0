"""`attention`: the weights of a run on a sentence, as a picture and as data."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.config import DecodingConfig
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def translator(trained_run):
    return load_translator(Run.open(trained_run.path), "best", decoding=DecodingConfig())


@pytest.fixture
def pair(trained_run) -> tuple[str, str]:
    return trained_run.lines("dev.en")[0], trained_run.lines("dev.de")[0]


def attention(run, pair, *options: str) -> dict:
    sentence, target = pair
    arguments = [sentence, "--target", target, "--data", "a.json", *options]
    assert main(["attention", str(run.path), *arguments]) == 0
    return json.loads(Path("a.json").read_text("utf-8"))


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_data_hold_the_weights_of_every_head(trained_run, translator, pair, kind):
    data = attention(trained_run, pair, "--kind", kind)
    [expected] = translator.attention([pair[0]], [pair[1]])
    heads = getattr(expected, kind)[0]
    assert list(data["panels"]) == [f"head {number}" for number in range(1, len(heads) + 1)]
    np.testing.assert_allclose(list(data["panels"].values()), heads, atol=1e-5)
    shape = len(heads), len(data["rows"]), len(data["columns"])
    assert np.shape(list(data["panels"].values())) == shape
    assert (data["kind"], data["layer"], data["links"]) == (kind, 1, [])


def test_heads_are_counted_from_1(trained_run, pair):
    whole = attention(trained_run, pair, "--kind", "cross")
    one = attention(trained_run, pair, "--kind", "cross", "--layer", "1", "--head", "2")
    assert one["panels"] == {"head 2": whole["panels"]["head 2"]}
    assert one["panels"]["head 2"] != whole["panels"]["head 1"]


def test_the_decoder_reads_the_pieces_before_the_one_it_predicts(trained_run, pair):
    data = attention(trained_run, pair, "--kind", "decoder")
    assert data["columns"] == ["<s>", *data["rows"][:-1]]
    for weights in data["panels"].values():
        assert np.count_nonzero(np.triu(weights, 1)) == 0
        assert weights[0][0] == 1


def test_the_alignment_is_the_mean_of_the_heads_with_the_links_from_translate(
    trained_run, capsys
):
    sentence = trained_run.lines("dev.en")[0]
    Path("in.txt").write_text(f"{sentence}\n", "utf-8")
    [best] = translated(capsys, trained_run.path, Path("in.txt"), "--alignments", "links")
    pair = sentence, best
    data = attention(trained_run, pair)
    cross = attention(trained_run, pair, "--kind", "cross")
    mean = np.mean(list(cross["panels"].values()), axis=0)
    np.testing.assert_allclose(data["panels"]["mean of heads"], mean, atol=1e-5)
    linked = {
        tuple(word_of(data, side, link) for side in ("columns", "rows"))
        for link in data["links"]
    }
    pairs = [link.split("-") for link in Path("links").read_text().split()]
    assert linked == {(int(source), int(target)) for source, target in pairs}
    for side, text in (("columns", sentence), ("rows", best)):
        words = text.split()
        for link in data["links"]:
            assert spelled(data, side, link) == words[word_of(data, side, link)]


def word_of(data: dict, side: str, link: dict) -> int:
    """Returns the index of the word that a link covers; a word's first piece has a mark."""
    start, _ = link[side]
    return sum(piece.startswith("▁") for piece in data[side][: start + 1]) - 1


def spelled(data: dict, side: str, link: dict) -> str:
    """Returns the word that a link covers."""
    start, stop = link[side]
    return "".join(data[side][start:stop]).replace("▁", "")


def test_the_default_target_is_the_models_translation(trained_run, translator, pair):
    options = [pair[0], "--data", "a.json"]
    assert main(["attention", str(trained_run.path), *options]) == 0
    best = translator.translate(pair[0])
    assert json.loads(Path("a.json").read_text("utf-8"))["target"] == best


def test_each_written_file_is_printed_on_a_line(trained_run, capsys):
    command = ["attention", str(trained_run.path), "Good day.", "--target", "Gut"]
    assert main(command) == 0
    assert capsys.readouterr().out == "attention.png\n"
    assert main([*command, "--kind", "encoder", "--output", "e.svg", "--data", "e.json"]) == 0
    assert capsys.readouterr().out == "e.json\ne.svg\n"
    assert main([*command, "--data", "only.json"]) == 0
    assert capsys.readouterr().out == "only.json\n"
    names = sorted(path.name for path in Path().iterdir())
    assert names == ["attention.png", "e.json", "e.svg", "only.json"]
    assert "encoder self-attention, layer 1 of 1" in Path("e.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "expected", "status"),
    [
        ("--layer 2", "--layer must be from 1 to 1. Received: 2", 1),
        ("--layer 0", "--layer must be from 1 to 1. Received: 0", 1),
        ("--kind cross --layer 1 --head 9", r"--head must be from 1 to \d. Received: 9", 1),
        ("--kind cross --layer 1 --head 0", r"--head must be from 1 to \d. Received: 0", 1),
        ("--data .", "--data must not be a folder or a device. Received: .", 1),
        ("--target=", "--target must not be empty", 2),
    ],
)
def test_bad_input_of_attention_is_refused(trained_run, capsys, options, expected, status):
    command = ["attention", str(trained_run.path), "Good morning."]
    assert_refused(capsys, [*command, *options.split()], expected, status=status)
