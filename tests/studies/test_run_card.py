"""The Markdown card of a run."""

import hashlib
import re
import shlex
import shutil

import numpy as np
import pytest
from command_line import train_options

from tf_transformer.api.train import configure
from tf_transformer.cli.training_options import config_of
from tf_transformer.config.presets import preset, train_command
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.errors import UserError
from tf_transformer.output import MARKDOWN, joined
from tf_transformer.run import Run
from tf_transformer.studies.cost import Lengths, training_flops
from tf_transformer.studies.run_card import (
    _options,
    try_to_write_card,
    write_card,
)


@pytest.fixture
def run(trained_run, tmp_path) -> Run:
    """A copy of the trained run, for tests that change it."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))


def card_of(run, sustained_tflops=None) -> str:
    """Returns the card, with cells of tables that are not padded."""
    return re.sub(
        r" +\|",
        " |",
        re.sub(r"\| +", "| ", joined(write_card(run, sustained_tflops), MARKDOWN)),
    )


def configured(command):
    """Returns the configuration for a command `python train.py ...`."""
    return config_of(train_options(shlex.split(command)[2:]))


def test_a_card_tells_everything(trained_run):
    run = Run.open(trained_run.path)
    text = card_of(run)
    digest = hashlib.sha256((trained_run.corpus / "train.en").read_bytes()).hexdigest()
    best = max(run.history(), key=lambda record: record["valid_bleu"])
    for part in (
        "# run\n",
        "1 layers, d_model 64, d_ff 128",
        "en to de",
        f"{trained_run.corpus}/train.en | 300 | {digest}",
        f"{best['valid_bleu']:.2f} at step {best['step']}",
        "|tok:13a|",
        "- best.npz: the ",
        "- average.npz: the average of the last 2 checkpoints: ",
        "Table 2, English-German, counted in this way: base 3.3e+18",
        "tensorflow 2.",
        "tf-transformer train --model tiny",
    ):
        assert part in text, part
    assert "model.norm_first" not in text.partition("## Command")[0]
    departures = [line.split() for line in text.splitlines()]
    for expected in (
        ["model.d_model", "64", "paper", "512", "(3.1)"],
        ["model.dropout", "0.05", "paper", "0.1", "(5.4)"],
        ["training.batch_tokens", "1,024", "paper", "25,000", "(5.1)"],
        ["data.max_ratio", "4.0"],
        ["data.normalization", "identity"],
        ["data.character_coverage", "1.0"],
    ):
        assert expected in departures
    assert not [line for line in departures if line[:1] == ["training.beta_2"]]


@pytest.mark.parametrize("there", [True, False])
def test_the_normalization_shown_is_that_of_the_tokenizer(run, there):
    """Even if it is not the configured one; None if the tokenizer is missing."""
    run.tokenizer.unlink()
    if there:
        options = {"kind": "bpe", "normalization": "nmt_nfkc"}
        train_tokenizer(["a b c"] * 9, run.tokenizer, vocab_size=266, **options)
    expected = ["data.normalization", "nmt_nfkc" if there else "None"]
    assert expected in [line.split() for line in card_of(run).splitlines()]


def test_text_that_has_changed_since_the_last_session_is_named(run):
    assert "Since the last session" not in card_of(run)
    run.texts["train"] = "another hash"
    assert "\nSince the last session, the training text has changed.\n" in card_of(run)


def test_the_card_of_an_unfinished_run_says_how_far_it_is(run):
    assert "Trained for 240 updates of" in card_of(run)
    run.write_history(run.history()[:-1])
    assert "Trained for 160 of 240 updates of" in card_of(run)


def test_the_cost_follows_from_the_data_and_the_model(trained_run):
    run = Run.open(trained_run.path)
    source, target = (
        np.load(run.data / "train" / f"{side}_lengths.npy") for side in ("source", "target")
    )
    epoch = training_flops(run.config.model, Lengths.of(source, target))
    tokens = sum(r["train_seconds"] * r["tokens_per_second"] for r in run.history())
    assert f"counted from the model: {epoch * tokens / target.sum():.2e}," in card_of(run)
    assert "s on 1 device\n" in card_of(run)
    assert card_of(run).count("\n| 80 | ") == 1


def test_the_cost_counts_all_devices(run):
    state = run.checkpoints.latest_state()
    with np.load(state) as archive:
        arrays = dict(archive)
    np.savez(state, **arrays | {"progress/replicas": np.asarray(4)})
    assert "s on 4 devices\n" in card_of(run)
    (seconds,) = re.findall(r"([\d,]+) s on 4 device", card_of(run))
    (flops,) = re.findall(r"x 9.5 TFLOP/s: (\S+)", card_of(run, 9.5))
    seconds = float(seconds.replace(",", ""))
    assert float(flops) == pytest.approx(4 * seconds * 9.5e12, abs=4 * 0.6 * 9.5e12)


def test_a_card_can_be_written_without_the_data(run):
    shutil.rmtree(run.data)
    write_card(run, 9.5)
    text = (run.path / "card.md").read_text("utf-8")
    assert "unknown, the run's data/ is gone" in text
    assert "time x devices x 9.5 TFLOP/s" in text


def test_changes_between_sessions_are_listed_with_their_step(run):
    assert "Changes during training" not in card_of(run)
    run.record_change("training.warmup_steps", 100, 60)
    run.record_change("training text", "0123456789abcdef", "fedcba9876543210")
    text = card_of(run)
    assert "## Changes during training\n" in text
    assert "| 240 | training.warmup_steps | 100 | 60 |\n" in text
    assert "| 240 | training text | 0123456789abcdef | fedcba9876543210 |\n" in text


def test_a_score_on_an_earlier_dev_text_is_not_the_best(run):
    *earlier, last = run.history()
    best = [{**record, "valid_bleu": 99.0, "dev_set": "earlier"} for record in earlier]
    run.write_history([*best, last])
    assert f"best bleu of 1 evaluations: {last['valid_bleu']:.4g} at step 240" in card_of(run)


def test_a_run_without_evaluations_has_no_card(run):
    for name in ("metrics.jsonl", "card.md"):
        (run.path / name).unlink()
    with pytest.raises(UserError, match="has no evaluation yet"):
        write_card(run)
    assert not (run.path / "card.md").exists()


def test_the_printed_command_resumes_the_run(trained_run):
    words = shlex.split(card_of(Run.open(trained_run.path)).rpartition("```")[0])
    assert words[-2:] == ["--output", str(trained_run.path)]
    assert train_options(words[-4:]).output == str(trained_run.path)


def test_a_card_that_cannot_be_written_after_training_is_a_warning(run, caplog):
    run.metrics.write_text("damaged")
    with caplog.at_level("WARNING"):
        try_to_write_card(run)
    assert "no card was written: " in caplog.text
    assert "metrics.jsonl:1: expected a JSON object" in caplog.text


def test_the_printed_command_restores_every_kind_of_value():
    config = preset("table3-C-N2").replace(
        {
            "model.key_dim": 3,
            "model.norm_first": True,
            "training.epsilon": 1e-8,
            "data.train": ["a b/x", "y"],
            "data.source": "en",
        }
    )
    assert configured(train_command(config)) == config
    commas = {"data.train": ["a,b", "c"], "data.tag": ["a=<x>,<y>"]}
    config = config.replace(commas)
    assert configured(train_command(config)) == config
    back = preset("table3-B-dk16").replace({"model.key_dim": None})
    assert configured(train_command(back)) == back


def test_the_command_of_a_preset_is_short():
    assert train_command(preset("big")) == "tf-transformer train --model big"


def test_a_recorded_score_lists_options_that_change_translations():
    plain = {"precision": "float32", "litert": False, "ensemble": [], "tag": None}
    assert _options(plain) == ""
    changed = plain | {"precision": "int8", "ensemble": ["b"], "tag": "<2de>"}
    assert _options(changed) == ", int8, ensemble of 2, tag <2de>"


def test_the_command_of_a_run_that_began_from_another_gives_what_that_run_would_change(run):
    settings = {"training.init_from": str(run.path)}
    words = ["data.subword_sampling=0.1"]  # as in the preset, but not in the run
    config = configure("classification-small", settings=settings, overrides=words)
    assert configured(train_command(config)) == config
