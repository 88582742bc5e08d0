"""`heads` and `lengths`, which measure runs on a test set."""

import json
import re
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main
from tf_transformer.data.encoded_corpus import EncodedCorpus

pytest.importorskip("matplotlib")

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
        (HEADS, "--write thesis --keep 3", "thesis exists already. Remove it", 1),
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
