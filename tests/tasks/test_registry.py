"""Tasks by name; configurations and runs that do not fit their task are refused."""

import pytest

from tf_transformer.config import Config
from tf_transformer.config.presets import PRESETS
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.registry import (
    TASKS,
    check_run,
    check_training,
    discard_foreign_files,
    task_named,
)


def test_an_unknown_task_is_refused_with_the_list():
    with pytest.raises(UserError, match="no task 'juggling'. There are: translation, parsing"):
        check_training(Config(task="juggling"))


@pytest.mark.parametrize("name", TASKS)
def test_a_score_that_a_task_does_not_measure_is_refused(name):
    foreign = {score for task in TASKS.values() for score in task.scores}
    for best_by in sorted(foreign - set(TASKS[name].scores)):
        config = Config(task=name).replace({"training.best_by": best_by})
        with pytest.raises(UserError, match=f"for --task {name}. Received: '{best_by}'"):
            check_training(config)


@pytest.mark.parametrize("name", TASKS)
def test_every_score_of_a_task_may_choose_the_best_checkpoint(name):
    for best_by in (*TASKS[name].scores, "perplexity"):
        config = Config(task=name).replace({"training.best_by": best_by})
        assert config.training.best_by == best_by


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_selects_checkpoints_by_the_main_score_of_its_task(name):
    config = PRESETS[name]
    assert config.training.best_by == task_named(config.task).main_score


OF_TASK = {
    "translation": {"data.train": ["a"], "data.source": "en", "data.target": "de"},
    "parsing": {"data.train": ["a.ptb"]},
    "classification": {"data.train": ["a.tsv"]},
}


def test_what_another_task_left_at_its_start_is_deleted(tmp_path):
    run = Run(tmp_path, Config())
    labels = tmp_path / "labels.json"
    labels.touch()
    discard_foreign_files(run)
    assert not labels.exists()
    labels.touch()
    run.checkpoints.path.mkdir()
    run.checkpoints.state_path(5).touch()
    discard_foreign_files(run)  # trained: the files are evidence, see `check_run`
    assert labels.exists()


@pytest.mark.parametrize("name", TASKS)
def test_a_run_whose_task_was_changed_by_hand_is_refused(tmp_path, name):
    """`best_by` is perplexity, which every task measures."""
    for number, (trained, settings) in enumerate(OF_TASK.items()):
        path = tmp_path / f"{number}"
        path.mkdir()
        if own_file := TASKS[trained].own_file:
            (path / own_file).touch()
        settings = settings | {"training.best_by": "perplexity"}
        run = Run(path, Config(task=name).replace(settings))
        if name == trained:
            check_run(run)
        else:
            with pytest.raises(UserError, match=f"config.json has task '{name}', but it"):
                check_run(run)


def test_a_converted_run_is_a_translation_run_without_data(tmp_path):
    check_run(Run(tmp_path, Config()))
    with pytest.raises(UserError, match="There is no task 'juggling'"):
        check_run(Run(tmp_path, Config(task="juggling")))
