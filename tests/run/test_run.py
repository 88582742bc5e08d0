"""The run directory: created, opened again, refused if it does not match; records, facts."""

import json
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config
from tf_transformer.config.presets import preset
from tf_transformer.run import Run
from tf_transformer.run.records import line, read_results, score_of, write_tensorboard
from tf_transformer.run.run import open_for_training, package_versions, what_is_unfinished


def tiny(**changes: object) -> Config:
    return preset("tiny").replace({name.replace("__", "."): v for name, v in changes.items()})


def evaluation(step: int, **more: object) -> dict[str, object]:
    """A record like those of training."""
    record = {"step": step, "valid_perplexity": 2.0, "valid_bleu": 20.0, "dev_set": "dev"}
    return record | {"train_seconds": 3.0, "tokens_per_second": 400.0} | more


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create_or_resume(tmp_path / "one", tiny())


def with_checkpoint(run: Run) -> Run:
    """Adds a state, whose content is irrelevant: now the run has something to lose."""
    run.checkpoints.path.mkdir()
    run.checkpoints.state_path(1).touch()
    return run


@pytest.fixture
def started(run) -> Run:
    return with_checkpoint(run)


def test_a_new_run_holds_its_configuration_and_versions(tmp_path):
    run = Run.create_or_resume(tmp_path / "runs" / "one", tiny())
    assert Config.from_json((run.path / "config.json").read_text()) == tiny()
    assert json.loads((run.path / "versions.json").read_text()) == package_versions()


@pytest.mark.parametrize("names", [[], [".config.json.4242.tmp"]])
def test_a_folder_that_is_empty_but_for_temporary_files_may_become_a_run(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("{")
    assert Run.create_or_resume(tmp_path, tiny()).config == tiny()


def test_the_same_configuration_resumes(run):
    assert run.history() == []
    run.write_history([evaluation(1)])
    assert Run.create_or_resume(run.path, tiny()).history() == [evaluation(1)]
    assert run.changes() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.d_model", 256),
        ("data.train", ("other",)),
        ("training.label_smoothing", 0.2),
        ("training.precision", "mixed_bfloat16"),
        ("training.best_by", "chrf"),
    ],
)
def test_another_configuration_is_refused_and_the_difference_is_named(started, name, value):
    other = preset("tiny").replace({name: value})
    expected = f"{name} was .*, now {re.escape(repr(value))}"
    with pytest.raises(UserError, match=expected) as error:
        Run.create_or_resume(started.path, other)
    assert str(error.value).count(" was ") == 1
    assert Run.open(started.path).config == tiny()


def test_before_the_first_state_any_setting_may_be_corrected(run, caplog):
    """Even if the run has weights: without a state, it can only start over."""
    run.tokenizer.write_bytes(b"trained with the wrong vocabulary")
    run.checkpoints.path.mkdir()
    run.checkpoints.step_path(1).touch()
    corrected = tiny(model__vocab_size=500)
    resumed = Run.create_or_resume(run.path, corrected)
    assert (resumed.config, resumed.changes()) == (corrected, [])
    assert not run.tokenizer.exists()
    (message,) = caplog.messages
    assert message.endswith("with a new tokenizer: model.vocab_size was 1000, now 500")


def test_best_weights_without_a_state_are_not_overwritten(run):
    run.checkpoints.path.mkdir()
    run.checkpoints.best.write_bytes(b"converted")
    with pytest.raises(UserError, match=r"best.npz exists, but.*Give another `output`"):
        Run.create_or_resume(run.path, tiny())
    assert run.checkpoints.best.read_bytes() == b"converted"


def test_all_differences_are_named(started):
    with pytest.raises(UserError, match=r"model\.d_ff was 512.*training\.beta_1 was 0\.9"):
        Run.create_or_resume(started.path, tiny(model__d_ff=64, training__beta_1=0.8))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.steps", 5_000),
        ("training.batch_tokens", 64),
        ("training.learning_rate_scale", 0.5),
        ("training.warmup_steps", 7),
        ("decoding.beam_size", 8),
    ],
)
def test_settings_that_affect_neither_model_nor_loss_may_change(started, name, value):
    changed = preset("tiny").replace({name: value})
    assert Run.create_or_resume(started.path, changed).config == changed
    assert Run.open(started.path).config == changed


def test_the_tokenizer_may_move_but_not_change(tmp_path):
    paths = [str(tmp_path / name) for name in ("given", "moved", "other", "nothing")]
    for path, content in zip(paths, (b"one", b"one", b"two"), strict=False):
        Path(path).write_bytes(content)
    given, moved, other, nothing = (tiny(data__tokenizer=path) for path in paths)
    run = Run.create_or_resume(tmp_path / "one", given)
    run.tokenizer.write_bytes(b"one")
    with_checkpoint(run)
    assert Run.create_or_resume(tmp_path / "one", moved).config == moved
    assert Run.open(tmp_path / "one").config == moved
    for refused in (other, nothing, tiny()):
        with pytest.raises(UserError, match=r"data\.tokenizer was .*moved', now"):
            Run.create_or_resume(tmp_path / "one", refused)


@pytest.mark.parametrize("output", ["", "thesis.txt"])
def test_other_files_and_their_folders_are_refused_and_left_alone(tmp_path, output):
    file = tmp_path / "thesis.txt"
    file.write_text("years of work")
    with pytest.raises(UserError, match="was not created by `tf-transformer train`. Give"):
        Run.create_or_resume(tmp_path / output, tiny())
    assert [*tmp_path.iterdir()] == [file] and file.read_text() == "years of work"


@pytest.mark.parametrize("make", [lambda path: None, Path.touch, Path.mkdir])
def test_only_a_run_directory_can_be_opened(tmp_path, make):
    make(tmp_path / "one")
    with pytest.raises(UserError, match="one is not a run directory"):
        Run.open(tmp_path / "one")


@pytest.mark.parametrize("damage", ["truncated", "emptied"])
def test_a_damaged_configuration_is_refused_and_kept(run, damage):
    file = run.path / "config.json"
    file.write_text(file.read_text()[:100] if damage == "truncated" else "")
    before = file.read_bytes()
    with pytest.raises(UserError, match=f"{file}: .*not a valid config.json"):
        Run.open(run.path)
    with pytest.raises(UserError, match="not a valid config.json"):
        Run.create_or_resume(run.path, tiny())
    assert file.read_bytes() == before


def test_history_returns_what_was_written(run):
    """The perplexity of a hopeless model may be infinite."""
    records = [evaluation(10, loss=0.1 + 0.2), evaluation(20, valid_perplexity=math.inf)]
    run.write_history(records)
    assert Run.open(run.path).history() == records
    assert len(run.metrics.read_text().splitlines()) == 2
    run.write_history([*records, records[0]])
    with pytest.raises(UserError, match=r"jsonl:3: expected a step after 20. Received: 10\."):
        run.history()


GOOD = json.dumps(evaluation(10)).encode()


@pytest.mark.parametrize(
    "line",
    [
        b'{"st',
        b"\x00\xff\xfe",
        b"null",
        b"{}",
        GOOD.replace(b"valid_bleu", b"bleu"),
        GOOD.replace(b"dev_set", b"set"),
        GOOD.replace(b"10", b"1" + b"0" * 5_000),
    ],
)
def test_an_invalid_line_of_the_history_is_named(run, line):
    run.metrics.write_bytes(GOOD + b"\n" + line)
    expected = r"one/metrics.jsonl:2: expected a JSON object with step, .*, valid_bleu\."
    with pytest.raises(UserError, match=expected) as raised:
        run.history()
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "x"), ("step", -1), ("step", 1.5), ("step", True), ("step", 10**400),
        ("valid_bleu", math.nan), ("valid_bleu", math.inf), ("valid_bleu", None),
        ("valid_perplexity", -math.inf), ("valid_f1", math.nan), ("loss", []),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_compared_is_refused(run, name, value):
    run.write_history([evaluation(10), evaluation(20) | {name: value}])
    expected = rf"one/metrics.jsonl:2: expected a [a-z]+ number as {name}\. Received: "
    with pytest.raises(UserError, match=expected):
        run.history()


def test_changed_settings_are_announced_and_recorded_with_their_step(started, caplog, opened):
    changed = tiny(training__warmup_steps=7, decoding__beam_size=8)
    run = Run.create_or_resume(started.path, changed)
    assert [(change["step"], change["what"], change["to"]) for change in run.changes()] == [
        (1, "training.warmup_steps", 7), (1, "decoding.beam_size", 8),
    ]  # fmt: skip
    before = tiny().training.warmup_steps
    assert run.changes()[0]["from"] == before
    assert f"from step 1 on, training.warmup_steps is 7, was {before}" in caplog.messages
    assert opened[run.checkpoints.state_path(1).name] == 1  # checked once for both changes
    Run.create_or_resume(run.path, changed)
    assert len(run.changes()) == len(caplog.messages) == 2
    Run.create_or_resume(run.path, tiny(decoding__beam_size=8))
    assert len(run.changes()) == 3


def test_versions_that_changed_between_sessions_are_announced_and_recorded(started, caplog):
    file = started.path / "versions.json"
    file.write_text(json.dumps(package_versions() | {"keras": "3.0.0"}))
    run = Run.create_or_resume(started.path, tiny())
    assert [(change["what"], change["from"]) for change in run.changes()] == [
        ("keras", "3.0.0")
    ]
    assert caplog.messages == [
        f"from step 1 on, keras is {package_versions()['keras']}, was 3.0.0"
    ]
    assert json.loads(file.read_text()) == package_versions()
    file.write_text("{")
    assert len(Run.create_or_resume(started.path, tiny()).changes()) == 1


def test_the_hashes_of_the_text_stand_in_the_configuration(run):
    assert Run.open(run.path).text_hashes == {}
    run.record_session({"train": "one", "valid": "two"}, {})
    run.change_settings({"decoding.alpha": 1.0}, "for this test")
    again = Run.create_or_resume(run.path, run.config)
    assert (
        again.text_hashes == Run.open(run.path).text_hashes == {"train": "one", "valid": "two"}
    )


@pytest.mark.parametrize("texts", [5, None, [], {"train": 5}])
def test_damaged_hashes_of_the_text_are_a_user_error(run, texts):
    (run.path / "config.json").write_text(run.config.to_json(texts=texts))
    with pytest.raises(UserError, match="config.json: `texts` must hold two hashes. Received"):
        Run.open(run.path)


def test_results_recorded_at_the_same_time_are_all_kept(tmp_path):
    run = Run.create_or_resume(tmp_path / "run", Config())
    names = (
        "files", "lines", "checkpoint", "ensemble", "tag", "precision", "litert", "decoding",
        "scores", "seen",
    )  # fmt: skip

    def record(number: int) -> None:
        for _ in range(10):
            run.record_result(dict.fromkeys(names, number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, range(4)))
    found = [each["lines"] for each in read_results(run.results)]
    assert sorted(found) == sorted([*range(4)] * 10)


RECORD = {
    "step": 12_000,
    "loss": 2.3456,
    "perplexity": 5.678,
    "valid_perplexity": 4.321,
    "valid_bleu": 27.3,
    "valid_chrf": 55.5,
    "tokens_per_second": 12_345.6,
}


@pytest.mark.parametrize(
    ("best_by", "score"), [("bleu", 27.3), ("chrf", 55.5), ("perplexity", -4.321)]
)
def test_a_higher_score_or_a_lower_perplexity_is_better(best_by, score):
    assert score_of(RECORD, best_by) == score


def test_an_evaluation_is_one_line():
    assert line(RECORD, "BLEU 27.30", False) == (
        "step 12,000  loss 2.346  perplexity 5.68  dev perplexity 4.32  dev BLEU 27.30  "
        "12,346 tokens/s"
    )
    assert line(RECORD, "BLEU 27.30", True).endswith(" tokens/s  best")


def test_tensorboard_gets_every_value_at_its_step(tmp_path):
    write_tensorboard(str(tmp_path), RECORD)
    (file,) = tmp_path.iterdir()
    written = {
        value.tag: (event.step, float(tf.make_ndarray(value.tensor)))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    assert written == {name: (12_000, pytest.approx(value)) for name, value in RECORD.items()}


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


def begun(path: Path, texts: Path) -> Run:
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
    run = begun(tmp_path / "run", texts)
    before = (run.path / "config.json").read_bytes(), run.metrics.read_bytes()
    open_for_training(run.path, config_of(texts))
    assert ((run.path / "config.json").read_bytes(), run.metrics.read_bytes()) == before
    assert run.changes() == []
    assert caplog.messages == []


@pytest.mark.parametrize("language", ["en", "de"])
def test_changed_training_text_is_refused_and_nothing_is_written(tmp_path, texts, language):
    run = begun(tmp_path / "run", texts)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    rewrite(texts / f"train.{language}")
    with pytest.raises(UserError, match="texts/train has changed .*`accept_new_data`"):
        open_for_training(run.path, config_of(texts))
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert after == before


def test_accepted_new_text_is_announced_and_recorded_once(tmp_path, texts, caplog):
    run = begun(tmp_path / "run", texts)
    rewrite(texts / "train.en")
    open_for_training(run.path, config_of(texts), accept_new_data=True)
    (change,) = run.changes()
    assert (change["step"], change["what"]) == (40, "training text")
    assert change["from"] != change["to"]
    assert "from step 40 on, training text is" in caplog.text
    open_for_training(run.path, config_of(texts))  # now it is the run's text
    assert len(run.changes()) == 1


def test_changed_dev_text_is_announced_and_recorded(tmp_path, texts, caplog):
    run = begun(tmp_path / "run", texts)
    rewrite(texts / "dev.de")
    open_for_training(run.path, config_of(texts))
    (change,) = run.changes()
    assert change["what"] == "dev text"
    assert "no longer choose the best weights" in caplog.text
    rewrite(texts / "dev.de")  # and back again
    open_for_training(run.path, config_of(texts))
    assert run.changes()[-1]["to"] == change["from"]


def test_another_tokenizer_of_bleu_makes_earlier_scores_incomparable(tmp_path, texts, caplog):
    """It may change when a run is resumed, as one of 1.0.0 on text without blanks does."""
    run = begun(tmp_path / "run", texts)
    text = run.text_hashes["valid"]
    run.write_history([evaluation(step, dev_set=text) for step in (20, 40)])
    zh = config_of(texts).replace({"data.bleu_tokenizer": "zh", "training.patience": 1})
    resumed = open_for_training(run.path, zh)
    expected = "data.bleu_tokenizer is zh, was 13a (earlier scores no longer choose the best"
    assert expected in caplog.text
    assert Run.open(run.path).dev_set(text) == resumed.dev_set(text) != text
    assert what_is_unfinished(resumed, 99) == "its training has not ended"  # no patience used
    open_for_training(run.path, zh)
    assert len(run.changes()) == 2  # not once more


def test_moved_text_is_accepted_by_its_content(tmp_path, texts, caplog):
    run = begun(tmp_path / "run", texts)
    moved = texts.rename(tmp_path / "elsewhere")
    open_for_training(run.path, config_of(moved))
    assert Run.open(run.path).config == config_of(moved)
    assert [change["what"] for change in run.changes()] == ["data.train", "data.valid"]
    assert all("(the same text)" in message for message in caplog.messages)
    assert len(caplog.messages) == 2


def test_other_text_in_another_folder_is_refused(tmp_path, texts):
    run = begun(tmp_path / "run", texts)
    moved = texts.rename(tmp_path / "elsewhere")
    rewrite(moved / "train.en")
    other = "on .*/texts/train. Received other text: .*/elsewhere/train. .*`accept_new_data`"
    with pytest.raises(UserError, match=other):
        open_for_training(run.path, config_of(moved))
    assert Run.open(run.path).config == config_of(texts)


def test_another_language_is_refused_even_if_new_data_is_accepted(tmp_path, texts):
    run = begun(tmp_path / "run", texts)
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
    begun(tmp_path / "run", texts)
    same = config_of(texts).replace({"model.decoder_layers": depth})
    run = open_for_training(tmp_path / "run", same)
    assert run.config.model.num_decoder_layers and not run.changes()
    with pytest.raises(UserError, match=r"model.decoder_layers was .*, now 1"):
        open_for_training(tmp_path / "run", same.replace({"model.decoder_layers": 1}))
