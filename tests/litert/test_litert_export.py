"""LiteRT: exports, the programs in examples/litert, and the session of `serve --litert`."""

import importlib.util
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.config import EOS_ID
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import ClosedError, column
from tf_transformer.export.versions import find_export
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.serving.queue import Telemetry
from tf_transformer.serving.served_model import LoadedVersion
from tf_transformer.translation.translator import Translator

EXAMPLE = Path(__file__).parents[2] / "examples" / "litert" / "translator.py"


@pytest.mark.parametrize("sizes", [(), ("--fixed-length", "40", "--beam", "2")])
def test_the_example_translates_with_an_export(trained_run, translator, tmp_path, sizes):
    output = tmp_path / "phone"
    export = ["export", str(trained_run.path), "--format", "litert", "--output", str(output)]
    export += sizes
    assert main(export) == 0
    folder = output / "1"
    names = {"model.tflite", "model_card.json", "tokenizer.model"}
    assert {file.name for file in folder.iterdir()} == names
    card = json.loads((folder / "model_card.json").read_text("utf-8"))
    right, _, of = card["translated_as_in_float32"].split()[:3]
    assert right == of and card["precision"] == "float32"

    texts = trained_run.lines("train.en")[:12]
    texts.append(" ".join(texts))  # longer than any in training
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(folder)],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    expected = translator.translate(texts, beam_size=1)
    found = done.stdout.splitlines()
    compared = 12 if sizes else 13  # with shapes for 40 tokens the last source is cut
    assert (found[:compared], len(found)) == (expected[:compared], 13)
    longest = card["longest_source"]
    assert f"line 13: longer than any in training, {longest} tokens" in done.stderr
    assert "line 12:" not in done.stderr
    assert find_export(folder.parent) == folder


@pytest.fixture(scope="module")
def fixed_export(trained_run, tmp_path_factory) -> Path:
    """An export for sources of at most 40 tokens, whose cache has room for 50 more."""
    base = tmp_path_factory.mktemp("fixed")
    arguments = ["--format", "litert", "--fixed-length", "40", "--beam", "1"]
    assert main(["export", str(trained_run.path), "--output", str(base), *arguments]) == 0
    return base / "1"


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_fixed_length_fixes_all_sizes(fixed_export):
    card = json.loads((fixed_export / "model_card.json").read_text("utf-8"))
    assert card["sizes"]["max_source_tokens"] == 40
    assert card["translated_as_in_float32"] == "9 of 9 texts"
    interpreter = tf.lite.Interpreter(str(fixed_export / "model.tflite"))
    inputs = interpreter.get_signature_runner("step").get_input_details()
    sizes = {name: tuple(details["shape_signature"]) for name, details in inputs.items()}
    assert {details["dtype"] for details in inputs.values()} == {np.int32, np.float32}
    cached = (1, 1, 4, 90, 16)
    assert sizes == {
        "tokens": (1, 1), "position": (1,), "ancestry": (1, 1, 91), "past_keys": cached,
        "past_values": cached, "memory_keys": (1, 1, 4, 40, 16),
        "memory_values": (1, 1, 4, 40, 16), "memory_mask": (1, 1, 1, 40),
    }  # fmt: skip


def test_the_example_in_cpp_gives_the_same_translations(
    fixed_export, translator, trained_run, tmp_path
):
    package = importlib.util.find_spec("ai_edge_litert")
    if not shutil.which("g++") or not package:
        pytest.skip("needs g++ and ai-edge-litert")
    folder = package.submodule_search_locations[0]
    command = ["g++", "-std=c++17", "-Wall", str(EXAMPLE.with_name("greedy.cc"))]
    command += ["-o", str(tmp_path / "greedy"), f"-L{folder}", "-lLiteRt"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}"], check=True, timeout=300)
    texts = [*trained_run.lines("train.en")[:12], ""]
    tokenizer = sentencepiece.SentencePieceProcessor(
        model_file=str(fixed_export / "tokenizer.model")
    )
    rows = [[*tokenizer.encode(text), EOS_ID] if text else [] for text in texts]
    done = subprocess.run(
        [str(tmp_path / "greedy"), str(fixed_export / "model.tflite"), "50"],
        input="".join(" ".join(map(str, row)) + "\n" for row in rows),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    printed = [[int(token) for token in line.split()] for line in done.stdout.splitlines()]
    expected = translator.translate(texts, beam_size=1)
    assert [tokenizer.decode(row[:-1]) for row in printed] == expected
    assert [row[-1:] for row in printed] == [[EOS_ID]] * 12 + [[]]


@pytest.mark.parametrize("door", ["python", "command"])
def test_an_export_shows_its_progress_on_a_terminal(
    door, translator, trained_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    terminal.isatty = lambda: True
    if door == "python":
        translator.export(tmp_path, format="litert", beam_size=1)
    else:
        line = f"export {trained_run.path} --format litert --beam 1 --output {tmp_path}"
        assert main(line.split()) == 0
    shown = terminal.getvalue()
    for text in ("signatures traced: 0/2 |", "files converted: 0/1 |", "answers compared: 0/"):
        assert text in shown


def test_the_page_in_a_browser_gives_the_same_translations(trained_run, translator, tmp_path):
    page = EXAMPLE.with_name("web") / "build"
    if not page.exists() or not shutil.which("chromium"):
        pytest.skip("needs chromium, and `npm install && npm run build` in examples/litert/web")
    export = ["export", str(trained_run.path), "--format", "litert", "--output", str(tmp_path)]
    assert main([*export, "--fixed-length", "40"]) == 0
    shutil.rmtree(page / "model", ignore_errors=True)
    shutil.copytree(tmp_path / "1", page / "model")
    texts = [*trained_run.lines("train.en")[:12], "", "  naïve ﬁne 😀 "]
    done = subprocess.run(
        ["node", "check.js"], cwd=page.parent, input="\n".join(texts), capture_output=True,
        text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == translator.translate(texts)


def test_export_refuses_options_of_another_format(translator, trained_run, tmp_path):
    for options, message in (
        ({"fixed_length": 40}, "`fixed_length` needs `format='litert'`"),
        ({"format": "tflite"}, "`format` must be savedmodel or litert. Received: 'tflite'"),
        ({"format": "litert", "gate": object()}, "`format='litert'` excludes `gate`"),
    ):
        with pytest.raises(UserError, match=message):
            translator.export(tmp_path / "model", **options)


@pytest.fixture(scope="module", params=["LiteRT", "TensorFlow"])
def version(request, translator, exported):
    """A version of which an engine searches beside the export."""
    engine = GraphEngine(translator.model, translator.tokenizer, longest_trained=1)
    if request.param == "LiteRT":
        lite = InterpreterPool(lite_file(translator.model, "float32"), threads=1)
        engine = LiteEngine.beside(engine, lite)
    searching = Translator(engine=engine, decoding=translator.decoding)
    version = LoadedVersion(exported, Telemetry(), translator=searching)
    yield version
    version.close()


@pytest.mark.parametrize("rows", [slice(0, 0), slice(1), slice(None)])
@pytest.mark.parametrize("signature", ["serving_default", "nbest"])
def test_an_engine_gives_the_same_answers(
    version, session, trained_run, signature, rows, caplog
):
    texts = ["", *trained_run.lines("train.en")[:4], "Füße \udcff", "word " * 1_200][rows]
    text = {"text": column(texts)}
    found, expected = version.run(signature, text), session.run(signature, text)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and len(found[name]) == len(texts)
        if name in ("score", "scores"):
            np.testing.assert_allclose(found[name], values, atol=1e-4)
        else:
            assert found[name].tolist() == values.tolist()
    assert "longer than any" not in caplog.text


def test_an_engine_cancels_and_forwards_requests(version, session, trained_run):
    text = column(trained_run.lines("train.en"))
    with pytest.raises(TimeoutError, match="took more than 0.001 s"):
        version.run("nbest", {"text": text}, timeout=0.001)
    pair = {"source": text[:2], "target": text[2:4]}
    found, expected = version.run("score", pair), session.run("score", pair)
    assert found["log_prob"].tolist() == expected["log_prob"].tolist()
    version.close()
    for signature, inputs in (("serving_default", {"text": text}), ("score", pair)):
        with pytest.raises(ClosedError):
            version.run(signature, inputs)
    assert version.translator.translate("A dog.")  # for the next version
