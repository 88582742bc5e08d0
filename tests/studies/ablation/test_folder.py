"""The folder of an ablation: begun, gone on with, and never a stranger's."""

import shutil

import pytest
from command_line import tree

from tf_transformer.config.presets import preset
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.studies.ablation.results import begin_folder, check_folder, read_settings

BASE = preset("base")
OTHER = BASE.replace({"model.vocab_size": 500})


def test_a_folder_begins_with_its_settings(tmp_path):
    check_folder(tmp_path / "rows", BASE)
    assert not (tmp_path / "rows").exists()
    run = begin_folder(tmp_path / "rows", BASE)
    assert (run.path, run.config) == (tmp_path / "rows", BASE)
    assert read_settings(tmp_path / "rows") == BASE


def test_a_strangers_data_are_refused_and_left(tmp_path):
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "corpus.en").write_text("years of work")
    with pytest.raises(UserError, match="ablate`. Give --output a new folder"):
        check_folder(tmp_path, BASE)
    with pytest.raises(UserError, match="not created by"):
        check_folder(tmp_path / "data" / "train" / "corpus.en", BASE)
    assert tree(tmp_path) == {str(tmp_path / "data/train/corpus.en"): b"years of work"}


def test_a_run_is_no_folder_of_rows(trained_run, tmp_path):
    run = shutil.copytree(trained_run.path, tmp_path / "run")
    before = tree(run)
    with pytest.raises(UserError, match="not created by"):
        check_folder(run, Run.open(run).config)
    assert tree(run) == before


def test_without_a_row_a_mistake_may_be_corrected(tmp_path):
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
