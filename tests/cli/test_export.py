"""`export`: its weights, their precision, and its card."""

import json
import re
import shutil

import numpy as np
import pytest

from tf_transformer.export.card import CARD
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import write_arrays


def mean_of_last_two(run: Run) -> dict[str, np.ndarray]:
    files = run.checkpoints.last(2)
    with np.load(files[0]) as first, np.load(files[1]) as second:
        names = [name for name in first.files if name.startswith("model/")]
        return {name: (first[name] + second[name]) / 2 for name in names}


def test_the_export_serves_the_average(trained_run, exported_in_bfloat16, tmp_path):
    run = Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))
    write_arrays(run.checkpoints.average, mean_of_last_two(run))
    options = {"decoding.beam_size": 2, "decoding.alpha": 0.8}
    decoding = run.config.replace(options).decoding
    translator = load_translator(run, "average", decoding=decoding, precision="bfloat16")
    texts = trained_run.lines("dev.en")[:10]
    with ExportEngine(exported_in_bfloat16) as session:
        answer = session.run("serving_default", {"text": np.array(texts, object)})
    expected = translator.translate(texts)
    assert [text.decode() for text in answer["translation"]] == expected
    assert answer["score"] == pytest.approx([best.score for best in expected], abs=0.05)


def test_export_py_prints_the_path_and_size(exported_in_bfloat16):
    path = exported_in_bfloat16
    printed = (path.parents[1] / "stdout").read_text("utf-8")
    assert re.fullmatch(rf"exported {path} \(\d+\.\d MB\)\n", printed)


def test_bfloat16_takes_two_bytes_per_weight(trained_run, exported_in_bfloat16):
    weights = sum(
        weight.size for weight in mean_of_last_two(Run.open(trained_run.path)).values()
    )
    size = sum(file.stat().st_size for file in (exported_in_bfloat16 / "variables").iterdir())
    assert 2 * weights <= size <= 2 * 1.02 * weights + 20_000


def test_the_card_describes_the_origin_of_the_model(trained_run, exported_in_bfloat16):
    card = json.loads((exported_in_bfloat16 / CARD).read_text("utf-8"))
    run = Run.open(trained_run.path)
    assert card["checkpoint"]["name"] == "average"
    assert card["precision"] == "bfloat16"
    assert (card["decoding"]["beam_size"], card["decoding"]["alpha"]) == (2, 0.8)
    assert card["config"] == json.loads(run.config.to_json())
    best = max(run.history(), key=lambda record: record["valid_bleu"])
    assert card["best_evaluation"]["valid_bleu"] == best["valid_bleu"]
    assert "tok:13a" in card["best_evaluation"]["bleu_signature"]
    assert set(card["data"]) == {
        str(trained_run.corpus / name) for name in ("train.en", "train.de", "dev.en", "dev.de")
    }
    hashes = [*card["data"].values(), card["tokenizer_sha256"], card["checkpoint"]["sha256"]]
    assert len({value for value in hashes if len(value) == 64}) == 6
    assert card["versions"]["tensorflow"].startswith("2.")
