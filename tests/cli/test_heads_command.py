"""`heads` on a trained run: data, pictures, resuming, and a pruned run."""

import json
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main

pytest.importorskip("matplotlib")

KINDS = ("encoder", "decoder", "cross")


@pytest.fixture
def folder(workplace, trained_run) -> Path:
    """The workplace with a real dev set."""
    for language in ("en", "de"):
        text = "".join(f"{line}\n" for line in trained_run.lines(f"dev.{language}")[:8])
        (workplace / f"dev.{language}").write_text(text, "utf-8")
    return workplace


COMMAND = ["heads", "run", "--source", "dev.en", "--reference", "dev.de"]


def study() -> dict:
    return json.loads(Path("run/heads/heads.json").read_text("utf-8"))


def test_heads_are_measured_pruned_and_drawn(folder, capsys):
    assert main([*COMMAND, "--beam", "1", "--write", "pruned", "--keep", "8"]) == 0
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
    pictures = {f"{name}.{end}" for name in ("importance", "pruning") for end in ("png", "svg")}
    [measured] = Path("run/heads").glob("measured-*.json")
    assert files == {"heads.json", measured.name, *pictures}
    rows = [line.split() for line in printed.splitlines()]
    assert ["8", f"{curve[-9]['loss']:.4f}", f"{curve[-9]['bleu']:.2f}"] in rows

    # The pruned run is an ordinary run with the score on the curve.
    assert json.loads(Path("pruned/pruned_heads.json").read_text()) == names[: len(heads) - 8]
    arguments = ["--source", "dev.en", "--reference", "dev.de", "--beam", "1"]
    assert main(["evaluate", "pruned", *arguments]) == 0
    assert f"BLEU {curve[-9]['bleu']:.2f} " in capsys.readouterr().out

    # Everything has been measured: this only draws.
    before = measured.read_bytes()
    assert main([*COMMAND, "--beam", "1"]) == 0
    assert "measured before" in capsys.readouterr().out
    assert measured.read_bytes() == before
    assert study() == data


def test_without_bleu_only_the_loss_of_pairs_that_fit_is_measured(folder, capsys):
    first, *lines = Path("dev.en").read_text("utf-8").splitlines()
    Path("dev.en").write_text("\n".join([first, "one " * 1100, *lines[1:]]) + "\n", "utf-8")
    assert main([*COMMAND, "--no-bleu", "--iterative", "--limit", "4"]) == 0
    assert "pairs left out as too long: 1" in capsys.readouterr().out
    data = study()
    assert data["order"] == "iterative"
    assert data["sentences"] == 3
    assert {point["bleu"] for point in data["curve"]} == {None}
    losses = [point["loss"] for point in data["curve"]]
    least = min(head["loss_change"] for head in data["importance"])
    assert losses[1] == pytest.approx(losses[0] + least)


@pytest.mark.parametrize(
    ("options", "expected", "status"),
    [
        ("--write new --keep 99", r"--keep must be from 0 to \d+. Received: 99", 1),
        ("--write thesis --keep 3", "thesis exists already. Give --write a new folder", 1),
        ("--write dev.en/new --keep 3", "--write must be in a writable folder", 1),
        ("--limit 0", "--limit must be an int from 1 to 1000000000. Received: 0", 2),
        ("--output thesis", "thesis exists but was not created by `tf-transformer heads`", 1),
        ("--reference uneven.de", "same number of lines. Received: dev.en with 8", 1),
        ("--source empty.en --reference empty.de", "at least one sentence. Received: none", 1),
        ("--checkpoint 5", "no checkpoint '5'", 1),
    ],
)
def test_bad_input_is_refused(folder, capsys, options, expected, status):
    assert_refused(capsys, [*COMMAND, *options.split()], expected, status=status)


def test_measurements_are_used_again_only_for_the_same_settings(folder):
    words = [*COMMAND, "--limit", "2", "--no-bleu", "--beam", "1"]
    for more in ([], ["--batch-tokens", "999"], ["--iterative"]):  # no other figures
        assert main([*words, *more]) == 0
    assert len(list(Path("run/heads").glob("measured-*.json"))) == 1
    assert main([*words, "--beam", "2"]) == 0
    assert main([*words, "--limit", "3"]) == 0
    assert len(list(Path("run/heads").glob("measured-*.json"))) == 3
