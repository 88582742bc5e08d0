"""The folder of an ablation, which has no other files, and the finished runs of its rows."""

import shutil

import pytest
from command_line import tree

from tf_transformer.config.presets import preset
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.studies.ablation.table import compare, write_report
from tf_transformer.studies.ablation.training import (
    begin_folder,
    check_folder,
    finished_runs,
    read_settings,
    run_folder,
)
from tf_transformer.studies.cost import parameter_count

BASE = preset("base")
OTHER = BASE.replace({"model.vocab_size": 500})


@pytest.fixture
def folder(trained_run, tmp_path):
    """A folder with a finished run of base for seeds 1 and 2, and one of big."""
    for row, seed in (("big", 1), ("base", 2), ("base", 1)):
        path = run_folder(tmp_path, row, seed)
        shutil.copytree(trained_run.path, path)
        Run.open(path).change_settings({"training.seed": seed}, "for this test")
    return tmp_path


def test_finished_rows_are_ordered_as_in_the_paper_and_by_seed(folder):
    found = finished_runs(folder)
    assert list(found) == ["base", "big"]
    assert [run.config.training.seed for run in found["base"]] == [1, 2]
    found["base"][0].checkpoints.average.unlink()
    assert [run.config.training.seed for run in finished_runs(folder)["base"]] == [2]


def test_a_result_is_that_of_the_last_evaluation(folder):
    runs = finished_runs(folder)
    run = runs["big"][0]
    _, last = compare(runs, run.config.replace({"model.num_heads": 1}))
    assert (last.row, last.change) == ("big", "h 4, d_k 16, d_v 16")
    assert last.perplexity.mean == run.history()[-1]["valid_perplexity"]
    assert last.bleu.mean == run.history()[-1]["valid_bleu"]
    assert last.parameters == parameter_count(run.config.model)


def test_a_folder_without_finished_rows_has_no_table(tmp_path):
    begin_folder(tmp_path, BASE)
    with pytest.raises(UserError, match="No row in .* has a result yet"):
        write_report(tmp_path)


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
