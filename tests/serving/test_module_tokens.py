"""Ids in, ids out: the same translations as from text, in TensorFlow and in LiteRT."""

import contextlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import snippets
from test_publish import graph_nodes
from test_warmup import records

from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.export.publish import TOKENIZER
from tf_transformer.export.self_test import agree, check_translator
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.translations import source_ids
from tf_transformer.export.versions import CARD


def test_ids_give_the_same_translation_as_their_text(translator, session, trained_run):
    lines = ["", *trained_run.lines("train.en")[:5]]
    answer = session.run("tokens", {"tokens": source_ids(translator.codec, lines)})
    texts = translator.tokenizer.detokenize(tf.constant(answer["tokens"])).numpy()
    expected = session.run("serving_default", {"text": np.array(lines, object)})
    assert texts.tolist() == expected["translation"].tolist()
    assert answer["score"] == pytest.approx(expected["score"], abs=1e-4)
    assert answer["tokens"].shape[1] == answer["num_tokens"].max()
    for ids, size in zip(answer["tokens"], answer["num_tokens"], strict=True):
        assert ids[size - 1] == EOS_ID
        assert set(ids[size:]) <= {PAD_ID}


def test_ids_after_the_end_of_a_row_are_ignored(translator, session, trained_run):
    ids = source_ids(translator.codec, trained_run.lines("train.en")[:1])
    expected = session.run("tokens", {"tokens": ids})
    for filling in (PAD_ID, EOS_ID, int(ids[0, 0]), -1, 10**9):
        wide = np.pad(ids, [(0, 0), (0, 7)], constant_values=filling)
        found = session.run("tokens", {"tokens": wide})
        assert found["tokens"].tolist() == expected["tokens"].tolist()
    without_end = session.run("tokens", {"tokens": ids[:, :-1]})
    assert without_end["tokens"].tolist() == expected["tokens"].tolist()


def test_ids_outside_the_vocabulary_are_unknown_words(session):
    rows = [[7, -1, EOS_ID], [7, 10**9, EOS_ID], [7, UNK_ID, EOS_ID], [7, BOS_ID, EOS_ID]]
    answer = session.run("tokens", {"tokens": np.array(rows, "int32")})
    tokens = answer["tokens"].tolist()
    assert tokens[0] == tokens[1] == tokens[2]


# --- An export without text --------------------------------------------------------------


@pytest.fixture(scope="module")
def ids_session(text_free):
    with SavedModelSession(text_free) as loaded:
        yield loaded


TRANSLATE, CONVERT, INTERPRET = snippets("docs/guides/exporting.md")


@pytest.fixture(scope="module")
def folder(text_free, tmp_path_factory) -> Path:
    """A working directory in which the export has the same path as in the guide."""
    path = tmp_path_factory.mktemp("guide")
    (path / "exported" / "ids").mkdir(parents=True)
    (path / "exported" / "ids" / "1").symlink_to(text_free)
    return path


def test_an_export_without_text_needs_only_tensorflow_and_sentencepiece(
    folder, translator, trained_run
):
    texts = trained_run.lines("train.en")[:5]
    program = TRANSLATE.replace('["The dog.", "A cat."]', repr(texts))
    program += "import sys; assert not {'tensorflow_text', 'tf_transformer'} & set(sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    expected = translator.translate(texts)
    assert done.stdout.splitlines() == expected


@pytest.fixture(scope="module")
def lite(folder) -> tf.lite.Interpreter:
    """The model in LiteRT's built-in operations; the conversion would fail with any other."""
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
def test_litert_gives_the_same_outputs(lite, ids_session, translator, trained_run, rows):
    texts = ["", *trained_run.lines("train.en")[:6], "word " * 60]
    ids = source_ids(translator.codec, texts)[rows]
    found = lite.get_signature_runner("tokens")(tokens=ids)
    for name, expected in ids_session.run("tokens", {"tokens": ids}).items():
        if name == "score":
            np.testing.assert_allclose(found[name], expected, atol=1e-4)
        else:
            assert found[name].tolist() == expected.tolist()


def test_an_export_without_text_has_one_signature_and_no_text_operations(
    text_free, ids_session
):
    assert set(ids_session.signatures) == {"tokens"}
    operations = {node.op for node in graph_nodes(text_free)}
    assert "While" in operations  # so these are the nodes that do the work
    assert not [op for op in operations if "Sentencepiece" in op or "Ragged" in op]


def test_an_export_without_text_comes_with_its_tokenizer_and_special_ids(text_free, translator):
    assert (text_free / TOKENIZER).read_bytes() == translator.tokenizer.model_bytes
    vocabulary = json.loads((text_free / CARD).read_text("utf-8"))["vocabulary"]
    assert vocabulary["size"] == translator.model.vocab_size
    assert vocabulary["ids"] == {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}


def test_its_warm_up_requests_contain_only_ids(text_free):
    found = records(text_free)
    assert len(found) == 2
    assert all(b"tokens" in record and b"text" not in record for record in found)


def test_its_self_test_compares_every_output(ids_session, translator):
    checks = list(check_translator(ids_session, translator, {}, translator.codec.source_limit))
    assert all(agree(*values) for _, _, *values in checks)
    outputs = {f"tokens: {name}" for name in ids_session.signature("tokens").outputs}
    assert {output for output, *_ in checks} == outputs


def test_serve_refuses_an_export_without_text(text_free, capsys):
    assert main(["serve", str(text_free.parent), "--port", "0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: `serve` needs a model that takes text. Received: ")
    assert error.count("\n") == 1
