"""`evaluate`: scores of translations, and the tokeniser of BLEU in every command."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import sacrebleu
from command_line import assert_refused
from sacrebleu.metrics import BLEU

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.export.card import CARD, read_card
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.run.run import best_record
from tf_transformer.translation.task import TranslationTask

HYPOTHESES = ["Ein Mann geht über die rich-text-Straße.", "Zwei Hunde spielen im Schnee."]

FIRST = ["Ein Mann überquert die rich-text-Straße.", "Zwei Hunde spielen im Schnee."]

SECOND = ["Ein Mann geht über die Straße.", "Zwei Hunde toben im Schnee."]


@pytest.fixture
def files() -> None:
    """Writes hyp, ref1 and ref2 into the current folder, an empty one."""
    texts = {"hyp": HYPOTHESES, "ref1": FIRST, "ref2": SECOND}
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


def test_an_option_given_twice_is_refused(files, capsys):
    words = ["evaluate", "--reference", "ref1", "--hypothesis", "a", "--hypothesis", "b"]
    expected = "--hypothesis must be given once. Received: 'a' and 'b'"
    assert_refused(capsys, words, expected, status=2)
    words = ["translate", "runs/mine", "--beam", "4", "--beam", "4"]
    assert_refused(capsys, words, "--beam must be given once. Received: 4 and 4", status=2)


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


def test_references_of_different_lengths_are_refused(files, capsys):
    Path("long").write_text("one\ntwo\nthree\n", "utf-8")
    words = ["evaluate", "--reference", "ref1", "--reference", "long", "--hypothesis", "hyp"]
    assert_refused(capsys, words, "hyp with 2, long with 3", status=1)


FILES = ["--source", "test.en", "--reference", "test.de"]


@pytest.fixture
def folder(workplace, trained_run) -> Path:
    """The current folder: "run" counts characters; test.en and test.de are its dev text."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:6]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    run = Run.open("run")
    quick = {"decoding.beam_size": 1}
    run.change_settings({"data.bleu_tokenizer": "char"} | quick, "for this test")
    return workplace


def characters(hypotheses: str, references: str = "test.de") -> str:
    """Returns sacreBLEU's BLEU of two files, in characters."""
    lines = [Path(name).read_text("utf-8").splitlines() for name in (hypotheses, references)]
    return f"{BLEU(tokenize='char').corpus_score(lines[0], [lines[1]]).score:.2f}"


def test_evaluate_and_compare_use_that_of_the_run_unless_told_otherwise(folder, capsys):
    assert main(["evaluate", "run", *FILES, "--output", "out"]) == 0
    assert f"BLEU {characters('out')}  nrefs:1|case:mixed|eff:no|tok:char|" in (
        capsys.readouterr().out
    )
    assert main(["evaluate", "run", *FILES, "--tokenize", "intl"]) == 0
    assert "|tok:intl|" in capsys.readouterr().out
    compared = ["compare", "run", "out", *FILES, "--metric", "bleu"]
    for options, tokens in ([], "char"), (["--tokenize", "intl"], "intl"):
        assert main([*compared, *options]) == 0
        printed = capsys.readouterr().out
        assert f"tok:{tokens}" in printed
        assert f"lengths in tokens of sacreBLEU's tokeniser {tokens}." in printed
    files = ["--hypothesis", "out", "--reference", "test.de"]
    assert main(["evaluate", *files]) == 0
    assert "|tok:13a|" in capsys.readouterr().out


def test_tune_uses_that_of_the_run(folder, capsys):
    assert main(["tune", "run", *FILES, "--checkpoint", "best", "--alpha", "0.6"]) == 0
    assert "tok:char" in capsys.readouterr().out


def test_training_its_records_and_the_gate_of_exports_use_it(folder):
    run = Run.open("run")
    task = TranslationTask(run, lambda *_: None)
    result = task.evaluator(build_model(run.config))()
    dev = TranslationTask.read_dev_text(run, Path("test.en"), Path("test.de"))
    signatures = [result.lines[-2], best_record(run)["bleu_signature"]]
    assert all("|tok:char|" in each for each in signatures)
    assert "|tok:char|" in str(dev.metric.get_signature())


def test_a_loaded_run_and_its_export_use_it(folder, exported, capsys):
    """The card of an export has the settings of its run."""
    lines = [Path(f"test.{end}").read_text("utf-8").splitlines() for end in ("en", "de")]
    shutil.copytree(exported, "exported/1")
    config = json.loads(Run.open("run").config.to_json())
    card = read_card(exported) | {"config": config, "decoding": {}}
    Path("exported/1", CARD).write_text(json.dumps(card))
    for each in (load("run"), load("exported")):
        assert "|tok:char|" in each.evaluate(*lines).bleu.signature
        assert "|tok:none|" in each.evaluate(*lines, tokenize="none").bleu.signature
    command = ["compare", "exported", "out", *FILES, "--metric", "bleu"]
    Path("out").write_text("".join(f"{line}\n" for line in lines[1]), "utf-8")
    assert main(command) == 0
    assert "tok:char" in capsys.readouterr().out
