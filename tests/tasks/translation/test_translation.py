"""The translation task: its data, its batches, its dev score, its tokenizer."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from tf_transformer.config import PAD_ID, Config
from tf_transformer.data.corpora import corpora
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.tasks.models import build_model
from tf_transformer.tasks.translation.task import TranslationTask
from tf_transformer.tasks.translation.translator import load_translator


def task_of(run: Run, progress: Callable = lambda *_: None) -> TranslationTask:
    return TranslationTask(run, progress)


@pytest.fixture(scope="module")
def task(trained_run) -> TranslationTask:
    return task_of(Run.open(trained_run.path))


# --- Data --------------------------------------------------------------------------------


def test_configured_data_is_used_unchanged(run):
    assert TranslationTask.effective_data(run) == run.config.data


def test_without_data_the_built_in_corpus_is_written_into_the_run(tmp_path):
    data = TranslationTask.effective_data(Run.create_or_resume(tmp_path / "run", Config()))
    (text,) = corpora(data.train, data)
    assert (data.source, data.target) == ("en", "de")
    assert all(tmp_path / "run" in path.parents for path in (text.source, text.target))
    assert len(text) > 10_000
    TranslationTask.check_config(Config(data=data))


@pytest.mark.parametrize("missing", ["train", "valid", "source", "target"])
def test_incomplete_data_options_are_refused(run, missing):
    config = run.config.replace(
        {f"data.{missing}": "" if missing in ("source", "target") else ()}
    )
    with pytest.raises(UserError, match="Your own data needs all of") as error:
        TranslationTask.check_config(config)
    assert f"--{missing}" not in str(error.value).partition("Received")[2]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_files_of_different_lengths_are_refused(run, tmp_path, split):
    (tmp_path / "uneven.en").write_text("one\ntwo\n")
    (tmp_path / "uneven.de").write_text("eins\n")
    config = run.config.replace({f"data.{split}": (str(tmp_path / "uneven"),)})
    with pytest.raises(UserError, match="uneven.en with 2 and .*uneven.de with 1"):
        TranslationTask.check_config(config)


def test_tokenised_text_is_not_tokenised_again(run):
    calls: list[str] = []
    task_of(run, lambda text, done: calls.append(text))
    assert calls == []


def test_text_is_tokenised_again_for_other_filters(run):
    calls: list[tuple[str, int]] = []
    shorter = Run(run.path, run.config.replace({"data.max_length": 24}))
    task = task_of(shorter, lambda text, done: calls.append((text, done)))
    assert calls == [("tokenising train", 300), ("tokenising valid", 40)]
    assert max(task.train.source_lengths.max(), task.train.target_lengths.max()) <= 24
    assert "longer than 24 tokens" in task.describe()


def test_changed_text_is_tokenised_again(run, tmp_path):
    files = [tmp_path / "text.en", tmp_path / "text.de"]
    for file in files:
        file.write_text("".join(f"{number} euros.\n" for number in range(9)))
    prefix = (str(tmp_path / "text"),)
    settings = {"data.train": prefix, "data.valid": prefix}
    other = Run(run.path, run.config.replace(settings))
    assert len(task_of(other).train) == 9
    for file in files:
        file.write_text(f"{file.read_text()}Ten euros.\n")
    assert len(task_of(other).train) == 10


def test_the_description_accounts_for_every_pair(task):
    lines = task.describe().splitlines()
    assert lines[0] == "train: 300 pairs read, 300 kept"
    assert lines[1] == "valid: 40 pairs read, 40 kept"
    assert any(line.startswith("padding: ") for line in lines)


def rows(labels: np.ndarray) -> list[tuple[int, ...]]:
    """The rows without padding; empty ones are left out."""
    unpadded = (tuple(row[row != PAD_ID].tolist()) for row in labels)
    return [row for row in unpadded if row]


def test_validation_sees_every_dev_pair_once(task, trained_run):
    dataset = task.validation_data()
    labels = [row for _, batch in dataset.as_numpy_iterator() for row in rows(batch)]
    expected = [tuple(task.valid.target(index).tolist()) for index in range(len(task.valid))]
    assert Counter(labels) == Counter(expected)
    assert len(labels) == 40
    assert int(dataset.cardinality()) == task.valid_plan.steps_per_epoch


def test_training_data_can_start_at_any_step(task):
    steps = task.plan.steps_per_epoch + 2  # into the second epoch
    whole = task.training_data(0).take(steps + 3).as_numpy_iterator()
    rest = task.training_data(steps).take(3).as_numpy_iterator()
    for (inputs, labels), (same_inputs, same_labels) in zip(
        list(whole)[steps:], rest, strict=True
    ):
        np.testing.assert_array_equal(labels, same_labels)
        for name in ("source", "target"):
            np.testing.assert_array_equal(inputs[name], same_inputs[name])


# --- Dev score ---------------------------------------------------------------------------


def test_the_dev_score_is_bleu_of_the_checkpoint(task, trained_run):
    model = build_model(task.run.config)
    load_weights(task.run.checkpoints.best, model)
    result = task.evaluator(model)()
    references = trained_run.lines("dev.de")
    translator = load_translator(task.run, "best")
    texts = translator.translate(trained_run.lines("dev.en"))
    assert result.scores.bleu.value == BLEU().corpus_score(texts, [references]).score
    assert result.scores.exact == np.mean(
        [t == r for t, r in zip(texts, references, strict=True)]
    )
    sources = trained_run.lines("dev.en")[:5]
    assert result.samples == list(zip(sources, references, texts, strict=False))


def test_the_dev_score_follows_the_weights(task):
    model = build_model(task.run.config)
    evaluate = task.evaluator(model)
    untrained = evaluate().scores.bleu.value
    load_weights(task.run.checkpoints.best, model)
    assert evaluate().scores.bleu.value > untrained + 20
