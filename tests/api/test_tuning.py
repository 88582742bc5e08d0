"""Tuning: which settings are compared, and when they are stored."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, tree

from tf_transformer.api.tuning import compare_settings
from tf_transformer.cli.main import main
from tf_transformer.evaluation import bleu, bleu_and_length, make_metric, paired_bootstrap
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run

MISLED = {"decoding.alpha": 8.0, "decoding.max_extra_length": 10}  # prefers long output
SENTENCES = 25


@pytest.fixture
def misled(trained_run, tmp_path) -> Path:
    """The current folder: a run with a bad alpha as "run", with few files, and its dev text."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in ("tokenizer.model", "checkpoints/best.npz", "checkpoints/average.npz"):
        (tmp_path / "run" / name).write_bytes((trained_run.path / name).read_bytes())
    config = Run.open(trained_run.path).config.replace(MISLED)
    (tmp_path / "run" / "config.json").write_text(config.to_json())
    return tmp_path


def evaluated(capsys, *options: str) -> str:
    capsys.readouterr()
    files = ["--source", "dev.en", "--reference", "dev.de"]
    assert main(["evaluate", "run", *files, *options]) == 0
    return capsys.readouterr().out.split()[1]


def test_a_better_alpha_becomes_the_default_of_the_run(misled, trained_run, capsys):
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:SENTENCES]
        Path(f"dev.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = ["--source", "dev.en", "--reference", "dev.de"]
    command = ["tune", "run", *files, "--checkpoint", "best", "--alpha", "0.6", "1"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    run = Run.open("run")
    decoding = run.config.decoding
    assert decoding.alpha in (0.6, 1.0) and decoding.checkpoint == "best"
    assert f"decoding.alpha is {decoding.alpha}, was 8.0 (tuned on dev.en)" in printed
    assert [change["what"] for change in run.changes()] == ["decoding.alpha"]
    rows = [line.split() for line in printed.splitlines()]
    table = {row[0]: row[1] for row in rows if len(row) == 3}
    assert table[f"{decoding.alpha:g}"] == evaluated(capsys)
    assert table["8"] == evaluated(capsys, "--alpha", "8")

    Path("run/config.json").write_text(run.config.replace({"decoding.lookahead": 3}).to_json())
    before = Path("run/config.json").read_bytes()
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "run keeps its settings" in printed
    assert "decoding.lookahead is 3, but tuning searches exactly" in printed
    assert Path("run/config.json").read_bytes() == before


@pytest.fixture(scope="module")
def greedy(trained_run) -> Run:
    """A run that searches greedily."""
    run = Run.open(trained_run.path)
    return Run(run.path, run.config.replace({"decoding.beam_size": 1}))


def test_candidates_equal_those_of_separate_searches(greedy, trained_run):
    sources, references = trained_run.lines("train.en")[:12], trained_run.lines("train.de")[:12]
    tuning = compare_settings(
        greedy, sources, references, ["best"], [4], [0.6], progress=lambda text, done: None
    )
    assert len(tuning.tried) == 2
    for each in tuning.tried:
        beam_size = each.settings.beam_size
        texts = load_translator(greedy, "best").translate(sources, beam_size=beam_size)
        assert each.hypotheses == texts
        assert each.bleu.value == pytest.approx(bleu(texts, references).value)
    assert tuning.present.settings.beam_size == 1
    kept = dataclasses.replace(tuning, p_value=0.2)
    assert kept.chosen is kept.present
    assert dataclasses.replace(tuning, p_value=0.01).chosen is tuning.best


def test_the_p_value_is_small_only_for_a_clear_difference():
    references = [f"{word} b c d e f" for word in "ghijklmnopqrstuvwxyz" for _ in range(3)]
    worse = [line if row % 3 else line[:6] for row, line in enumerate(references)]
    slightly = [*references[:-1], worse[-3]]
    metric = make_metric("bleu", [references])
    assert paired_bootstrap(metric, worse, references) < 0.01
    assert paired_bootstrap(metric, references, slightly) > 0.1
    assert paired_bootstrap(metric, worse, worse) == 1
    score = bleu_and_length(metric, worse)  # 20 of 60 lines have 3 words of 6
    assert score.value == pytest.approx(bleu(worse, references).value)
    assert score.length_ratio == pytest.approx(5 / 6)
    assert score.brevity_penalty == pytest.approx(np.exp(1 - 6 / 5))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--source", "dev.en"], "--source and --reference go together"),
        (["--checkpoint", "last"], "no checkpoint 'last'. There are: best, average"),
        (["--source", "empty", "--reference", "empty"], "empty must have at least one"),
    ],
)
def test_wrong_options_are_refused(misled, capsys, arguments, expected):
    Path("empty").touch()
    assert_refused(capsys, ["tune", "run", *arguments], expected, status=1)


def test_the_tuned_checkpoint_is_the_default(misled):
    run = Run.open("run")
    assert run.weights() == run.checkpoints.best
    run.change_settings({"decoding.checkpoint": "average"}, "tuned")
    assert Run.open("run").weights() == run.checkpoints.average
    assert run.weights("best") == run.checkpoints.best
    (change,) = run.changes()
    assert (change["from"], change["to"]) == ("best", "average")


def test_a_run_without_text_needs_some(misled, capsys):
    """Such as one converted from Marian; the built-in corpus is not its dev text."""
    run = Run.open("run")
    data = {f"data.{name}": () for name in ("train", "valid")}
    run.change_settings(data | {"data.source": "", "data.target": ""}, "for this test")
    before = tree(run.path)
    assert_refused(
        capsys, ["tune", "run"], "run has no record of its text.*give `source`", status=1
    )
    assert_refused(capsys, ["doctor", "run"], "doctor checks text. Received: run", status=1)
    assert {**tree(run.path), "run/.lock": b""} == {**before, "run/.lock": b""}
