"""A classifier from end to end: train, label, score, begin with another run's encoder."""

import json
import re
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.config import Config
from tf_transformer.run import Run
from tools.storm.lab import stdin_of


def test_training_a_classifier_prints_scores_and_the_next_commands(classification_run):
    assert classification_run.stderr == ""
    lines = classification_run.stdout.splitlines()
    step = r"step +30  .*  dev accuracy [\d.]+ F1 [\d.]+  [\d,]+ sentences/s  best"
    assert any(re.fullmatch(step, line) for line in lines)
    assert any(re.match(r"dev accuracy [\d.]+ \(\d+ of 40\)  macro F1", ln) for ln in lines)
    assert re.fullmatch(r"  echo '.*' \| \S*tf-transformer classify \S+/run", lines[-2])
    assert re.fullmatch(r"  \S*tf-transformer export \S+/run --output exported/run", lines[-1])
    assert "3 labels" in lines


def test_the_run_records_labels_and_scores(classification_run):
    path = classification_run.path
    config = Config.from_json((path / "config.json").read_text())
    assert (config.task, config.training.best_by) == ("classification", "accuracy")
    assert json.loads((path / "labels.json").read_text()) == ["animal", "colour", "number"]
    *_, record = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    assert 0.7 < record["valid_accuracy"] <= 1 and 0.6 < record["valid_f1"] <= 1
    card = re.sub(" +", " ", (path / "card.md").read_text())
    assert "an encoder of 1 layers and a classifier of 3 labels" in card
    assert re.search(r"best accuracy of 2 evaluations: (1|0\.\d+) at step", card)


def test_sentences_are_labelled_line_by_line(classifier, capfd):
    Path("in").write_text("we saw the cat .\n \u200b\nthe very red a .\ntwo of is the .\n")
    with stdin_of(Path("in")):
        assert main(["classify", "run"]) == 0
    assert capfd.readouterr().out == "animal\n\ncolour\nnumber\n"
    with stdin_of(Path("in")):
        assert main(["classify", "run", "--n-best", "3"]) == 0
    first, blank, *_ = capfd.readouterr().out.splitlines()
    fields = first.split("\t")
    assert blank == "" and fields[0] == "animal" and set(fields[::2]) == {
        "animal", "colour", "number",
    }  # fmt: skip
    probabilities = list(map(float, fields[1::2]))
    assert sum(probabilities) == pytest.approx(1, abs=2e-4)
    assert probabilities == sorted(probabilities, reverse=True)


def test_labelled_sentences_are_scored_as_in_training(classifier, capsys):
    records = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    best = max(record["valid_accuracy"] for record in records)
    arguments = ["classify", "run", "--labelled", "dev.tsv"]
    assert main(arguments) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"accuracy {100 * best:.2f} (")
    assert [line.split()[0] for line in table[1:]] == ["animal", "colour", "number"]


@pytest.mark.parametrize(
    ("line", "expected", "status"),
    [
        ("translate run", "for runs of --task translation. .*tf-transformer classify run", 1),
        ("parse run", "for runs of --task parsing. .*tf-transformer classify run", 1),
        ("export run --no-text --output e", "--no-text is not for a run", 1),
        ("serve run --litert", "--litert is not for a run of task classification", 1),
        ("classify run --labelled in", "in:1: .*no TAB", 1),
        ("classify run --labelled other", "other:1: .*label 'plant'. They have", 1),
        ("classify run --n-best 4", "from 1 to 3, the labels of run", 1),
        ("classify run --checkpoint 7", "no checkpoint '7'", 1),
    ],
)
def test_unsupported_commands_and_bad_input_are_refused(
    classifier, capsys, line, expected, status
):
    Path("in").write_text("a cat .\n")
    Path("other").write_text("plant\ta tree .\n")
    assert_refused(capsys, line.split(), expected, status=status)


def test_texts_that_are_cut_are_counted(classifier, caplog):
    load("run").classify(["a cat .", "a cat . " * 200])
    assert f"texts cut at {Run.open('run').config.data.max_length} tokens: 1" in caplog.text


def test_curves_show_accuracy(classifier):
    assert main(["curves", "run", "--output", "c.svg"]) == 0
    assert "dev accuracy" in Path("c.svg").read_text()


def test_doctor_checks_labelled_sentences(classifier, capsys):
    assert main(["doctor", "run"]) == 0
    checks = capsys.readouterr().out
    assert "overlap" in checks and "filters" in checks and "copies" not in checks
    data = ["--train", "train.tsv", "--valid", "dev.tsv"]
    assert main(["doctor", "--model", "classification-small", *data]) == 0
    assert "vocab_size=8000" in capsys.readouterr().out


# --- The encoder of another run ----------------------------------------------------------

SHORT = ["--set", "training.steps=2", "--set", "training.evaluate_every=2"]

DATA = ["--task", "classification", "--train", "train.tsv", "--valid", "dev.tsv", *SHORT]


def test_a_classifier_can_start_from_the_encoder_of_a_translator(
    classifier, trained_run, capsys
):
    source = str(trained_run.path)
    assert main(["train", *DATA, "--init-from", source, "--output", "fine"]) == 0
    printed = capsys.readouterr().out
    assert f"weights: loaded from {source}" in printed
    assert "no weights for classes/kernel, classes/bias, which start untrained" in printed
    card = Path("fine/card.md").read_text()
    assert f"It began with the weights of {source}." in card
    (command,) = re.findall("^tf-transformer train (.*) --output fine$", card, re.M)
    assert main(["train", *command.split(), "--output", "fine"]) == 0  # the card's, to go on
    out = capsys.readouterr().out
    assert "finished at step 2; to train further" in out and "those of" not in out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["--set", "model.d_model=32"], "model.d_model` must be 64, as in .* Received: 32"),
        (["--set", "model.norm_first=true"], "model.norm_first` must be False"),
        (["--init-from", "nowhere"], "nowhere is not a run directory"),
        (["--init-from", "begun"], "begun.* has no checkpoint 'best'"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused(
    classifier, trained_run, capsys, changes, expected
):
    Path("begun").mkdir()
    Path("begun/config.json").write_text((trained_run.path / "config.json").read_text())
    source = ["--init-from", str(trained_run.path)]
    assert_refused(
        capsys, ["train", *DATA, *source, "--output", "x", *changes], expected, status=1
    )


def test_a_run_without_its_labels_is_refused(classifier, capsys):
    Path("run/labels.json").unlink()
    assert_refused(capsys, ["classify", "run"], "run has no labels in labels.json", status=1)
