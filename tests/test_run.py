"""The run directory: made, found again, and refused where it does not fit."""

import json
import re

import pytest

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.presets import preset
from tf_transformer.run import Run, versions


def tiny(**changes: object) -> Config:
    return preset("tiny").replace({name.replace("__", "."): v for name, v in changes.items()})


def with_checkpoint(run: Run) -> None:
    """A run has something to lose from its first checkpoint on; its content is no matter."""
    run.checkpoints.path.mkdir()
    run.checkpoints.step_path(1).touch()


def test_a_new_run_holds_its_configuration_and_versions(tmp_path):
    run = Run.create_or_resume(tmp_path / "runs" / "one", tiny())
    assert Config.from_json((run.path / "config.json").read_text()) == tiny()
    assert json.loads((run.path / "versions.json").read_text()) == versions()


def test_versions_name_what_results_depend_on():
    recorded = versions()
    assert set(recorded) >= {"python", "platform", "tensorflow", "keras", "sacrebleu", "numpy"}
    assert re.match(r"\d+\.\d+", recorded["tensorflow"])


def test_an_empty_folder_may_become_a_run(tmp_path):
    assert Run.create_or_resume(tmp_path, tiny()).path == tmp_path


def test_a_run_opens_with_the_configuration_it_was_made_with(tmp_path):
    Run.create_or_resume(tmp_path / "one", tiny(model__dropout=0.25))
    assert Run.open(tmp_path / "one").config == tiny(model__dropout=0.25)
    assert Run.open(str(tmp_path / "one")).config == tiny(model__dropout=0.25)


def test_the_same_configuration_goes_on(tmp_path):
    first = Run.create_or_resume(tmp_path / "one", tiny())
    first.write_history([{"step": 1}])
    assert Run.create_or_resume(tmp_path / "one", tiny()).history() == [{"step": 1}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.d_model", 256),
        ("data.source", "de"),
        ("data.train", ("other",)),
        ("training.label_smoothing", 0.2),
        ("training.seed", 2),
        ("training.batch_tokens", 64),
        ("training.precision", "mixed_bfloat16"),
    ],
)
def test_another_configuration_is_refused_and_what_differs_is_named(tmp_path, name, value):
    with_checkpoint(Run.create_or_resume(tmp_path / "one", tiny()))
    other = preset("tiny").replace({name: value})
    with pytest.raises(
        UserError, match=f"{name} was .*, now {re.escape(repr(value))}"
    ) as error:
        Run.create_or_resume(tmp_path / "one", other)
    assert str(error.value).count(" was ") == 1
    assert Run.open(tmp_path / "one").config == tiny()


def test_before_the_first_checkpoint_any_setting_may_be_corrected(tmp_path):
    run = Run.create_or_resume(tmp_path / "one", tiny())
    run.tokenizer.write_bytes(b"trained with the wrong vocabulary")
    corrected = tiny(model__vocab_size=500)
    assert Run.create_or_resume(tmp_path / "one", corrected).config == corrected
    assert not run.tokenizer.exists()


def test_all_differences_are_named(tmp_path):
    with_checkpoint(Run.create_or_resume(tmp_path / "one", tiny()))
    with pytest.raises(UserError, match=r"model\.d_ff was 512.*training\.beta_1 was 0\.9"):
        Run.create_or_resume(tmp_path / "one", tiny(model__d_ff=64, training__beta_1=0.8))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.steps", 5_000),
        ("training.patience", 3),
        ("training.keep_last", 9),
        ("training.average_last", 1),
        ("decoding.beam_size", 8),
        ("decoding.alpha", 1.0),
    ],
)
def test_what_shapes_no_weights_may_change_and_is_stored(tmp_path, name, value):
    Run.create_or_resume(tmp_path / "one", tiny())
    changed = preset("tiny").replace({name: value})
    assert Run.create_or_resume(tmp_path / "one", changed).config == changed
    assert Run.open(tmp_path / "one").config == changed


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="is not a run directory"):
        Run.create_or_resume(tmp_path, tiny())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match="is not a run directory"):
        Run.create_or_resume(tmp_path / "file", tiny())
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "file", "config is a folder", "not utf-8"]
)
def test_what_is_no_run_cannot_be_opened(tmp_path, kind):
    path = tmp_path / "one"
    if kind == "file":
        path.write_text("")
    elif kind != "missing":
        path.mkdir()
    if kind == "config is a folder":
        (path / "config.json").mkdir()
    elif kind == "not utf-8":
        (path / "config.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UserError, match="one is not a run directory"):
        Run.open(path)


@pytest.mark.parametrize("damage", ["truncated", "emptied"])
def test_a_damaged_configuration_is_refused_and_kept(tmp_path, damage):
    run = Run.create_or_resume(tmp_path / "one", tiny())
    file = run.path / "config.json"
    file.write_text(file.read_text()[:100] if damage == "truncated" else "")
    before = file.read_bytes()
    with pytest.raises(UserError, match="not a valid config.json"):
        Run.open(run.path)
    with pytest.raises(UserError, match="not a valid config.json"):
        Run.create_or_resume(run.path, tiny())
    assert file.read_bytes() == before


def test_history_is_empty_before_the_first_evaluation(tmp_path):
    assert Run.create_or_resume(tmp_path / "one", tiny()).history() == []


def test_history_returns_what_was_written(tmp_path):
    run = Run.create_or_resume(tmp_path / "one", tiny())
    records = [{"step": 10, "loss": 0.1 + 0.2}, {"step": 20, "loss": 1e-12}]
    run.write_history(records)
    assert Run.open(run.path).history() == records
    assert len(run.metrics.read_text().splitlines()) == 2


def test_a_damaged_history_is_a_user_error(tmp_path):
    run = Run.create_or_resume(tmp_path / "one", tiny())
    run.metrics.write_text('{"step": 10}\n{"st')
    with pytest.raises(UserError, match="metrics.jsonl is damaged"):
        run.history()
