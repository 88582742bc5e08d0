"""`evaluate` on files: several references, the report, trees."""

import sys
from pathlib import Path

import pytest
import sacrebleu
from command_line import assert_refused

from tf_transformer.cli.main import main

HYPOTHESES = ["Ein Mann geht über die rich-text-Straße.", "Zwei Hunde spielen im Schnee."]
FIRST = ["Ein Mann überquert die rich-text-Straße.", "Zwei Hunde spielen im Schnee."]
SECOND = ["Ein Mann geht über die Straße.", "Zwei Hunde toben im Schnee."]
GOLD = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (JJ old)))))",
    "(TOP (S (VP (VB Go))))",
    "(TOP (S (VP (VB Stay))))",
]
PARSED = [
    "(TOP (S (NP (DT The)) (VP (NN dog) (VBZ barks)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (JJ old)))))",
    "",
    "(TOP (S (VP (VB Stay)))",
]


@pytest.fixture
def files(tmp_path, monkeypatch) -> None:
    """Writes hyp, ref1, ref2, gold and parsed into the current folder, an empty one."""
    texts = {"hyp": HYPOTHESES, "ref1": FIRST, "ref2": SECOND, "gold": GOLD, "parsed": PARSED}
    monkeypatch.chdir(tmp_path)
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def evaluate(line: str) -> int:
    return main(["evaluate", *line.split()])


def test_several_references_are_scored_as_by_sacrebleu(files, capsys):
    line = "--hypothesis hyp --reference ref1 --reference ref2"
    assert evaluate(line) == 0
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [FIRST, SECOND]).score
    printed = capsys.readouterr().out
    assert printed.startswith(f"BLEU {expected:.2f}  nrefs:2|")
    assert printed.endswith("\nexact 50.0% (1 of 2)\n")


def test_an_output_named_gz_is_compressed(files, capsys):
    assert evaluate("--hypothesis hyp --reference ref1 --output copy.gz") == 0
    of_text = capsys.readouterr().out
    assert evaluate("--hypothesis copy.gz --reference ref1") == 0
    assert capsys.readouterr().out == of_text


def test_the_report_has_every_kind_of_bleu_and_the_caution(files, capsys):
    pytest.importorskip("sacremoses")
    assert evaluate("--hypothesis hyp --reference ref1 --report de") == 0
    lines = capsys.readouterr().out.splitlines()
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [FIRST]).score
    assert lines[0].startswith("BLEU, sacreBLEU's 13a tokens") and f"{expected:.4f}" in lines[0]
    assert [line.partition("tok:")[2].partition("|")[0] for line in lines[:7]] == [
        "13a", "13a", "intl", "none", "", "moses-de", "moses-de-atat"
    ]  # fmt: skip
    assert lines[7].startswith("caution: Compare only scores of the same kind")
    assert lines[8] == "exact 50.0% (1 of 2)"


def test_without_sacremoses_the_report_says_what_to_install(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    line = "evaluate --hypothesis hyp --reference ref1 --report de"
    assert_refused(capsys, line.split(), r'pip install "tf-transformer\[moses\]"', status=1)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--output hyp/new.de", "--output must be in a writable folder. Received: hyp/new.de"),
        ("--output /dev/null", "--output must not be a folder or a device"),
        ("--output ./ref1", "--output must not be a file that is read. Received: ./ref1"),
        ("--report klingon", "one of the languages .* Received: klingon"),
    ],
)
def test_bad_output_and_report_options_are_refused_before_the_run_is_read(
    files, capsys, option, expected
):
    if "klingon" in option:
        pytest.importorskip("sacremoses")
    words = ["evaluate", "nowhere", "--source", "hyp", "--reference", "ref1"]
    assert_refused(capsys, [*words, *option.split()], expected, status=1)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_text("{}\n")])
def test_a_result_that_cannot_be_recorded_is_refused_before_any_translation(
    workplace, capsys, make
):
    make(Path("run/results.jsonl"))
    words = ["evaluate", "run", "--source", "dev.en", "--reference", "dev.de", "--record"]
    assert_refused(capsys, [*words, "--output", "out"], "results.jsonl", status=1)
    assert not Path("out").exists()


def test_trees_are_scored_and_sentences_left_out_are_named(files, capsys):
    assert evaluate("--hypothesis parsed --reference gold --brackets") == 0
    printed = capsys.readouterr()
    # By hand: in the first only S of S, NP, VP matches; in the second all of S, NP, VP, ADJP.
    rows = [line.rsplit(maxsplit=2) for line in printed.out.splitlines()]
    rows = {name: figures for name, *figures in rows}
    assert rows["valid"] == ["2", "2"]
    assert (rows["errors"], rows["skipped"]) == (["1", "1"], ["1", "1"])
    assert rows["recall"] == rows["precision"] == rows["F1"] == ["71.43", "71.43"]
    assert rows["complete match"] == ["50.00", "50.00"]
    assert (
        "sentence 4 is left out: output:4:1: not a well-formed tree"
        in printed.out + printed.err
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--reference ref1 --reference gold", "hyp with 2, gold with 4"),
        ("--reference ref1 --reference ref2 --brackets", "compares one --hypothesis with one"),
        ("--reference ref1 --brackets", "ref1:1:1: not a well-formed tree: Ein outside"),
    ],
)
def test_incomparable_files_and_options_are_refused(files, capsys, line, expected):
    words = ["evaluate", *line.split(), "--hypothesis", "hyp"]
    assert_refused(capsys, words, expected, status=1)
