"""`shortlist`, and --shortlist of other commands."""

import json
import re
import shutil

import numpy as np
import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.decoding.shortlist import Shortlist
from tf_transformer.run import Run
from tf_transformer.serving.publish import CARD
from tf_transformer.serving.session import SavedModelSession

VOCAB_SIZE = 600


@pytest.fixture(scope="module")
def listed(trained_run, tmp_path_factory):
    """A copy of the run with a shortlist."""
    path = tmp_path_factory.mktemp("listed") / "run"
    shutil.copytree(trained_run.path, path)
    assert main(["shortlist", str(path), "--translations", "10", "--frequent", "20"]) == 0
    return path


def test_it_prints_its_coverage_and_is_reproducible(listed, copied, capsys):
    command = ["shortlist", str(copied), "--translations", "10", "--frequent", "20"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    patterns = [
        r"learning from 300 pairs, [\d,]+ links",
        r".*shortlist\.npz",
        r"dev set: (\d+) of 600 tokens for a sentence on average",
        r"covered: ([\d.]+)% of ([\d,]+) target tokens",
    ]
    found = [re.fullmatch(*both) for both in zip(patterns, lines, strict=True)]
    assert 30 < int(found[2][1]) < 300
    assert 90 < float(found[3][1]) <= 100
    one, other = (
        Shortlist.read(Run.open(run).shortlist, VOCAB_SIZE) for run in (listed, copied)
    )
    np.testing.assert_array_equal(one.table, other.table)
    np.testing.assert_array_equal(one.frequent, other.frequent)
    assert one.table.shape == (VOCAB_SIZE, 10)
    assert len(one.frequent) == 20


def test_train_replaces_data_that_is_gone(trained_run, copied, capsys, monkeypatch):
    shutil.rmtree(copied / "data")
    monkeypatch.chdir(copied)
    assert_refused(capsys, ["shortlist", "."], "Or give --train PREFIX", status=1)
    command = ["shortlist", ".", "--train", str(trained_run.corpus / "train")]
    assert main([*command, "--pairs", "100"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"learning from \d\d pairs", out)
    assert "held-out pairs: " in out
    assert not (copied / "data").exists()


def test_languages_that_are_not_recorded_are_asked_for(trained_run, copied, capsys):
    run = Run.open(copied)
    unknown = {"data.train": (), "data.valid": (), "data.source": "", "data.target": ""}
    (copied / "config.json").write_text(run.config.replace(unknown).to_json())
    run.metrics.unlink()
    text = str(trained_run.corpus / "train")
    expected = "no record of its languages.*PREFIX:SOURCE-TARGET"
    assert_refused(capsys, ["shortlist", str(copied), "--train", text], expected, status=1)
    assert main(["shortlist", str(copied), "--train", f"{text}:en-de", "--pairs", "50"]) == 0


def test_the_export_gives_the_same_translations(listed, trained_run, tmp_path, capsys):
    source = trained_run.corpus / "dev.en"
    expected = translated(capsys, listed, source, "--shortlist", "--beam", "3")
    assert len(expected) == 40
    models = tmp_path / "models"
    command = ["export", str(listed), "--shortlist", "--beam", "3", "--output", str(models)]
    assert main(command) == 0
    with SavedModelSession(models / "1") as session:
        lines = np.array(trained_run.lines("dev.en"), object)
        answer = session.run("serving_default", {"text": lines})
    assert [text.decode() for text in answer["translation"]] == expected
    card = json.loads((models / "1" / CARD).read_text("utf-8"))
    assert len(card["shortlist_sha256"]) == 64


def test_evaluate_scores_the_same_translations(listed, trained_run, capsys, tmp_path):
    files = [str(trained_run.corpus / f"dev.{language}") for language in ("en", "de")]
    command = ["evaluate", str(listed), "--source", files[0], "--reference", files[1]]
    command += ["--shortlist", "--output", str(tmp_path / "found")]
    scores = []
    for options in ([], ["--ensemble", str(listed)]):
        assert main([*command, *options]) == 0
        scores.append(float(re.search(r"BLEU ([\d.]+)", capsys.readouterr().out)[1]))
        if not options:
            found = (tmp_path / "found").read_text("utf-8").splitlines()
    source = trained_run.corpus / "dev.en"
    assert found == translated(capsys, listed, source, "--shortlist")
    assert found != translated(capsys, listed, source)
    assert scores[1] == pytest.approx(scores[0], abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "expected", "status"),
    [
        ("translate run --shortlist", "There is no run/shortlist.npz. Make it first", 1),
        ("export run --shortlist --output out", "There is no run/shortlist.npz", 1),
        ("serve run --shortlist", "There is no run/shortlist.npz", 1),
        ("serve models --shortlist", "--shortlist is for a run. Received: models", 1),
        ("translate run --shortlist --sample", "--shortlist is for the search", 1),
        ("shortlist run --pairs 1", "--pairs must be an int from 2 to 1000000000", 2),
        ("shortlist run --translations 0", "--translations must be an int from 1 to", 2),
        ("shortlist run --frequent -1", "--frequent must be an int from 0 to", 2),
        ("shortlist run --train none", "There is no none.en", 1),
        ("shortlist run --train uneven", "same number of lines", 1),
        ("shortlist run --train empty", "no usable pair", 1),
        ("shortlist thesis", "is not a run directory", 1),
    ],
)
def test_bad_input_is_refused(workplace, capsys, arguments, expected, status):
    assert_refused(capsys, arguments.split(), re.escape(expected), status=status)


def test_a_shortlist_of_another_vocabulary_is_refused(workplace, capsys):
    Shortlist(np.zeros((7, 1)), np.array([4])).write(workplace / "run" / "shortlist.npz")
    expected = "vocabulary of 600 tokens. Received: one for 7"
    assert_refused(capsys, ["translate", "run", "--shortlist"], expected, status=1)
