"""Quick and full diagnosis, on a run and on the built-in corpus."""

import shutil
from collections.abc import Callable, Mapping

import pytest

from tf_transformer.config.presets import preset
from tf_transformer.doctor.diagnosis import (
    quick_findings,
    survey_text,
    task_findings,
    text_findings,
)
from tf_transformer.run import Run
from tf_transformer.tasks.translation.task import TranslationTask


def ignore(text: str, done: int) -> None:
    """Ignores progress."""


@pytest.fixture(scope="module")
def builtin(tmp_path_factory) -> TranslationTask:
    """The task of `python train.py`."""
    folder = tmp_path_factory.mktemp("builtin") / "run"
    return TranslationTask(Run.create_or_resume(folder, preset("tiny")), ignore)


@pytest.fixture
def copied_task(trained_run, tmp_path) -> Callable[..., TranslationTask]:
    """`copied_task(settings)`: the task of a copy of the trained run, with these settings."""

    def make(settings: Mapping[str, object]) -> TranslationTask:
        run = Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))
        return TranslationTask(Run(run.path, run.config.replace(settings)), ignore)

    return make


def test_the_built_in_corpus_passes_every_check(builtin):
    test = [str(builtin.run.data / "builtin" / "test")]
    surveys = survey_text(builtin.data, test)
    assert [(survey.name, survey.pairs) for survey in surveys] == [
        ("train", 20_000), ("dev", 500), ("test", 500),
    ]  # fmt: skip
    findings = text_findings(surveys, builtin.data)
    findings += task_findings(builtin, surveys)
    assert [str(finding) for finding in findings if finding.warning] == []
    assert len({finding.check for finding in findings}) == len(findings) == 17
    assert quick_findings(builtin) == []


def test_dev_sentences_in_the_training_text_are_a_quick_warning(copied_task):
    """As in this run, whose dev set is the beginning of its training text."""
    (line,) = quick_findings(copied_task({}))
    assert line.startswith("overlap: 40 of 40 pairs of dev (100%) are also in train.")


@pytest.mark.parametrize("from_another_run", [False, True])
def test_unused_pieces_are_no_mistake_in_the_vocabulary_of_another_run(
    copied_task, trained_run, from_another_run
):
    source = str(trained_run.path) if from_another_run else ""
    task = copied_task({"training.init_from": source})
    checks = {finding.check for finding in task_findings(task, survey_text(task.data))}
    assert ("unused pieces" in checks) is not from_another_run


def test_quick_findings_examine_a_sample_of_a_large_corpus(copied_task, monkeypatch):
    monkeypatch.setattr("tf_transformer.doctor.diagnosis.QUICK_PAIRS", 75)
    (line,) = quick_findings(copied_task({}))
    assert line.startswith(
        "overlap: 10 of 40 pairs of dev (25%) are also in a sample of train (1 pair in 4)"
    )


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"model.vocab_size": 700}, "vocabulary: the tokenizer has 600"),
        ({"data.max_length": 16}, "filters: "),
    ],
)
def test_wrong_settings_are_a_quick_warning(copied_task, settings, check):
    lines = quick_findings(copied_task(settings))
    assert [line for line in lines if line.startswith(check)]


def test_progress_names_the_split_that_is_read(builtin):
    calls: list[tuple[str, int]] = []
    surveys = survey_text(builtin.data, progress=lambda *call: calls.append(call))
    assert [survey.name for survey in surveys] == ["train", "dev"]
    assert calls == [("reading train", 10_000), ("reading train", 20_000)]
