"""What each release wrote is still read: a run, a `.keras` file and exports.

written_by_VERSION.tar.xz holds them as the release left them, with a model of one layer that
was trained for 200 updates on 300 pairs of the built-in corpus, and, in answers.json, what the
release made of three sentences, and the options of its training; see tools/write_release.py.
1.0.0 has no export for LiteRT; that of 1.1.0 was made from its run afterwards, by 1.1.0.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
from command_line import assert_refused, train_options
from helpers import ROOT

import tf_transformer
from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.cli.options import config_of
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, Config
from tf_transformer.export.card import CARD, write_card
from tf_transformer.litert.interpreter import ModelInterpreter
from tf_transformer.run import Run

ARCHIVES = {file.name[11:-7]: file for file in (ROOT / "tests").glob("written_by_*.tar.xz")}


@pytest.fixture(scope="module", params=sorted(ARCHIVES))
def old(tmp_path_factory, request) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVES[request.param]) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_the_changelog_begins_with_this_version_and_each_release_has_its_files():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    head, *released = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert head == tf_transformer.__version__
    assert {*ARCHIVES} == {*released} | ({head} if "dev" not in head else set())


@pytest.fixture(scope="module")
def answers(old) -> dict:
    return json.loads((old / "answers.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ["run", "exported"])
def test_an_old_model_gives_the_translations_of_its_time(old, answers, name):
    translator = tf_transformer.load(old / name)
    texts = answers["texts"]
    assert translator.translate(texts) == answers["translations"]
    for found, score in zip(translator.translate(texts), answers["scores"], strict=True):
        # Around spans it is that of the whole translation since 2.0.
        if not translator.kept().protect(found.source).spans:
            assert found.score == pytest.approx(score, rel=1e-3)


@pytest.mark.parametrize("old", ["1.0.0"], indirect=True)
def test_an_old_export_has_no_probabilities_of_words(old, answers, capsys):
    translator, done = tf_transformer.load(old / "exported"), []
    refusal = "cannot give the probabilities of words: load the run it was made from"
    with pytest.raises(UserError, match=refusal):
        translator.translate(answers["texts"], word_probs=True, progress=done.append)
    assert not done
    command = ["score", str(old / "exported"), "--source", str(old / "dev.en")]
    assert main([*command, "--target", str(old / "dev.de"), "--word-probs"]) == 1
    assert refusal in capsys.readouterr().err


def test_an_old_keras_file_gives_the_logits_of_its_time(old, answers):
    model = keras.models.load_model(old / "model.keras")
    ids = {side: np.array(answers[f"{side}_ids"], np.int32) for side in ("source", "target")}
    np.testing.assert_allclose(model(ids), answers["logits"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("old", sorted({*ARCHIVES} - {"1.0.0"}), indirect=True)
def test_an_old_export_for_litert_gives_the_translations_of_its_time(old, answers):
    """The example, `load`, and the interpreter that runs use for `precision` run it."""
    folder, [text, *_] = old / "litert" / "1", answers["texts"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/litert/translator.py"), str(folder)],
        input="\n".join(answers["texts"]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == answers["greedy"]
    loaded = tf_transformer.load(folder.parent)
    assert loaded.translate(answers["texts"]) == answers["translations"]

    tokenizer = tf_transformer.Tokenizer(folder / "tokenizer.model")
    interpreter = ModelInterpreter((folder / "model.tflite").read_bytes(), threads=1)
    step = interpreter.encode(np.array([[*tokenizer.ids([text])[0], EOS_ID]], np.int32))
    logits = step(np.full([1, 1], BOS_ID, np.int32), 0, np.zeros([1, 1, 1], np.int32))
    logits[..., [PAD_ID, BOS_ID, EOS_ID]] = -np.inf
    assert logits.argmax() == tokenizer.ids(answers["greedy"][:1])[0][0]


def test_an_old_run_is_trained_further(old, answers, monkeypatch):
    monkeypatch.chdir(old)
    main(["train", *answers["options"], "--set", "training.steps=210"])
    assert Run.open(old / "run").history()[-1]["step"] == 210


# --- What 1.1.0 had besides translation ----------------------------------------------------

GONE = r"needs tf-transformer 1\.1\.0: .* experiments/{} has the successor\."
TASKS = ("parsing", "classification")


@pytest.mark.parametrize("text", ["task: translation", "preset: big\ntask: translation"])
def test_the_task_of_translation_is_read_wherever_1_1_0_took_it(text, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    config = configure(task="translation", file=tmp_path / "run.yaml")
    assert config == config_of(train_options(["--task", "translation", "--config", "run.yaml"]))
    assert '"task"' not in config.to_json()
    record = json.loads(config.to_json()) | {"task": "translation"}
    assert Config.from_json(json.dumps(record)) == config


@pytest.mark.parametrize("task", TASKS)
def test_another_task_is_refused_in_one_line_that_names_its_successor(task, tmp_path, capsys):
    gone = GONE.format(task)
    (tmp_path / "run.yaml").write_text(f"task: {task}")
    for wrong in ({"task": task}, {"file": tmp_path / "run.yaml"}):
        with pytest.raises(UserError, match=gone):
            configure(**wrong)
    with pytest.raises(UserError, match=gone):
        tf_transformer.load("run", task=task)
    with pytest.raises(UserError, match=gone):
        tf_transformer.train(task=task)
    assert_refused(capsys, ["train", "--task", task], gone, status=1)
    (tmp_path / "run").mkdir()
    record = json.loads(Config().to_json()) | {"task": task}
    record["training"]["best_by"] = "f1"  # as such a run has it
    (tmp_path / "run" / "config.json").write_text(json.dumps(record))
    for command in ("translate run", "serve run", "train --output run", "curves run"):
        assert_refused(capsys, command.split(), f"`task` '{task}' {gone}", status=1)
    with pytest.raises(UserError, match=f"run/config.json: `task` '{task}' {gone}"):
        tf_transformer.load("run")


def test_an_export_that_labels_sentences_is_refused(exported, tmp_path, capsys):
    shutil.copytree(exported, tmp_path / "topics" / "1")
    write_card(tmp_path / "topics" / "1" / CARD, {"task": "classification"})
    gone = "topics/1: task` 'classification' " + GONE.format("classification")
    with pytest.raises(UserError, match=gone):
        tf_transformer.load(tmp_path / "topics")
    assert_refused(capsys, ["serve", "topics"], gone, status=1)


def test_a_keras_file_of_a_classifier_is_refused(tmp_path):
    class Classifier(keras.Model):
        pass

    inputs = keras.Input((3,))
    name = "tf_transformer>Classifier"
    with keras.saving.custom_object_scope({}):
        keras.saving.register_keras_serializable("tf_transformer")(Classifier)
        Classifier(inputs, keras.layers.Dense(2)(inputs)).save(tmp_path / "topics.keras")
        keras.saving.get_custom_objects().pop(name, None)
        registration = keras.src.saving.object_registration
        registration.GLOBAL_CUSTOM_OBJECTS.pop(name, None)
    with pytest.raises(UserError, match="topics.keras, .*" + GONE.format("classification")):
        tf_transformer.load(tmp_path / "topics.keras")


@pytest.mark.parametrize(
    ("preset", "experiment"),
    [("table3-A-h1", "table3"), ("parsing-wsj", "parsing"), ("parsing-small", "parsing"),
     ("classification-small", "classification")],
)  # fmt: skip
def test_a_preset_that_is_settings_of_an_experiment_now_is_refused(preset, experiment, capsys):
    gone = f"The preset {preset} {GONE.format(experiment)}"
    with pytest.raises(UserError, match=gone):
        tf_transformer.preset(preset)
    assert_refused(capsys, ["train", "--model", preset], gone, status=1)


def test_the_settings_of_a_run_go_on_whatever_became_of_its_preset(tmp_path):
    config = tf_transformer.preset("base").replace({"model.num_heads": 1})
    record = json.loads(config.to_json()) | {"preset": "table3-A-h1", "task": "translation"}
    (tmp_path / "config.json").write_text(json.dumps(record))
    again = configure(file=tmp_path / "config.json")
    assert (again.preset, again.model) == ("table3-A-h1", config.model)


@pytest.mark.parametrize(
    ("score", "experiment"), [("f1", "parsing"), ("accuracy", "classification")]
)
def test_a_score_of_other_tasks_is_refused(score, experiment, tmp_path, capsys):
    gone = f"`training.best_by` '{score}' {GONE.format(experiment)}"
    (tmp_path / "run.yaml").write_text(f"training: {{best_by: {score}}}")
    for words in (["--config", "run.yaml"], ["--set", f"training.best_by={score}"]):
        assert_refused(capsys, ["train", *words], gone, status=1)
    with pytest.raises(UserError, match=gone):
        tf_transformer.train(best_by=score)


@pytest.mark.parametrize(
    ("name", "experiment"),
    [("Parser", "parsing"), ("SentenceClassifier", "classification"),
     ("Classifier", "classification")],
)  # fmt: skip
def test_a_class_that_is_gone_is_named_when_it_is_imported(name, experiment):
    with pytest.raises(ImportError, match=f"tf_transformer.{name} {GONE.format(experiment)}"):
        getattr(tf_transformer, name)
    with pytest.raises(ImportError, match=GONE.format(experiment)):
        exec(f"from tf_transformer import {name}")
    assert name not in dir(tf_transformer)


@pytest.mark.parametrize(
    ("command", "experiment"),
    [("parse run", "parsing"), ("draw run", "parsing"), ("classify run", "classification"),
     ("heads run", "heads"), ("lengths run", "lengths"), ("ablate --help", "table3")],
)  # fmt: skip
def test_a_command_that_is_gone_names_its_successor(command, experiment, capsys):
    expected = f"of 1.1.0.* python -m experiments.{experiment}"
    assert_refused(capsys, command.split(), expected, status=2)
