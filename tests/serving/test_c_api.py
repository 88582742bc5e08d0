"""The SavedModel without Python: a C program on the loader that TF Serving uses.

The program turns XLA compilation off as the server's main() does, and knows of SentencePiece
only the library of its operations.
"""

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.serving.comparisons import source_ids
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.translations import requests
from tf_transformer.serving.warmup import TEXTS

COMPILER = sysconfig.get_config_var("CC").split()[0]
COMPILER = next((name for name in (COMPILER, "gcc", "cc", "clang") if shutil.which(name)), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

TYPES = {"object": "string", "int32": "int32", "float32": "float"}
DTYPES = {"string": object, "int": np.int32, "float": np.float32}


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("c") / "serve"
    folder = tf.sysconfig.get_lib()
    command = [COMPILER, "-Wall", str(Path(__file__).with_name("serve.c")), "-o", str(path)]
    command += [f"-I{tf.sysconfig.get_include()}", f"-L{folder}", f"-Wl,-rpath,{folder}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def operations() -> str:
    package = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    return str(Path(package, "python", "ops", "_sentencepiece_tokenizer.so"))


def words(values: np.ndarray) -> list[str]:
    """A tensor as the program reads it."""
    texts = values.flat
    if values.dtype == object:
        texts = ["x" + tf.compat.as_bytes(text).hex() for text in texts]
    return [TYPES[str(values.dtype)], *map(str, [values.ndim, *values.shape, *texts])]


def parse(line: str) -> np.ndarray:
    kind, rank, *rest = line.split()
    shape, values = map(int, rest[: int(rank)]), rest[int(rank) :]
    if kind == "string":
        values = [bytes.fromhex(value[1:]) for value in values]
    return np.array(values, DTYPES[kind]).reshape(*shape)


def call(program, exported, definition, inputs, library=None):
    command = [str(program), str(exported), library or operations()]
    for name, values in inputs.items():
        command += ["in", definition.inputs[name].name, *words(values)]
    for info in definition.outputs.values():
        command += ["out", info.name]
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)


def agree(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    if found.dtype == np.float32:
        np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)
    else:
        assert found.tolist() == expected.tolist(), name


SIGNATURES = ("serving_default", "nbest", "with_options", "tokens", "attention", "score")


@pytest.mark.parametrize("signature", SIGNATURES)
def test_c_gets_what_python_gets(program, exported, translator, session, signature):
    inputs = next(r.inputs for r in requests(translator) if r.signature == signature)
    if set(inputs) == {"text"}:
        inputs = {"text": np.array(TEXTS, object)}
    definition = session.signatures[signature]
    done = call(program, exported, definition, inputs)
    assert done.returncode == 0, done.stderr
    expected = session.run(signature, inputs)
    for name, line in zip(definition.outputs, done.stdout.splitlines(), strict=True):
        agree(parse(line), expected[name], name)


@pytest.mark.parametrize("exported_task", ["exported_parser", "exported_classifier"])
def test_c_gets_what_python_gets_of_other_tasks(program, request, exported_task):
    path = request.getfixturevalue(exported_task)
    inputs = {"text": np.array([*TEXTS, "the dog sees a cat ."], object)}
    with SavedModelSession(path) as loaded:
        (definition,) = loaded.signatures.values()
        expected = loaded.run("serving_default", inputs)
    done = call(program, path, definition, inputs)
    assert done.returncode == 0, done.stderr
    for name, line in zip(definition.outputs, done.stdout.splitlines(), strict=True):
        agree(parse(line), expected[name], name)


def test_ids_are_translated_without_any_library_of_operations(
    program, exported, text_free, translator, session
):
    inputs = {"tokens": source_ids(translator, TEXTS)}
    with SavedModelSession(text_free) as loaded:
        definition = loaded.signatures["tokens"]
    done = call(program, text_free, definition, inputs, library="-")
    assert done.returncode == 0, done.stderr
    found = dict(zip(definition.outputs, map(parse, done.stdout.splitlines()), strict=True))
    expected = session.run("tokens", inputs)
    assert found["tokens"].tolist() == expected["tokens"].tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)
    with_text = call(program, exported, session.signatures["tokens"], inputs, library="-")
    assert "Sentencepiece" in with_text.stderr  # so the other does without


def test_every_signature_is_run(session):
    assert set(SIGNATURES) == set(session.signatures)


@pytest.mark.parametrize(
    "text", [np.array("a scalar", object), np.array([["of", "rank 2"]], object)]
)
def test_text_of_a_wrong_rank_is_an_invalid_argument(program, exported, session, text):
    definition = session.signatures["serving_default"]
    done = call(program, exported, definition, {"text": text})
    assert done.returncode == 1
    assert "code 3: " in done.stderr  # INVALID_ARGUMENT
    assert "shape" in done.stderr


def test_numbers_are_an_invalid_argument(program, exported, session):
    definition = session.signatures["serving_default"]
    done = call(program, exported, definition, {"text": np.array([1, 2], "int32")})
    assert "code 3: " in done.stderr
