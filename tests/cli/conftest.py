"""Folders for the tests of the command line."""

import gzip
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copied(trained_run, tmp_path) -> Path:
    """A copy of the trained run, for tests that change it."""
    return Path(shutil.copytree(trained_run.path, tmp_path / "run"))


@pytest.fixture
def workplace(trained_run, tmp_path) -> Path:
    """The current folder, with good and bad texts, a trained run, and folders without one."""
    sources, targets = trained_run.lines("train.en"), trained_run.lines("train.de")
    texts = {
        "train": (sources, targets),
        "dev": (["Good morning."] * 4, ["Guten Morgen."] * 4),
        "uneven": (sources, targets[:-1]),
        "empty": ([], []),
        "blank": (["", " "], ["", ""]),
    }
    for name, sides in texts.items():
        for language, lines in zip(("en", "de"), sides, strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (tmp_path / f"{name}.{language}").write_text(text, "utf-8")
    (tmp_path / "latin1.en").write_bytes(b"Good\nmorning\n")
    (tmp_path / "latin1.de").write_bytes(b"Guten\nMorgen, Br\xfcder\n")
    (tmp_path / "cut.en.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "cut.de.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "no.tsv").write_text("a\t\n")
    (tmp_path / "no.tsv.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    (tmp_path / "models" / "3").mkdir(parents=True)
    (tmp_path / "models" / "3" / "saved_model.pb").write_bytes(b"in service")
    shutil.copytree(trained_run.path, tmp_path / "run")
    (tmp_path / "begun").mkdir()
    shutil.copy(tmp_path / "run" / "config.json", tmp_path / "begun")
    return tmp_path
