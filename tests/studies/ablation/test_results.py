"""The folder of an ablation, which has no other files, and the results of its rows."""

import json
import shutil

import numpy as np
import pytest
from command_line import tree

from tf_transformer.config.presets import preset
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.studies.ablation.results import (
    RESULT_FILE,
    Result,
    begin_folder,
    check_folder,
    read_results,
    read_settings,
    run_folder,
    write_result,
)
from tf_transformer.tasks.models import build_model

BASE = preset("base")
OTHER = BASE.replace({"model.vocab_size": 500})


def put(output, row, seed, bleu):
    folder = run_folder(output, row, seed)
    folder.mkdir()
    record = Result(row, "", seed, 10, 5.0, bleu, "sig", 100, 1000, 2.0).__dict__
    (folder / RESULT_FILE).write_text(json.dumps(record))


def test_a_result_is_that_of_the_last_evaluation(trained_run, tmp_path):
    shutil.copytree(trained_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    result = write_result(run, "A-h4", "h 4")
    assert (result.row, result.change, result.seed, result.steps) == ("A-h4", "h 4", 1, 240)
    assert result.perplexity == lines[2]["valid_perplexity"]
    assert result.bleu == lines[2]["valid_bleu"]
    assert "tok:13a" in result.signature
    model = build_model(run.config)
    load_weights(run.checkpoints.find("last"), model)  # which makes Keras build the weights
    assert result.parameters == sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    assert result.train_seconds == pytest.approx(sum(line["train_seconds"] for line in lines))


def test_target_tokens_are_counted_from_the_data(trained_run, tmp_path):
    """240 steps are several epochs of all 300 pairs and part of another."""
    shutil.copytree(trained_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    lengths = np.load(run.data / "train" / "target_lengths.npy")
    steps_per_epoch = int(np.load(run.checkpoints.latest_state())["progress/steps_per_epoch"])
    epochs = 240 / steps_per_epoch
    tokens = write_result(run, "base", "").target_tokens
    assert tokens == pytest.approx(epochs * lengths.sum(), rel=0.02)


def test_results_are_ordered_as_in_the_paper_and_by_seed(tmp_path):
    for row, seed, bleu in (("big", 1, 3.0), ("base", 2, 2.0), ("base", 1, 1.0)):
        put(tmp_path, row, seed, bleu)
    found = read_results(tmp_path)
    assert list(found) == ["base", "big"]
    assert [result.bleu for result in found["base"]] == [1.0, 2.0]


def test_a_damaged_result_is_named(tmp_path):
    put(tmp_path, "base", 1, 1.0)
    (tmp_path / "base-seed1" / RESULT_FILE).write_text("{")
    with pytest.raises(UserError, match="base-seed1/result.json is not a result of ablate"):
        read_results(tmp_path)


def test_a_new_folder_stores_its_settings(tmp_path):
    check_folder(tmp_path / "rows", BASE)
    assert not (tmp_path / "rows").exists()
    run = begin_folder(tmp_path / "rows", BASE)
    assert (run.path, run.config) == (tmp_path / "rows", BASE)
    assert read_settings(tmp_path / "rows") == BASE


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path):
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "corpus.en").write_text("years of work")
    with pytest.raises(UserError, match="ablate`. Give --output a new folder"):
        check_folder(tmp_path, BASE)
    with pytest.raises(UserError, match="not created by"):
        check_folder(tmp_path / "data" / "train" / "corpus.en", BASE)
    assert tree(tmp_path) == {str(tmp_path / "data/train/corpus.en"): b"years of work"}


def test_a_run_directory_is_refused(trained_run, tmp_path):
    run = shutil.copytree(trained_run.path, tmp_path / "run")
    before = tree(run)
    with pytest.raises(UserError, match="not created by"):
        check_folder(run, Run.open(run).config)
    assert tree(run) == before


def test_settings_can_be_corrected_before_the_first_row(tmp_path):
    run = begin_folder(tmp_path, BASE)
    run.tokenizer.write_bytes(b"of the wrong text")
    check_folder(tmp_path, OTHER)
    assert not begin_folder(tmp_path, OTHER).tokenizer.exists()
    assert read_settings(tmp_path) == OTHER


def test_rows_keep_their_tokenizer_and_settings(tmp_path):
    run = begin_folder(tmp_path, BASE)
    run.tokenizer.write_bytes(b"of the rows")
    (tmp_path / "base-seed1").mkdir()
    check_folder(tmp_path, BASE.replace({"training.save_minutes": 1.0}))
    assert begin_folder(tmp_path, BASE).tokenizer.read_bytes() == b"of the rows"
    with pytest.raises(UserError, match=r"model\.vocab_size was 37000, now 500\. Use the same"):
        check_folder(tmp_path, OTHER)


def test_a_folder_without_settings_has_no_results(tmp_path):
    with pytest.raises(UserError, match="no results yet"):
        read_settings(tmp_path)
