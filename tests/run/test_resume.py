"""Text that changed, moved or stayed between two sessions of a run."""

import os
from pathlib import Path

import pytest
from test_run import evaluation

from tf_transformer.config import Config
from tf_transformer.config.presets import preset
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.run import open_for_training


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder with train and dev text in two languages."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("train", "dev"):
        for language in ("en", "de"):
            (folder / f"{name}.{language}").write_text(f"{name} {language}\nsecond line\n")
    return folder


def config_of(folder: Path, **changes: object) -> Config:
    data = {"train": (str(folder / "train"),), "valid": (str(folder / "dev"),)}
    data |= {"source": "en", "target": "de"} | changes
    return preset("tiny").replace({f"data.{name}": value for name, value in data.items()})


def started(path: Path, texts: Path) -> Run:
    """A run of 40 steps; only the names of its checkpoints matter here."""
    run = open_for_training(path, config_of(texts))
    run.checkpoints.path.mkdir()
    run.checkpoints.state_path(40).touch()
    run.tokenizer.write_text("pieces")
    run.write_history([evaluation(20), evaluation(40)])
    return run


def rewrite(file: Path) -> None:
    """Reverses the lines of a file, which keeps its size and modification time."""
    state, lines = file.stat(), file.read_text().splitlines(keepends=True)
    while file.stat().st_ctime_ns == state.st_ctime_ns:
        file.write_text("".join(reversed(lines)))
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_the_same_text_resumes_silently(tmp_path, texts, caplog):
    run = started(tmp_path / "run", texts)
    before = (run.path / "config.json").read_bytes(), run.metrics.read_bytes()
    open_for_training(run.path, config_of(texts))
    assert ((run.path / "config.json").read_bytes(), run.metrics.read_bytes()) == before
    assert run.changes() == []
    assert caplog.messages == []


@pytest.mark.parametrize("language", ["en", "de"])
def test_changed_training_text_is_refused_and_nothing_is_written(tmp_path, texts, language):
    run = started(tmp_path / "run", texts)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    rewrite(texts / f"train.{language}")
    with pytest.raises(UserError, match="texts/train has changed .*--accept-new-data"):
        open_for_training(run.path, config_of(texts))
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert after == before


def test_accepted_new_text_is_announced_and_recorded_once(tmp_path, texts, caplog):
    run = started(tmp_path / "run", texts)
    rewrite(texts / "train.en")
    open_for_training(run.path, config_of(texts), accept_new_data=True)
    (change,) = run.changes()
    assert (change["step"], change["what"]) == (40, "training text")
    assert change["from"] != change["to"]
    assert "from step 40 on, training text is" in caplog.text
    open_for_training(run.path, config_of(texts))  # now it is the run's text
    assert len(run.changes()) == 1


def test_changed_dev_text_is_announced_and_recorded(tmp_path, texts, caplog):
    run = started(tmp_path / "run", texts)
    rewrite(texts / "dev.de")
    open_for_training(run.path, config_of(texts))
    (change,) = run.changes()
    assert change["what"] == "dev text"
    assert "no longer choose the best weights" in caplog.text
    rewrite(texts / "dev.de")  # and back again
    open_for_training(run.path, config_of(texts))
    assert run.changes()[-1]["to"] == change["from"]


def test_moved_text_is_accepted_by_its_content(tmp_path, texts, caplog):
    run = started(tmp_path / "run", texts)
    moved = texts.rename(tmp_path / "elsewhere")
    open_for_training(run.path, config_of(moved))
    assert Run.open(run.path).config == config_of(moved)
    assert [change["what"] for change in run.changes()] == ["data.train", "data.valid"]
    assert all("(the same text)" in message for message in caplog.messages)
    assert len(caplog.messages) == 2


def test_other_text_in_another_folder_is_refused(tmp_path, texts):
    run = started(tmp_path / "run", texts)
    moved = texts.rename(tmp_path / "elsewhere")
    rewrite(moved / "train.en")
    other = "on .*/texts/train. Received other text: .*/elsewhere/train. .*--accept-new-data"
    with pytest.raises(UserError, match=other):
        open_for_training(run.path, config_of(moved))
    assert Run.open(run.path).config == config_of(texts)


def test_fewer_files_count_as_changed_text(tmp_path, texts):
    prefixes = (str(texts / "train"), str(texts / "dev"))
    run = started(tmp_path / "run", texts)
    both = open_for_training(run.path, config_of(texts, train=prefixes), accept_new_data=True)
    assert both.config.data.train == prefixes
    with pytest.raises(UserError, match="--accept-new-data"):
        open_for_training(run.path, config_of(texts))


def test_without_text_the_built_in_corpus_is_named_as_other_text(tmp_path, texts):
    run = started(tmp_path / "run", texts)
    expected = f"on {texts}/train. Received other text: the built-in corpus."
    with pytest.raises(UserError, match=f"{expected} To resume, give all options"):
        open_for_training(run.path, preset("tiny"))


def test_another_language_is_refused_even_if_new_data_is_accepted(tmp_path, texts):
    run = started(tmp_path / "run", texts)
    swapped = config_of(texts, source="de", target="en")
    with pytest.raises(UserError, match=r"data\.source was 'en', now 'de'"):
        open_for_training(run.path, swapped, accept_new_data=True)


def test_before_the_first_checkpoint_text_may_be_corrected(tmp_path, texts, caplog):
    run = open_for_training(tmp_path / "run", config_of(texts))
    run.tokenizer.write_text("pieces of the wrong text")
    rewrite(texts / "train.en")
    open_for_training(run.path, config_of(texts))
    assert not run.tokenizer.exists()
    assert caplog.messages == ["the training text has changed: a new tokenizer will be trained"]
    run.tokenizer.write_text("pieces of the right text")
    assert run.require_tokenizer()


@pytest.mark.parametrize("depth", [None, preset("tiny").model.num_layers])
def test_an_equal_depth_written_differently_is_no_change(tmp_path, texts, depth):
    started(tmp_path / "run", texts)
    same = config_of(texts).replace({"model.decoder_layers": depth})
    run = open_for_training(tmp_path / "run", same)
    assert run.config.model.num_decoder_layers and not run.changes()
    with pytest.raises(UserError, match=r"model.decoder_layers was .*, now 1"):
        open_for_training(tmp_path / "run", same.replace({"model.decoder_layers": 1}))
