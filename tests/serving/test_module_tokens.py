"""An export without text: ids in, ids out, wherever TensorFlow or LiteRT runs."""

import contextlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from snippets import snippets
from test_publish import graph_nodes
from test_selftest import Tampered
from test_warmup import records

from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.serving.comparisons import comparisons, source_ids
from tf_transformer.serving.publish import CARD, TOKENIZER
from tf_transformer.serving.selftest import agree
from tf_transformer.serving.session import SavedModelSession


@pytest.fixture(scope="module")
def ids_session(text_free):
    with SavedModelSession(text_free) as loaded:
        yield loaded


TRANSLATE, CONVERT, INTERPRET = snippets("docs/guides/exporting.md")


@pytest.fixture(scope="module")
def folder(text_free, tmp_path_factory) -> Path:
    """A working directory in which the export has the name that the page gives it."""
    made = tmp_path_factory.mktemp("page")
    (made / "exported" / "ids").mkdir(parents=True)
    (made / "exported" / "ids" / "1").symlink_to(text_free)
    return made


def test_tensorflow_and_sentencepiece_translate_with_it_and_nothing_else(
    folder, translator, trained_run
):
    texts = trained_run.lines("train.en")[:5]
    program = TRANSLATE.replace('["The dog.", "A cat."]', repr(texts))
    program += "import sys; assert not {'tensorflow_text', 'tf_transformer'} & set(sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    expected = [hypotheses[0].text for hypotheses in translator.translate(texts)]
    assert done.stdout.splitlines() == expected


@pytest.fixture(scope="module")
def lite(folder) -> tf.lite.Interpreter:
    """The model in LiteRT's own operations: with others the conversion fails."""
    imports, _, rest = INTERPRET.partition("\n")  # TensorFlow has what ai_edge_litert has
    assert imports.startswith(
        "from ai_edge_litert.interpreter import Interpreter, OpResolverType"
    )
    names = {
        "Interpreter": tf.lite.Interpreter,
        "OpResolverType": tf.lite.experimental.OpResolverType,
        "ids": np.array([[5, EOS_ID]], np.int32),
    }
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to another package
        exec(CONVERT, names)
        exec(rest, names)
    assert set(names["answer"]) == {"tokens", "score", "num_tokens", "source_cut"}
    return names["interpreter"]


@pytest.mark.parametrize("rows", [slice(0, 0), slice(1), slice(None)])
def test_litert_gives_what_tensorflow_gives(lite, ids_session, translator, trained_run, rows):
    texts = ["", *trained_run.lines("train.en")[:6], "word " * 60]
    ids = source_ids(translator, texts)[rows]
    found = lite.get_signature_runner("tokens")(tokens=ids)
    for name, expected in ids_session.run("tokens", {"tokens": ids}).items():
        if name == "score":
            np.testing.assert_allclose(found[name], expected, atol=1e-4)
        else:
            assert found[name].tolist() == expected.tolist()


def test_it_has_the_one_signature_and_nothing_of_text(text_free, ids_session):
    assert set(ids_session.signatures) == {"tokens"}
    operations = {node.op for node in graph_nodes(text_free)}
    assert "While" in operations  # so these are the nodes that do the work
    assert not [op for op in operations if "Sentencepiece" in op or "Ragged" in op]


def test_beside_it_are_its_tokenizer_and_what_its_ids_mean(text_free, translator):
    assert (text_free / TOKENIZER).read_bytes() == translator.tokenizer.model_bytes
    vocabulary = json.loads((text_free / CARD).read_text("utf-8"))["vocabulary"]
    assert vocabulary["size"] == translator.model.vocab_size
    assert vocabulary["ids"] == {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}


def test_its_warm_up_asks_for_ids_alone(text_free):
    found = records(text_free)
    assert len(found) == 2
    assert all(b"tokens" in record and b"text" not in record for record in found)


def test_its_self_test_overlooks_nothing(ids_session, translator):
    assert all(agree(*each[2:]) for each in comparisons(ids_session, translator, text=False))
    found = list(comparisons(Tampered(ids_session), translator, text=False))
    outputs = {f"tokens: {name}" for name in ids_session.signature("tokens").outputs}
    assert {what for what, _, *values in found if not agree(*values)} == outputs


def test_the_command_exports_it_and_serve_says_that_it_takes_no_text(
    trained_run, tmp_path, capsys
):
    export = ["export", str(trained_run.path), "--no-text", "--output", str(tmp_path / "ids")]
    assert main(export) == 0
    assert (tmp_path / "ids" / "1" / TOKENIZER).is_file()
    assert main(["serve", str(tmp_path / "ids"), "--port", "0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: `serve` needs a model that takes text. Received: ")
    assert error.count("\n") == 1
