"""Facts about a run for its cards: files of text, changes of them, the best evaluation."""

import gzip
import hashlib
import shutil
from pathlib import Path

import pytest

from tf_transformer.reports.facts import best_record, changed_text, data_files
from tf_transformer.run import Run


@pytest.fixture
def copied(trained_run, tmp_path) -> Run:
    """A copy of the trained run, to change."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))


def move_data(run: Run, folder: Path) -> None:
    moved = {"data.train": [str(folder / "train")], "data.valid": [str(folder / "dev")]}
    run.config = run.config.replace(moved)


def test_data_files_have_roles_line_counts_and_hashes(trained_run):
    files = data_files(Run.open(trained_run.path))
    assert [(file.role, file.path) for file in files] == [
        (role, str(trained_run.corpus / name))
        for role, name in (
            ("train", "train.en"), ("train", "train.de"),
            ("valid", "dev.en"), ("valid", "dev.de"),
        )
    ]  # fmt: skip
    assert [file.lines() for file in files] == [300, 300, 40, 40]
    content = (trained_run.corpus / "dev.de").read_bytes()
    assert files[3].sha256 == hashlib.sha256(content).hexdigest()


def test_lines_of_gzipped_files_are_counted_and_missing_files_are_listed(copied, tmp_path):
    move_data(copied, tmp_path)
    (tmp_path / "dev.en.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    files = {file.path: file for file in data_files(copied)}
    assert files[f"{tmp_path}/dev.en.gz"].lines() == 2
    missing = files[f"{tmp_path}/train.de"]
    assert (missing.sha256, missing.lines()) == (None, None)


def test_text_that_changed_since_training_is_named(trained_run, copied, tmp_path):
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        shutil.copy(trained_run.corpus / name, tmp_path)
    move_data(copied, tmp_path)
    assert changed_text(copied) == []
    with (tmp_path / "dev.en").open("a") as file:
        file.write("one more line\n")
    assert changed_text(copied) == ["valid"]
    (tmp_path / "train.en").write_text("another text\n")
    assert changed_text(copied) == ["train", "valid"]
    (tmp_path / "train.en").unlink()  # `data_files` says so
    assert changed_text(copied) == ["valid"]


def test_without_languages_the_configured_names_are_files(trained_run):
    run = Run.open(trained_run.path)
    names = [str(trained_run.corpus / name) for name in ("dev.en", "nothing.ptb")]
    run.config = run.config.replace(
        {"data.train": names, "data.valid": [], "data.source": "", "data.target": ""}
    )
    files = data_files(run)
    assert [file.path for file in files] == names
    assert [file.lines() for file in files] == [40, None]


@pytest.mark.parametrize(("best_by", "best"), [("bleu", max), ("perplexity", min)])
def test_the_best_record_depends_on_best_by(copied, best_by, best):
    records = copied.history()
    for record, perplexity in zip(records, (2.0, 1.0, 3.0), strict=True):
        record["valid_perplexity"] = perplexity
    copied.write_history(records)
    copied.config = copied.config.replace({"training.best_by": best_by})
    name = f"valid_{best_by}"
    assert best_record(copied)[name] == best(record[name] for record in records)
    assert "tok:13a" in best_record(copied)["bleu_signature"]
