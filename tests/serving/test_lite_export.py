"""An export for LiteRT: its file, its card, and the loop of the example."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.errors import UserError
from tf_transformer.serving.versions import find_export

EXAMPLE = Path(__file__).parents[2] / "examples" / "litert" / "translator.py"


def test_the_example_translates_greedily_what_the_command_exports(trained_run, tmp_path):
    output = tmp_path / "phone"
    export = ["export", str(trained_run.path), "--format", "litert", "--output", str(output)]
    assert main(export) == 0
    folder = output / "1"
    names = {"model.tflite", "model_card.json", "tokenizer.model"}
    assert {file.name for file in folder.iterdir()} == names
    card = json.loads((folder / "model_card.json").read_text("utf-8"))
    right, _, of = card["translated_as_in_float32"].split()[:3]
    assert right == of and card["precision"] == "float32"

    texts = trained_run.lines("train.en")[:12]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(folder)],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    expected = load(trained_run.path).translate(texts, beam_size=1)
    assert done.stdout.splitlines() == [str(each) for each in expected]
    with pytest.raises(UserError, match="must be a SavedModel. Received: an export for LiteRT"):
        find_export(folder.parent)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite"}, "`format` must be savedmodel or litert. Received: 'tflite'"),
        ({"format": "litert", "gate": object()}, "LiteRT takes a single model, and no gate"),
    ],
)
def test_python_refuses_what_a_format_cannot_hold(trained_run, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        load(trained_run.path).export(tmp_path / "model", **options)
    with pytest.raises(UserError, match="`threads` must be"):
        load(trained_run.path, precision="int8", threads=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "int8"], "--format savedmodel must have --precision float32 or bfl"),
        (["--format", "litert", "--precision", "bfloat16"], "float32 or int8. Received: bflo"),
        (["--format", "litert", "--no-text"], "--no-text is for a SavedModel. Received: --fo"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(trained_run, tmp_path, capsys, options, message):
    output = tmp_path / "phone"
    assert main(["export", str(trained_run.path), "--output", str(output), *options]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not output.exists()
