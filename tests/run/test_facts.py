"""Facts that cards share."""

import gzip
import hashlib
import shutil

import pytest

from tf_transformer.run import Run
from tf_transformer.run.facts import best_record, data_files, sha256


def test_hashes_are_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 1_000_000)
    assert sha256(tmp_path / "a") == hashlib.sha256(b"abc" * 1_000_000).hexdigest()


def test_every_file_of_text_is_told_with_its_lines(trained_run):
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


def test_lines_are_counted_in_what_is_packed_and_missing_files_are_named(trained_run, tmp_path):
    shutil.copytree(trained_run.path, tmp_path / "run")
    config = (tmp_path / "run" / "config.json").read_text("utf-8")
    moved = config.replace(str(trained_run.corpus), str(tmp_path))
    (tmp_path / "run" / "config.json").write_text(moved, "utf-8")
    (tmp_path / "dev.en.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    files = {file.path: file for file in data_files(Run.open(tmp_path / "run"))}
    assert files[f"{tmp_path}/dev.en.gz"].lines() == 2
    gone = files[f"{tmp_path}/train.de"]
    assert (gone.sha256, gone.lines()) == (None, None)


def test_a_file_that_changed_since_the_training_is_told(trained_run, tmp_path):
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        shutil.copy(trained_run.corpus / name, tmp_path)
    shutil.copytree(trained_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    moved = {"data.train": [str(tmp_path / "train")], "data.valid": [str(tmp_path / "dev")]}
    run.config = run.config.replace(moved)
    assert [file.changed for file in data_files(run)] == [False] * 4
    with (tmp_path / "dev.en").open("a") as file:
        file.write("one more line\n")
    assert [file.changed for file in data_files(run)] == [False, False, True, False]


def test_data_without_languages_are_files(trained_run):
    run = Run.open(trained_run.path)
    names = [str(trained_run.corpus / name) for name in ("dev.en", "nothing.ptb")]
    run.config = run.config.replace(
        {"data.train": names, "data.valid": [], "data.source": "", "data.target": ""}
    )
    files = data_files(run)
    assert [file.path for file in files] == names
    assert [file.lines() for file in files] == [40, None]


@pytest.mark.parametrize(("best_by", "best"), [("bleu", max), ("perplexity", min)])
def test_the_best_record_is_the_best_by_what_the_run_chooses_by(
    trained_run, tmp_path, best_by, best
):
    shutil.copytree(trained_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    records = run.history()
    for record, perplexity in zip(records, (2.0, 1.0, 3.0), strict=True):
        record["valid_perplexity"] = perplexity
    run.write_history(records)
    run.config = run.config.replace({"training.best_by": best_by})
    name = f"valid_{best_by}"
    assert best_record(run)[name] == best(record[name] for record in records)
    assert "tok:13a" in best_record(run)["bleu_signature"]


def test_a_run_without_evaluations_has_no_best(trained_run, tmp_path):
    shutil.copytree(trained_run.path, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    assert best_record(Run.open(tmp_path / "run")) is None
