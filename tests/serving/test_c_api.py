"""The SavedModel without Python: a C program with the loader that TF Serving uses.

The program turns off XLA compilation, as the server's main() does, and has nothing of
SentencePiece but the library of its operations.
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

from tf_transformer.export import warmup
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.translations import requests, source_ids

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
    """The arguments that describe a tensor to the program."""
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


def run(program, path, calls, library=None):
    """Runs the program on calls, pairs of a signature's definition and its inputs."""
    command = [str(program), str(path), library or operations()]
    for definition, inputs in calls:
        for name, values in inputs.items():
            command += ["in", definition.inputs[name].name, *words(values)]
        for info in definition.outputs.values():
            command += ["out", info.name]
        command.append("run")
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)


def answers(program, path, calls, library=None) -> list[dict[str, str]]:
    """Returns the line that the program prints for each output of each call."""
    done = run(program, path, calls, library)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.removesuffix("\n").split("\n"))
    found = [{name: next(lines) for name in definition.outputs} for definition, _ in calls]
    assert not list(lines)
    return found


def assert_agree(found: dict[str, str], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(parse(found[name]), values, atol=1e-4, err_msg=name)
        else:
            assert parse(found[name]).tolist() == values.tolist(), name


TEXTS = [text.encode("utf-8", "surrogatepass") for text in warmup.TEXTS]
SIGNATURES = ("serving_default", "nbest", "with_options", "tokens", "attention", "score")
TEXT = {"text": np.array(TEXTS, object)}
WRONG = {
    "rank 0": np.array("a scalar", object),
    "rank 2": np.array([["of", "rank 2"]], object),
    "numbers": np.array([1, 2], "int32"),
}


@pytest.fixture(scope="module")
def calls(translator) -> dict[str, tuple[str, dict[str, np.ndarray]]]:
    """The signature and inputs of every call to one process, by a name."""
    calls = {}
    for signature in SIGNATURES:
        inputs = next(
            r.inputs
            for r in requests(translator.engine, translator.decoding)
            if r.signature == signature
        )
        calls[signature] = (signature, TEXT if set(inputs) == {"text"} else inputs)
    return calls | {name: ("serving_default", {"text": text}) for name, text in WRONG.items()}


@pytest.fixture(scope="module")
def found(program, exported, session, calls) -> dict[str, dict[str, str]]:
    """The answers to the calls."""
    defined = [(session.signatures[name], inputs) for name, inputs in calls.values()]
    return dict(zip(calls, answers(program, exported, defined), strict=True))


@pytest.mark.parametrize("signature", SIGNATURES)
def test_c_and_python_give_the_same_outputs(found, session, calls, signature):
    assert_agree(found[signature], session.run(*calls[signature]))


def test_c_and_python_give_the_same_outputs_for_classifiers(program, exported_classifier):
    inputs = {"text": np.array([*TEXTS, "the dog sees a cat ."], object)}
    with SavedModelSession(exported_classifier) as loaded:
        (definition,) = loaded.signatures.values()
        expected = loaded.run("serving_default", inputs)
    (only,) = answers(program, exported_classifier, [(definition, inputs)])
    assert_agree(only, expected)


def test_ids_are_translated_without_an_operation_library(
    program, exported, text_free, translator, session
):
    inputs = {"tokens": source_ids(translator.codec, TEXTS)}
    with SavedModelSession(text_free) as loaded:
        definition = loaded.signatures["tokens"]
    (only,) = answers(program, text_free, [(definition, inputs)], library="-")
    assert_agree(only, session.run("tokens", inputs))
    with_text = run(program, exported, [(session.signatures["tokens"], inputs)], library="-")
    assert "Sentencepiece" in with_text.stderr  # so it is the export that makes the difference


def test_every_signature_is_tested(session):
    assert set(SIGNATURES) == set(session.signatures)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rank_or_type_is_an_invalid_argument(found, wrong):
    for line in found[wrong].values():
        assert line.startswith("error 3: ")  # INVALID_ARGUMENT
        assert "shape" in line or wrong == "numbers"
