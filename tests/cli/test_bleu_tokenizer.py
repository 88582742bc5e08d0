"""data.bleu_tokenizer: the BLEU of every command and method is computed with it."""

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.run import Run
from tf_transformer.run.run import best_record
from tf_transformer.tasks.models import build_model
from tf_transformer.tasks.translation.task import TranslationTask

FILES = ["--source", "test.en", "--reference", "test.de"]


@pytest.fixture
def folder(workplace, trained_run) -> Path:
    """The current folder: "run" counts characters; test.en and test.de are its dev text."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:6]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    run = Run.open("run")
    run.change_settings({"data.bleu_tokenizer": "char"}, "for this test")
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
    compared = ["compare", "run", "out", *FILES, "--metric", "bleu"]
    for options, tokens in ([], "char"), (["--tokenize", "intl"], "intl"):
        assert main(["evaluate", "run", *FILES, *options]) == 0
        assert f"|tok:{tokens}|" in capsys.readouterr().out
        assert main([*compared, *options]) == 0
        printed = capsys.readouterr().out
        assert f"tok:{tokens}" in printed
        assert f"lengths in tokens of sacreBLEU's tokeniser {tokens}." in printed
    files = ["--hypothesis", "out", "--reference", "test.de"]
    assert main(["evaluate", *files]) == 0
    assert "|tok:13a|" in capsys.readouterr().out


def test_tune_and_the_studies_use_that_of_the_run(folder, capsys):
    pytest.importorskip("matplotlib")
    assert main(["evaluate", "run", *FILES, "--output", "out", "--beam", "1"]) == 0
    assert main(["tune", "run", *FILES, "--checkpoint", "best", "--alpha", "0.6"]) == 0
    assert "tok:char" in capsys.readouterr().out
    assert main(["heads", "run", *FILES, "--beam", "1"]) == 0
    study = json.loads(Path("run/heads/heads.json").read_text("utf-8"))
    assert f"{study['curve'][0]['bleu']:.2f}" == characters("out")
    assert "tok:char" in json.dumps(study)
    options = ["--beam", "1", "--width", "99", "--least", "1", "--data", "lengths.json"]
    assert main(["lengths", "run", *FILES, *options]) == 0
    [bucket] = json.loads(Path("lengths.json").read_text("utf-8"))["runs"][0]["buckets"]
    assert f"{bucket['bleu']:.2f}" == characters("out")


def test_training_its_records_and_the_gate_of_exports_use_it(folder):
    run = Run.open("run")
    task = TranslationTask(run, lambda *_: None)
    scores = task.evaluator(build_model(run.config))().scores
    dev = TranslationTask.read_dev_text(run, Path("test.en"), Path("test.de"))
    signatures = [scores.bleu.signature, best_record(run)["bleu_signature"]]
    assert all("|tok:char|" in each for each in signatures)
    assert "|tok:char|" in str(dev.metric.get_signature())


def test_a_loaded_run_and_its_export_use_it(folder, capsys):
    lines = [Path(f"test.{end}").read_text("utf-8").splitlines() for end in ("en", "de")]
    translator = load("run")
    export = load(translator.export("exported"))
    for each in (translator, export):
        assert "|tok:char|" in each.evaluate(*lines).bleu.signature
        assert "|tok:none|" in each.evaluate(*lines, tokenize="none").bleu.signature
    command = ["compare", "exported", "out", *FILES, "--metric", "bleu"]
    Path("out").write_text("".join(f"{line}\n" for line in lines[1]), "utf-8")
    assert main(command) == 0
    assert "tok:char" in capsys.readouterr().out
