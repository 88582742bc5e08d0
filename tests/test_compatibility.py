"""What each release wrote is still read: a run, a `.keras` file and exports.

written_by_VERSION.tar.xz holds them as the release left them, with a model of one layer that
was trained for 200 updates on 300 pairs of the built-in corpus, and, in answers.json, what the
release made of three sentences, and the options of its training; see tools/write_release.py.
1.0.0 has no export for LiteRT; that of 1.1.0 was made from its run afterwards, by 1.1.0.
"""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import ROOT

import tf_transformer
from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
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
    scores = [translation.score for translation in translator.translate(texts)]
    np.testing.assert_allclose(scores, answers["scores"], rtol=1e-3)


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
def test_an_old_export_for_litert_gives_the_greedy_translations_of_its_time(old, answers):
    """The example runs it, and so does the interpreter that runs use for `precision`."""
    folder, [text, *_] = old / "litert" / "1", answers["texts"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/litert/translator.py"), str(folder)],
        input="\n".join(answers["texts"]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == answers["greedy"]

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
