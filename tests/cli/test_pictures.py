"""Commands that draw: `attention`, `heads`, `lengths` and `draw`."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.config import DecodingConfig
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.loading.load import load_translator
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


KINDS = ("encoder", "decoder", "cross")


@pytest.fixture
def texts(workplace, trained_run) -> Path:
    """The workplace with a real dev set, and a test set of short and long sentences."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:16]
        tests = [*lines, " ".join(lines[:8]), " ".join(lines[8:])]
        for name, part in (("dev", lines[:8]), ("test", tests)):
            Path(f"{name}.{language}").write_text(
                "".join(f"{line}\n" for line in part), "utf-8"
            )
    return workplace


LENGTHS = ["lengths", "run", "--source", "test.en", "--reference", "test.de"]
HEADS = ["heads", "run", "--source", "dev.en", "--reference", "dev.de"]


def study() -> dict:
    return json.loads(Path("run/heads/heads.json").read_text("utf-8"))


def test_heads_are_measured_pruned_and_drawn(texts, capsys):
    assert main([*HEADS, "--beam", "1", "--write", "pruned", "--keep", "8"]) == 0
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
    files = {path.name for path in Path("run/heads").iterdir()}
    names_of_pictures = ("importance", "pruning", "sublayers")
    pictures = {f"{name}.{end}" for name in names_of_pictures for end in ("png", "svg")}
    [measured] = Path("run/heads").glob("measured-*.json")
    assert files == {".lock", "heads.json", measured.name, *pictures}
    rows = [line.split() for line in printed.splitlines()]
    changes = data["sublayers"][0]
    loss, score = f"{changes['loss_change']:+.4f}", f"{changes['bleu_change']:+.2f}"
    assert [*changes["sublayer"].split(), loss, score] in rows
    assert ["8", f"{curve[-9]['loss']:.4f}", f"{curve[-9]['bleu']:.2f}"] in rows

    # The pruned run is an ordinary run with the score on the curve.
    assert json.loads(Path("pruned/pruned_heads.json").read_text()) == names[: len(heads) - 8]
    arguments = ["--source", "dev.en", "--reference", "dev.de", "--beam", "1"]
    assert main(["evaluate", "pruned", *arguments]) == 0
    assert f"BLEU {curve[-9]['bleu']:.2f} " in capsys.readouterr().out

    # Everything has been measured: this only draws.
    before = measured.read_bytes()
    assert main([*HEADS, "--beam", "1"]) == 0
    assert "measured before" in capsys.readouterr().out
    assert measured.read_bytes() == before
    assert study() == data


def test_without_bleu_only_the_loss_of_pairs_that_fit_is_measured(texts, capsys):
    first, *lines = Path("dev.en").read_text("utf-8").splitlines()
    Path("dev.en").write_text("\n".join([first, "one " * 1100, *lines[1:]]) + "\n", "utf-8")
    assert main([*HEADS, "--no-bleu", "--iterative", "--limit", "4"]) == 0
    assert "pairs left out as too long: 1" in capsys.readouterr().out
    data = study()
    assert data["order"] == "iterative"
    assert data["sentences"] == 3
    assert {point["bleu"] for point in data["curve"]} == {None}
    losses = [point["loss"] for point in data["curve"]]
    least = min(head["loss_change"] for head in data["importance"])
    assert losses[1] == pytest.approx(losses[0] + least)


def test_measurements_are_used_again_only_for_the_same_settings(texts):
    words = [*HEADS, "--limit", "2", "--no-bleu", "--beam", "1"]
    for more in ([], ["--batch-tokens", "999", "--iterative"]):  # no other figures
        assert main([*words, *more]) == 0
    assert len(list(Path("run/heads").glob("measured-*.json"))) == 1
    assert main([*words, "--beam", "2"]) == 0
    assert main([*words, "--limit", "3"]) == 0
    assert len(list(Path("run/heads").glob("measured-*.json"))) == 3


def rows(printed: str) -> list[list[str]]:
    """Returns the words of each row of the table."""
    lines = [line.split() for line in printed.splitlines()]
    return [words for words in lines if words and re.fullmatch(r"\d+-\d+", words[0])]


def test_each_bucket_has_its_bleu(texts, capsys):
    assert main([*LENGTHS, "--width", "6", "--least", "2"]) == 0
    printed = capsys.readouterr().out
    found = rows(printed)
    assert sum(int(row[1]) for row in found) == 18
    assert found[-1][1] == "2"  # the long ones
    longest = EncodedCorpus.open(Path("run/data/train")).source_lengths.max()
    assert f"run: trained up to {longest}, cuts at 1,024 pieces" in printed
    assert Path("lengths.png").read_bytes().startswith(b"\x89PNG")
    assert "lengths.png\n" in printed

    # The sentences of the last bucket, scored by another command.
    for language in ("en", "de"):
        lines = Path(f"test.{language}").read_text("utf-8").splitlines()[-2:]
        Path(f"long.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    arguments = ["--source", "long.en", "--reference", "long.de"]
    assert main(["evaluate", "run", *arguments]) == 0
    assert f"BLEU {found[-1][2]} " in capsys.readouterr().out


def test_without_the_tokenised_corpus_the_training_length_is_unknown(texts, capsys):
    for file in Path("run/data/train").iterdir():
        file.unlink()
    assert main([*LENGTHS, "--output", "new/a.svg"]) == 0
    assert "run: trained up to an unknown length, cuts at 1,024" in capsys.readouterr().out
    svg = Path("new/a.svg").read_text("utf-8")
    assert svg.startswith("<?xml")
    assert "longest in training" not in svg


@pytest.mark.parametrize(
    ("command", "options", "expected", "status"),
    [
        (HEADS, "--write new --keep 99", r"--keep must be from 0 to \d+. Received: 99", 1),
        (HEADS, "--write thesis --keep 3", "thesis exists already. Give --write a new", 1),
        (HEADS, "--write new --keep 3 --output new", "--write must not be the folder of", 1),
        (HEADS, "--write new --keep 3 --output new/heads", "or contain it. Received: new", 1),
        (HEADS, "--write dev.en/new --keep 3", "--write must be in a writable folder", 1),
        (HEADS, "--limit 0", "--limit must be an int from 1 to 1000000000. Received: 0", 2),
        (HEADS, "--output thesis", "thesis exists but was not created by `tf-tr", 1),
        (HEADS, "--source empty.en --reference empty.de", "at least one sentence.", 1),
        (HEADS, "--checkpoint 5", "no checkpoint '5'", 1),
        (LENGTHS, "--width 0", "--width must be an int from 1 to 1000000000. Received: 0", 2),
        (LENGTHS, "--checkpoint 5", "no checkpoint '5'", 1),
        (LENGTHS, "--reference uneven.de", "same number of lines. .* test.en with 18", 1),
        (LENGTHS, "--source blank.en --reference blank.de", "blank.de:1: a reference must", 1),
    ],
)
def test_bad_input_of_studies_is_refused(texts, capsys, command, options, expected, status):
    assert_refused(capsys, [*command, *options.split()], expected, status=status)


def test_every_run_is_checked_before_the_first_translation(texts, capsys):
    runs = ["lengths", "run", "thesis"]
    assert_refused(capsys, [*runs, *LENGTHS[2:]], "thesis is not a run directory", status=1)


@pytest.fixture
def trees(empty_folder) -> None:
    """Writes gold and parsed: two trees and a blank line each."""
    Path("gold").write_text("(S (NP (PRP We)) (VP (VBD won)))\n(S (VP (VB Go)))\n\n")
    Path("parsed").write_text("(S (NP (PRP We)) (VP (VBD won)))\n(S (NP (VB Go)))\n\n")


@pytest.mark.parametrize(("line", "word", "differs"), [(1, "won", False), (2, "Go", True)])
def test_draw_draws_the_trees_on_a_line(trees, capsys, line, word, differs):
    options = ["--line", str(line), "--output", "new/tree.svg"]
    assert main(["draw", "gold", "parsed", *options]) == 0
    assert capsys.readouterr().out == "new/tree.svg\n"
    text = Path("new/tree.svg").read_text("utf-8")
    assert f"<!-- {word} -->" in text
    assert ("#d55e00" in text) == differs


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--output tree.txt", "must end in .png, .svg or .pdf. Received: tree.txt"),
        ("--output tree.svg --line 4", "--line must be between 1 and 3 for gold. Received: 4"),
        ("--output tree.svg --line 0", "--line must be between 1 and 3 for gold. Received: 0"),
        ("--output tree.svg --line 3", "gold:3: expected one tree. Received: 0"),
    ],
)
def test_bad_input_of_draw_is_refused(trees, capsys, options, expected):
    assert_refused(capsys, ["draw", "gold", "parsed", *options.split()], expected, status=1)
