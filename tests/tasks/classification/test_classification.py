"""The classification task: its labels, its dev score, the encoder it may begin with."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.tasks.classification.labelled import LABELS_FILE, read_examples, read_labels
from tf_transformer.tasks.classification.task import (
    ClassificationTask,
    build_classifier,
    check_config,
    effective_data,
    load_classifier,
)
from tf_transformer.tasks.transfer import take_over
from tf_transformer.training.recipe import compile_model


@pytest.fixture(scope="module")
def task(classification_run) -> ClassificationTask:
    return ClassificationTask(Run.open(classification_run.path), lambda *_: None)


@pytest.fixture(scope="module")
def predictor(task):
    return load_classifier(task.run, "best")


@pytest.fixture
def config(classification_run) -> Config:
    return Run.open(classification_run.path).config


def dev(classification_run):
    return list(read_examples(classification_run.corpus / "dev.tsv"))


# --- Data --------------------------------------------------------------------------------


def test_there_are_no_built_in_labels():
    with pytest.raises(
        UserError, match="Classification needs --train FILE .* of a label, .* none of them"
    ):
        check_config(Config(task="classification"))


def test_settings_of_a_decoder_are_said_once_to_have_no_effect(task, config, caplog):
    check_config(config)
    assert not caplog.records
    config = config.replace({"model.output_bias": True})
    check_config(config)
    build_classifier(Run(task.run.path, config))
    assert caplog.messages == ["model.output_bias has no effect: a classifier has no decoder"]


@pytest.mark.parametrize(
    ("split", "text", "expected"),
    [
        ("train", "animal\tcat\nanimal\tdog\n", "at least two labels"),
        ("train", "animal\tcat\nno label\n", "bad.tsv:2: .*no TAB"),
        ("valid", "animal\tcat\nplant\ttree\n", "bad.tsv:2: .*'plant'. They have: animal, col"),
        ("valid", "animal\t \n", "bad.tsv:1: .*no sentence"),
    ],
)
def test_bad_files_are_refused_before_anything_else(config, tmp_path, split, text, expected):
    (tmp_path / "bad.tsv").write_text(text)
    with pytest.raises(UserError, match=expected):
        check_config(config.replace({f"data.{split}": (str(tmp_path / "bad.tsv"),)}))


def copy_with_labels(run: Run, folder: Path, new: str) -> Run:
    """A copy of the run whose training file has a label more."""
    copied = Run.open(shutil.copytree(run.path, folder / "run"))
    lines = Path(run.config.data.train[0]).read_text() + new
    (folder / "more.tsv").write_text(lines)
    return Run(copied.path, run.config.replace({"data.train": (str(folder / "more.tsv"),)}))


def test_labels_may_not_change_once_training_has_begun(task, tmp_path):
    changed = copy_with_labels(task.run, tmp_path, "plant\ttree\n")
    with pytest.raises(
        UserError, match="must have the labels that .* New: plant; missing: none"
    ):
        effective_data(changed)
    assert read_labels(changed) == task.labels
    for path in changed.checkpoints.path.glob("state-*"):
        path.unlink()
    effective_data(changed)
    assert read_labels(changed) == ["animal", "colour", "number", "plant"]


def test_lost_labels_are_written_again_only_if_they_come_out_the_same(task, tmp_path):
    changed = copy_with_labels(task.run, tmp_path, "plant\ttree\n")
    file = changed.path / LABELS_FILE
    before = file.read_bytes()
    file.unlink()
    for _ in range(2):
        with pytest.raises(
            UserError, match="labels.json was gone, and its replacement differs"
        ):
            effective_data(changed)
        assert not file.exists()
    effective_data(Run.open(changed.path))
    assert file.read_bytes() == before


def test_damaged_labels_are_a_clear_error(task, tmp_path):
    run = Run.open(shutil.copytree(task.run.path, tmp_path / "run"))
    (run.path / LABELS_FILE).write_text('["animal"')
    with pytest.raises(UserError, match=r"labels.json is damaged: its SHA-256"):
        load_classifier(run, "best")
    run.checksums.path.unlink()  # as of a run of an earlier version
    with pytest.raises(UserError, match=r"labels.json is damaged: .*JSON list"):
        load_classifier(run, "best")


def test_labels_of_an_earlier_version_get_a_checksum(task, tmp_path):
    run = Run.open(shutil.copytree(task.run.path, tmp_path / "run"))
    run.checksums.path.unlink()
    effective_data(run)
    (run.path / LABELS_FILE).write_text('["a", "b"]')
    with pytest.raises(UserError, match=r"labels.json is damaged: its SHA-256"):
        read_labels(run)


# --- Dev score ---------------------------------------------------------------------------


def test_the_dev_score_is_that_of_the_classifier(task, predictor, classification_run):
    model = task.build_model()
    load_weights(task.run.checkpoints.best, model)
    result = task.evaluator(model)()
    gold = dev(classification_run)
    given = predictor.classify([one.sentence for one in gold])
    right = sum(each.label == one.label for each, one in zip(given, gold, strict=True))
    assert result.metrics["accuracy"] == right / len(gold) > 0.7
    assert result.headline.startswith(f"accuracy {100 * right / len(gold):.2f} F1 ")


def test_keras_finds_the_same_accuracy_in_batches(task, predictor, classification_run):
    model = task.build_model()
    load_weights(task.run.checkpoints.best, model)
    compile_model(model, task.run.config)
    data = task.validation_data()
    logs = model.evaluate(data, steps=task.validation_steps, verbose=0, return_dict=True)
    gold = dev(classification_run)
    probabilities = predictor.probabilities([one.sentence for one in gold])
    of_gold = [
        row[predictor.labels.index(one.label)]
        for row, one in zip(probabilities, gold, strict=True)
    ]
    assert logs["tokens"] == len(gold)
    assert logs["accuracy"] == pytest.approx(task.evaluator(model)().metrics["accuracy"])
    assert logs["perplexity"] == pytest.approx(np.exp(-np.log(of_gold).mean()), rel=1e-4)


# --- Predictor ---------------------------------------------------------------------------


def test_a_sentence_stands_alone(predictor):
    sentences = ["the cat", "", "two of " * 30, "red"]
    together = predictor.probabilities(sentences)
    np.testing.assert_allclose(together.sum(axis=1), 1, atol=1e-6)
    for sentence, row in zip(sentences, together, strict=True):
        np.testing.assert_allclose(predictor.probabilities([sentence])[0], row, atol=1e-5)
    assert predictor.probabilities([]).shape == (0, 3)


def test_training_in_parts_is_training_at_once(task):
    """With labels [B], as with labels [B, T]."""
    found = []
    for part in (None, 64):
        keras.utils.set_random_seed(1)
        model = task.build_model()
        assert isinstance(model, TokenModel)
        training = task.run.config.training
        compile_model(model, task.run.config)
        model.max_tokens_per_device = part
        logs = model.fit(
            task.training_data(0), steps_per_epoch=3, shuffle=False, verbose=0
        ).history
        found.append((np.concatenate([w.numpy().ravel() for w in model.weights]), logs))
        assert training.batch_tokens == 512
    (whole, logs), (parts, logs_in_parts) = found
    np.testing.assert_allclose(parts, whole, atol=2e-5)
    assert logs_in_parts["tokens"] == logs["tokens"]
    assert logs_in_parts["loss"] == pytest.approx(logs["loss"], rel=1e-5)


# --- The encoder of another run ----------------------------------------------------------


def begin(config: Config, source: Path, folder: Path) -> ClassificationTask:
    config = take_over(config, str(source), recipe_too=False)
    check_config(config)
    return ClassificationTask(Run.create_or_resume(folder, config), lambda *_: None)


@pytest.mark.parametrize("which", ["trained_run", "parsing_run", "classification_run"])
def test_embeddings_and_encoder_of_any_run_are_taken_over(config, tmp_path, request, which):
    source = request.getfixturevalue(which).path
    task = begin(config, source, tmp_path / "fine")
    assert task.tokenizer.model_bytes == (source / "tokenizer.model").read_bytes()
    taken = {weight.path: weight.numpy() for weight in task.build_model().trainable_weights}
    with np.load(source / "checkpoints" / "best.npz") as best:
        for name, value in taken.items():
            if not name.startswith("classes/"):
                np.testing.assert_array_equal(value, best[f"model/{name}"])
    assert taken["classes/kernel"].shape[1] == 3
