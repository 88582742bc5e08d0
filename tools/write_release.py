"""`python -m tools.write_release`: writes tests/written_by_VERSION.tar.xz for later ones.

It holds what the version writes, and what it made of it: a run, a `.keras` file and exports
of a model of one layer, and answers.json, as tests/test_compatibility.py reads them. Run it at
the commit of a release; files of earlier releases stay as they are.
"""

import json
import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import tf_transformer
from tf_transformer.cli.main import main
from tf_transformer.data import builtin
from tools.storm.lab import set_options

TEXTS = [
    "She hopes that the clever doctor goes to Vienna.",
    "His apple costs 9.99 euros.",
    "Today is November 9, 1972.",
]
SETTINGS = (
    "model.vocab_size=400", "model.d_model=16", "model.d_ff=32", "model.num_heads=2",
    "model.num_layers=1", "model.positions=relative", "model.activation=swiglu",
    "model.norm=rms", "data.slots=0.3", "training.steps=200", "training.warmup_steps=50",
    "training.evaluate_every=100", "training.keep_last=1", "training.average_last=1",
)  # fmt: skip
IDS = {"source_ids": [[5, 6, 7, 8, 3, 0], [9, 10, 11, 12, 13, 3]],
       "target_ids": [[2, 5, 6, 7], [2, 9, 10, 0]]}  # fmt: skip


def write() -> None:
    """Trains and exports in the current folder, and writes answers.json."""
    for split, pairs in (("train", builtin.pairs(300)), ("dev", builtin.pairs(40))):
        for language, lines in zip(builtin.LANGUAGES, zip(*pairs, strict=True), strict=True):
            Path(f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    options = ["--model", "tiny", "--train", "train", "--valid", "dev"]
    options += ["--source", "en", "--target", "de", *set_options(*SETTINGS), "--output", "run"]
    assert main(["train", *options]) == 0
    for output, kind in (("exported", "savedmodel"), ("litert", "litert")):
        export = ["export", "run", "--output", output, "--checkpoint", "best"]
        assert main([*export, "--format", kind]) == 0
    translator = tf_transformer.load("run")
    translator.model.save("model.keras")
    ids = {side: np.array(IDS[f"{side}_ids"], np.int32) for side in ("source", "target")}
    found = translator.translate(TEXTS)
    answers = {
        "options": options, "texts": TEXTS, "translations": [*map(str, found)],
        "scores": [each.score for each in found], **IDS,
        "greedy": [*map(str, translator.translate(TEXTS, beam_size=1, protect="none"))],
        "logits": np.asarray(translator.model(ids)).round(5).tolist(),
    }  # fmt: skip
    Path("answers.json").write_text(json.dumps(answers), "utf-8")


if __name__ == "__main__":
    name = f"written_by_{tf_transformer.__version__}.tar.xz"
    archive = Path(__file__).resolve().parents[1] / "tests" / name
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write()
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(".", "", filter=lambda each: None if ".lock" in each.name else each)
    print(archive)
