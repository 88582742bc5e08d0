"""train.py on corpora of several forms: what it prints, refuses, and resumes bit for bit."""

import gzip
from pathlib import Path

import pytest
from command_line import assert_refused, run_here

from tf_transformer.data import builtin
from tf_transformer.run.checkpoints import CheckpointFolder
from tools.storm.stops import arrays

STEPS = 8
SETTINGS = (
    "model.vocab_size=400",
    "model.num_layers=1",
    "model.d_model=16",
    "model.d_ff=16",
    "model.num_heads=2",
    f"training.steps={STEPS}",
    "training.batch_tokens=256",
    f"training.evaluate_every={STEPS}",
    "decoding.beam_size=1",
    "decoding.max_extra_length=1",
)


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> list[str]:
    """160 pairs in a table, 40 as two files, and weights that turn this round."""
    folder, pairs = tmp_path_factory.mktemp("corpora"), builtin.pairs(220)
    table = "".join(f"{english}\t{german}\n" for english, german in pairs[:160])
    (folder / "one.tsv.gz").write_bytes(gzip.compress(table.encode()))
    for name, part in (("two", pairs[160:200]), ("dev", pairs[200:])):
        for language, lines in zip(builtin.LANGUAGES, zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    words = ["--train", str(folder / "one.tsv.gz"), "--train", str(folder / "two")]
    words += [
        "--mix",
        "1:4",
        "--valid",
        str(folder / "dev"),
        "--source",
        "en",
        "--target",
        "de",
    ]
    return words + [word for setting in SETTINGS for word in ("--set", setting)]


def last_state(run: Path) -> dict[str, bytes]:
    return arrays(CheckpointFolder(run / "checkpoints").state_path(STEPS))


def test_a_run_on_mixed_corpora_resumes_bit_for_bit(options, tmp_path):
    whole, parts = (["train", *options, "--output", str(tmp_path / name)] for name in "ab")
    printed = run_here(whole).stdout
    assert "mix: " in printed and "one.tsv.gz 20.0%" in printed
    for _ in range(3):
        done = run_here([*parts, "--stop-after", "3 steps"])
        assert done.returncode == 0, done.stderr
    assert "going on from step 6" in done.stdout
    assert last_state(tmp_path / "b") == last_state(tmp_path / "a")


def test_a_mix_of_another_number_is_refused(options, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = ["train", *options, "--mix", "1:4:1", "--output", "run"]
    assert_refused(capsys, wrong, "one for each of the 2 --train. Received: '1:4:1'", status=1)
