"""What the claims share: a toy language, a small run trained on it once, and the command line.

Claims use the package as users do: the names of `tf_transformer.__all__`, and its programs in
processes of their own.
"""

import configparser
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {
    "zero": "null", "one": "eins", "two": "zwei", "three": "drei", "four": "vier",
    "five": "fünf", "six": "sechs", "seven": "sieben", "eight": "acht", "nine": "neun",
    "ten": "zehn", "eleven": "elf", "twelve": "zwölf",
}  # fmt: skip


def _program(name: str) -> list[str]:
    """Returns the words that start train.py, export.py or tf-transformer."""
    if name.endswith(".py"):
        return [sys.executable, str(ROOT / name)]
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = dict(
        line.split(" = ")
        for line in setup["options.entry_points"]["console_scripts"].strip().splitlines()
    )
    module, function = scripts[name].split(":")
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


@pytest.fixture(scope="session")
def start():
    """`start("train.py", "--output", ...)` starts a program; returns its `Popen`."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TF_NUM_INTRAOP_THREADS": "2",  # as many on every machine
    }

    def start(program: str, *words: object) -> subprocess.Popen:
        command = [*_program(program), *map(str, words)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, env=environment, text=True, encoding="utf-8", **pipes)

    return start


@pytest.fixture(scope="session")
def run(start):
    """`run("tf-transformer", "translate", RUN, stdin=text)` returns what a program prints."""

    def run(program: str, *words: object, stdin: str = "") -> str:
        with start(program, *words) as process:
            stdout, stderr = process.communicate(stdin)
        assert process.returncode == 0, stderr
        return stdout

    return run


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """A folder of train.en, train.de, dev.en, dev.de: sentences of 1 to 9 number words."""
    folder, rng = tmp_path_factory.mktemp("text"), random.Random(1)
    for split, size in (("train", 400), ("dev", 24)):
        sources = [rng.choices([*WORDS], k=rng.randint(1, 9)) for _ in range(size)]
        targets = [[WORDS[word] for word in words] for words in sources]
        for language, lines in (("en", sources), ("de", targets)):
            content = "".join(" ".join(words) + "\n" for words in lines)
            (folder / f"{split}.{language}").write_text(content, "utf-8")
    return folder


@pytest.fixture(scope="session")
def corpus(text) -> list[str]:
    """Options of train.py: the text, and sizes for seconds."""
    options = ["--train", f"{text}/train", "--valid", f"{text}/dev"]
    options += ["--source", "en", "--target", "de"]
    settings = (
        "model.vocab_size=320", "model.num_layers=1", "model.d_model=64", "model.d_ff=64",
        "model.num_heads=4", "model.dropout=0", "model.norm_first=true",
        "training.batch_tokens=512", "training.warmup_steps=40",
        "training.learning_rate_scale=0.5",
    )  # fmt: skip
    return options + [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="session")
def trained(run, corpus, tmp_path_factory) -> Path:
    """A run directory of a model that has learned to translate; copy it to change it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    settings = ["training.steps=240", "training.evaluate_every=120", "training.average_last=2"]
    more = [word for setting in settings for word in ("--set", setting)]
    run("train.py", *corpus, *more, "--output", folder)
    return folder
