"""The translation task: its data, its batches, its dev score, and what it takes from a run."""

import dataclasses
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from tf_transformer.config import PAD_ID, Config, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer, train_tokenizer
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.translation import (
    TranslationTask,
    build_model,
    check_config,
    effective_data,
    load_tokenizer,
    load_translator,
    resolve_files,
)
from tf_transformer.training.checkpoints import load_weights


def ignore(text: str, done: int) -> None:
    """Progress that nobody watches."""


@pytest.fixture
def run(trained_run, tmp_path) -> Run:
    """A copy of the trained run, to change."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def task(trained_run) -> TranslationTask:
    return TranslationTask(Run.open(trained_run.path), ignore)


def with_settings(run: Run, **settings: object) -> Run:
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return Run(run.path, run.config.replace(changes))


# --- Data --------------------------------------------------------------------------------


def test_own_data_is_used_as_it_is(run):
    assert effective_data(run) == run.config.data


def test_without_data_the_built_in_corpus_is_written_into_the_run(tmp_path):
    data = effective_data(Run.create_or_resume(tmp_path / "run", Config()))
    sources, targets = resolve_files(data.train, data)
    assert (data.source, data.target) == ("en", "de")
    assert all(tmp_path / "run" in path.parents for path in (*sources, *targets))
    assert len(sources[0].read_text("utf-8").splitlines()) > 10_000
    check_config(Config(data=data))


@pytest.mark.parametrize("missing", ["train", "valid", "source", "target"])
def test_data_given_in_part_is_refused(run, missing):
    config = run.config.replace(
        {f"data.{missing}": "" if missing in ("source", "target") else ()}
    )
    with pytest.raises(UserError, match="Own data needs") as error:
        check_config(config)
    assert f"--{missing}" not in str(error.value).partition("Received")[2]


def test_what_is_tokenised_is_not_tokenised_again(run):
    calls: list[str] = []
    TranslationTask(run, lambda text, done: calls.append(text))
    assert calls == []


def test_other_filters_tokenise_again(run):
    calls: list[tuple[str, int]] = []
    shorter = with_settings(run, data__max_length=24)
    task = TranslationTask(shorter, lambda text, done: calls.append((text, done)))
    assert calls == [("tokenising train", 300), ("tokenising valid", 40)]
    assert max(task.train.source_lengths.max(), task.train.target_lengths.max()) <= 24
    assert "longer than 24 tokens" in task.describe()


def test_changed_text_is_tokenised_again(run, tmp_path):
    for language in ("en", "de"):
        text = "".join(f"{number} euros.\n" for number in range(9))
        (tmp_path / f"text.{language}").write_text(text)
    prefix = (str(tmp_path / "text"),)
    other = with_settings(run, data__train=prefix, data__valid=prefix)
    assert len(TranslationTask(other, ignore).train) == 9
    with (tmp_path / "text.en").open("a") as file:
        file.write("Ten euros.\n")
    with (tmp_path / "text.de").open("a") as file:
        file.write("Zehn Euro.\n")
    assert len(TranslationTask(other, ignore).train) == 10


def test_the_description_accounts_for_every_pair(task):
    lines = task.describe().splitlines()
    assert lines[0] == "train: 300 pairs read, 300 kept"
    assert lines[1] == "valid: 40 pairs read, 40 kept"
    assert any(line.startswith("padding: ") for line in lines)


def rows(labels: np.ndarray) -> list[tuple[int, ...]]:
    """Its sentences, without padding; empty rows are none."""
    found = (tuple(row[row != PAD_ID].tolist()) for row in labels)
    return [row for row in found if row]


def test_validation_sees_every_dev_pair_once(task, trained_run):
    dataset = task.validation_data()
    labels = [row for _, batch in dataset.as_numpy_iterator() for row in rows(batch)]
    expected = [tuple(task.valid.target(index).tolist()) for index in range(len(task.valid))]
    assert Counter(labels) == Counter(expected)
    assert len(labels) == 40
    assert int(dataset.cardinality()) == task.valid_plan.steps_per_epoch


def test_training_data_from_a_step_is_the_rest_of_the_whole(task):
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


def test_the_dev_score_is_that_of_the_checkpoint(task, trained_run):
    model = build_model(task.run.config)
    load_weights(task.run.checkpoints.best, model)
    result = task.evaluator(model)()
    references = trained_run.lines("dev.de")
    translator = load_translator(task.run, "best", task.run.config.decoding)
    texts = [found[0].text for found in translator.translate(trained_run.lines("dev.en"))]
    assert result.score.value == BLEU().corpus_score(texts, [references]).score
    assert result.exact == np.mean([t == r for t, r in zip(texts, references, strict=True)])
    assert [dataclasses.astuple(sample) for sample in result.samples] == list(
        zip(trained_run.lines("dev.en")[:5], references, texts, strict=False)
    )


def test_the_dev_score_follows_the_weights(task):
    model = build_model(task.run.config)
    evaluate = task.evaluator(model)
    untrained = evaluate().score.value
    load_weights(task.run.checkpoints.best, model)
    assert evaluate().score.value > untrained + 20


# --- What a run gives --------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_model_computes_in_the_precision_of_the_run(run, precision):
    model = build_model(run.config.replace({"training.precision": precision}))
    assert model.dtype_policy.name == precision
    assert all(weight.dtype == "float32" for weight in model.trainable_weights)


def test_translation_computes_in_float32_whatever_the_training(run):
    mixed = with_settings(run, training__precision="mixed_bfloat16")
    translator = load_translator(mixed, "best", DecodingConfig())
    assert translator.model.dtype_policy.name == "float32"


@pytest.mark.parametrize("which", ["best", "average", "last", "160"])
def test_a_translator_has_the_weights_of_its_checkpoint(run, which):
    translator = load_translator(run, which, DecodingConfig())
    with np.load(run.checkpoints.find(which)) as arrays:
        for weight in translator.model.trainable_weights:
            np.testing.assert_array_equal(weight.numpy(), arrays[f"model/{weight.path}"])


def test_a_run_without_checkpoints_cannot_translate(tmp_path):
    begun = Run.create_or_resume(tmp_path / "begun", Config())
    with pytest.raises(UserError, match="no checkpoint 'best'. There is none yet"):
        load_translator(begun, "best", DecodingConfig())


def test_a_run_without_tokenizer_cannot_translate(run):
    run.tokenizer.unlink()
    with pytest.raises(UserError, match="has no tokenizer.model"):
        load_translator(run, "best", DecodingConfig())


def no_lines():
    raise AssertionError("the text must not be read again")


def test_the_tokenizer_of_the_run_is_kept(run):
    before = run.tokenizer.read_bytes()
    elsewhere = with_settings(run, data__tokenizer="/gone/since.model")
    assert load_tokenizer(elsewhere, no_lines).model_bytes == before
    assert run.tokenizer.read_bytes() == before


def test_a_given_tokenizer_is_copied_into_the_run(trained_run, tmp_path):
    given = tmp_path / "given.model"
    train_tokenizer(trained_run.lines("train.en"), given, vocab_size=400, kind="unigram")
    config = Config().replace({"data.tokenizer": str(given)})
    new = Run.create_or_resume(tmp_path / "new", config)
    assert load_tokenizer(new, no_lines).model_bytes == given.read_bytes()
    given.unlink()
    assert Tokenizer(new.tokenizer).vocab_size == 400


def test_without_a_tokenizer_one_is_trained_on_the_text(tmp_path):
    lines = ["a small text", "that repeats a little", "a small text that repeats"] * 20
    config = Config().replace({"model.vocab_size": 276, "data.tokenizer_kind": "unigram"})
    new = Run.create_or_resume(tmp_path / "new", config)
    tokenizer = load_tokenizer(new, lambda: iter(lines))
    path: Path = tmp_path / "expected.model"
    train_tokenizer(lines, path, vocab_size=276, kind="unigram")
    assert tokenizer.model_bytes == path.read_bytes()
