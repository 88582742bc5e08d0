"""Sentences that a run has seen are counted by side and by text, and recorded with scores."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tf_transformer.cli.main import main
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.translation.overlap import Overlap, describe, overlaps


def test_each_side_is_looked_up_in_the_text_of_its_language(trained_run):
    run = Run.open(trained_run.path)  # the dev text is the first 40 pairs of 300
    sources, targets = trained_run.lines("train.en"), trained_run.lines("train.de")
    new = "Seven zebras zigzag through a quiet zoo."
    cases = [
        ([sources[100], new, sources[200]], [new, new, targets[200]], (2, 1), (0, 0)),
        ([sources[3], sources[100]], [targets[4], new], (2, 1), (1, 1)),
        ([new, "", targets[100]], ["", new, sources[100]], (0, 0), (0, 0)),
    ]
    for lines, references, in_train, in_valid in cases:
        expected = {"train": Overlap(*in_train), "valid": Overlap(*in_valid)}
        assert overlaps(run, lines, [references]) == expected


def test_a_line_counts_once_even_with_several_references(trained_run):
    run, targets = Run.open(trained_run.path), trained_run.lines("train.de")
    references = [[targets[50], "x"], [targets[60], "y"], ["z", targets[70]]]
    assert overlaps(run, ["a", "b"], references)["train"] == Overlap(0, 2)


def test_only_texts_with_an_overlap_are_named():
    assert describe({"train": Overlap(0, 2), "valid": Overlap(0, 0)}, 1000) == (
        "of 1,000 lines, 0 sources and 2 references are in the training text"
    )
    assert describe({"train": Overlap(0, 0), "valid": Overlap(0, 0)}, 7) == ""


@pytest.fixture
def folder(trained_run, tmp_path, monkeypatch) -> Path:
    """The current folder: a copy of the run, and five dev pairs as a "test" set."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained_run.path, "run")
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:5]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path


def test_a_result_is_recorded_with_the_number_of_seen_lines(folder, capsys):
    command = ["evaluate", "run", "--source", "test.en", "--reference", "test.de"]
    assert main([*command, "--record", "--beam", "1"]) == 0
    printed = capsys.readouterr().out
    assert "caution  run has seen these lines: of 5 lines, 5 sources and 5 ref" in printed
    (record,) = map(json.loads, Path("run/results.jsonl").read_text().splitlines())
    everything = {"sources": 5, "references": 5}
    assert record["seen"] == {"run": {"train": everything, "valid": everything}}
    score = record["scores"]["BLEU"]
    assert printed.startswith(f"BLEU {score['value']:.2f}  {score['signature']}")
    assert main(["card", "run"]) == 0
    row = f"| test.en, test.de | 5 | BLEU {score['value']:.2f} "
    printed = re.sub(" +", " ", capsys.readouterr().out)
    (line,) = [line for line in printed.splitlines() if line.startswith(row)]
    assert line.endswith("| best, beam 1, alpha 0.6 | 5, 5 |")


def test_missing_text_is_reported_as_unchecked(folder, capsys):
    shutil.rmtree("run/data/valid")
    with pytest.raises(UserError):
        overlaps(Run.open("run"), ["a"], [["b"]])
    assert main(["score", "run", "--source", "test.en", "--target", "test.de"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 5
    expected = "caution  run may have seen these lines; not checked: run/data/valid"
    assert expected in printed.err
