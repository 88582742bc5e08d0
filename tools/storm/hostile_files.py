"""Files and runs that commands cannot use, each broken in a different way."""

import gzip
import json
import random
from pathlib import Path

import numpy as np

from tf_transformer.config.presets import preset

_LINE = "x" * 300_000
_TEXTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 64,
    "latin1": "Brüder\n".encode("latin-1"),
    "nul": b"a\0b\n" * 3,
    "blank": b"\n\n \n",
    "one-line": b"A line.\n",
    "separators": "a\u2028b\x85c\x1cd\n".encode(),
    "long-line": _LINE.encode(),
    "new\nline": b"(S (A b)) stray\n",
    "garbage.gz": b"\x1f\x8b\x08\x00garbage",
    "cut.gz": gzip.compress(b"A line.\n" * 9)[:-9],
    "deep.json": b"[" * 100_000,
    "null.json": b"null",
    "stray.ptb": f"(S (A b)) {_LINE}\n".encode(),
    "full.ptb": f"(S (A b {_LINE}))\n".encode(),
    "deep.ptb": b"(S " * 50_000,
    "open.ptb": b"(S (A b)\n",
    "no-tab.tsv": f"{_LINE}\n".encode(),
    "one-label.tsv": f"{_LINE}\tA sentence.\n".encode(),
    "picture.png": b"no picture",
}
_CONFIGS = {
    "run-empty": "",
    "run-null": "null",
    "run-list": "[]",
    "run-nested": '{"preset": "", "task": "translation", "model": {"d_model": %s}}'
    % ("[" * 500 + "]" * 500),
    "run-digits": '{"preset": "", "task": "translation", "model": {"d_model": %s}}'
    % ("9" * 5_000),
    "run-float": '{"preset": "", "task": "translation", "training": {"clip_norm": %s}}'
    % ("9" * 400),
    "run-huge": '{"preset": "", "task": "translation", "decoding": {"beam_size": 1e30}}',
    "run-nan": '{"preset": "", "task": "translation", "decoding": {"alpha": NaN}}',
    "run-surrogate": '{"preset": "", "task": "translation", "data": {"source": "\\ud800"}}',
    "run-section": '{"preset": "", "task": "translation", "model": 5}',
    "run-field": f'{{"preset": "", "task": "translation", "model": {{"{_LINE}": 5}}}}',
    "run-task": f'{{"preset": "", "task": ["{_LINE}"]}}',
}


def make_files(folder: Path, randomness: random.Random) -> list[str]:
    """Writes files; returns their names."""
    files = _TEXTS | {"random": randomness.randbytes(10_000)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    np.savez(folder / "strings.npz", a=np.array(["a", "b"]))
    (folder / "directory").mkdir()
    return [*files, "strings.npz", "directory"]


def make_broken_runs(folder: Path) -> list[str]:
    """Writes folders that are not valid runs; returns their names."""
    for name, config in _CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(config, "utf-8")
    return [*_CONFIGS]


def make_unfinished_runs(folder: Path) -> list[str]:
    """Writes runs of each task: a valid configuration, and either nothing else or garbage."""
    presets = {"translation": "tiny", "parsing": "parsing-small"}
    presets |= {"classification": "classification-small"}
    names = []
    for task, model in presets.items():
        config = json.loads(preset(model).to_json()) | {"task": task}
        for state in ("begun", "garbage"):
            run = folder / f"{task}-{state}"
            run.mkdir()
            (run / "config.json").write_text(json.dumps(config), "utf-8")
            names.append(run.name)
            if state == "garbage":
                (run / "checkpoints").mkdir()
                own = {"parsing": ["lexicon.json"], "classification": ["labels.json"]}
                files = ["tokenizer.model", "versions.json", "checkpoints/best.npz"]
                for file in files + own.get(task, []):
                    (run / file).write_bytes(_TEXTS["binary"])
    return names
