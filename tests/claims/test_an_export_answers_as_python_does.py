"""What export.py writes answers as the run does in Python, on its own and through `load`.

Fails when the export is traced with the default length penalty instead of the one asked for.
"""

import json
import subprocess
import sys

import pytest

import tf_transformer

SEARCH = {"beam_size": 3, "alpha": 1.4}
AWKWARD = ["", "  ", "TEN ten", "seven \u00a0 six", "日本 🙂 one", "two\tone", "one " * 30]
# All that a server has: TensorFlow, the operations of TensorFlow Text, and the folder.
SERVER = """
import json, sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts, answers = tf.constant(json.load(sys.stdin)), {}
for name in ("serving_default", "nbest"):
    outputs = model.signatures[name](text=texts)
    answers[name] = {output: value.numpy().tolist() for output, value in outputs.items()}
print(json.dumps(answers, default=bytes.decode))
"""


@pytest.fixture(scope="module")
def exported(run, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    run("export.py", trained, "--beam", 3, "--alpha", 1.4, "--output", folder)
    assert [version.name for version in folder.iterdir()] == ["1"]
    return folder / "1"


@pytest.fixture(scope="module")
def texts(text):
    return [*(text / "dev.en").read_text("utf-8").splitlines(), *AWKWARD]


def close(scores):
    return pytest.approx(scores, abs=1e-4)


@pytest.fixture(scope="module")
def expected(trained, texts):
    """The run's translations in Python, three of each text."""
    return tf_transformer.load(trained).translate(texts, n_best=3, **SEARCH)


def test_load_answers_as_from_the_run(exported, texts, expected):
    found = tf_transformer.load(exported).translate(texts, n_best=3)
    for received, wanted in zip(found, expected, strict=True):
        assert [str(one) for one in received] == [str(one) for one in wanted]
        assert [one.score for one in received] == close([one.score for one in wanted])


def test_a_server_answers_so_without_this_package(exported, texts, expected, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SERVER, exported], input=json.dumps(texts),
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    answers = json.loads(done.stdout)
    best = [ranked[0] for ranked in expected]
    assert answers["serving_default"]["translation"] == [str(one) for one in best]
    assert answers["serving_default"]["score"] == close([one.score for one in best])
    for row, ranked in zip(answers["nbest"]["translations"], expected, strict=True):
        assert row[: len(ranked)] == [str(one) for one in ranked]
