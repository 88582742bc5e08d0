"""`lengths` on trained runs: its table, picture and data."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.tokenizer import Tokenizer

pytest.importorskip("matplotlib")


@pytest.fixture
def folder(workplace, trained_run) -> Path:
    """The workplace with a test set of short and long sentences."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:16]
        lines += [" ".join(lines[:8]), " ".join(lines[8:])]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return workplace


COMMAND = ["lengths", "run", "--source", "test.en", "--reference", "test.de"]


def rows(printed: str) -> list[list[str]]:
    """Returns the words of each row of the table."""
    lines = [line.split() for line in printed.splitlines()]
    return [words for words in lines if words and re.fullmatch(r"\d+-\d+", words[0])]


def test_each_bucket_has_its_bleu(folder, capsys):
    assert main([*COMMAND, "--width", "6", "--least", "2"]) == 0
    printed = capsys.readouterr().out
    found = rows(printed)
    assert sum(int(row[1]) for row in found) == 18
    assert found[-1][1] == "2"  # the long ones
    longest = EncodedCorpus.open(Path("run/data/train")).source_lengths.max()
    assert f"run: trained up to {longest}, cuts at 1,024 pieces" in printed
    assert Path("lengths.png").read_bytes().startswith(b"\x89PNG")
    assert printed.startswith("lengths.png\n")

    # The sentences of the last bucket, scored by another command.
    for language in ("en", "de"):
        lines = Path(f"test.{language}").read_text("utf-8").splitlines()[-2:]
        Path(f"long.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    arguments = ["--source", "long.en", "--reference", "long.de"]
    assert main(["evaluate", "run", *arguments]) == 0
    assert f"BLEU {found[-1][2]} " in capsys.readouterr().out


def test_lengths_are_pieces_including_eos(folder, capsys):
    assert main([*COMMAND, "--width", "1", "--least", "1"]) == 0
    lines = Path("test.en").read_text("utf-8").splitlines()
    pieces = Tokenizer(Path("run/tokenizer.model")).tokenize(lines).row_lengths().numpy() + 1
    last = [int(row[0].split("-")[1]) for row in rows(capsys.readouterr().out)]
    assert last == sorted(set(pieces.tolist()))


def test_without_the_tokenised_corpus_the_training_length_is_unknown(folder, capsys):
    for file in Path("run/data/train").iterdir():
        file.unlink()
    assert main([*COMMAND, "--output", "new/a.svg"]) == 0
    assert "run: trained up to an unknown length, cuts at 1,024" in capsys.readouterr().out
    svg = Path("new/a.svg").read_text("utf-8")
    assert svg.startswith("<?xml")
    assert "longest in training" not in svg


@pytest.mark.parametrize(
    ("options", "expected", "status"),
    [
        ("--width 0", "--width must be an int from 1 to 1000000000. Received: 0", 2),
        ("--least 0", "--least must be an int from 1 to 1000000000. Received: 0", 2),
        ("--output a.gif", "--output must end in .png, .svg or .pdf. Received: a.gif", 1),
        ("--checkpoint 5", "no checkpoint '5'", 1),
        ("--reference uneven.de", "same number of lines. Received: test.en with 18", 1),
        ("--source empty.en --reference empty.de", "at least one sentence. Received: none", 1),
        ("--source blank.en --reference blank.de", "blank.de:1: a reference must have", 1),
        ("--output test.en/new/a.png", "--output must be in a writable folder", 1),
    ],
)
def test_bad_input_is_refused(folder, capsys, options, expected, status):
    assert_refused(capsys, [*COMMAND, *options.split()], expected, status=status)


def test_every_run_is_checked_before_the_first_translation(folder, capsys):
    runs = ["lengths", "run", "thesis"]
    assert_refused(capsys, [*runs, *COMMAND[2:]], "thesis is not a run directory", status=1)


def test_the_search_of_every_run_is_checked_before_the_first_translation(
    folder, capsys, monkeypatch
):
    """One run allows this --min-length, another has a smaller maximum."""
    shutil.copytree("run", "short")
    config = json.loads(Path("short/config.json").read_text("utf-8"))
    config["decoding"]["max_length"] = 5
    Path("short/config.json").write_text(json.dumps(config), "utf-8")
    monkeypatch.setattr("tf_transformer.tasks.translation.translator.load_translator", None)
    runs = ["lengths", "run", "short", *COMMAND[2:], "--min-length", "9"]
    assert_refused(
        capsys, runs, "`decoding.max_length` must be 0 or at least min_length", status=1
    )
