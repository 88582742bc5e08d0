"""The Markdown card of a run."""

import hashlib
import re
import shlex
import shutil

import numpy as np
import pytest
from command_line import train_options

from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError
from tf_transformer.base.output import MARKDOWN, joined
from tf_transformer.cli.options import config_of
from tf_transformer.config.presets import RECIPES, TABLE3, preset, recipe, train_command
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.reports.cost import Lengths, training_flops
from tf_transformer.reports.run_card import (
    _search,
    additions,
    changed_text,
    departures,
    try_to_write_card,
    write_run_card,
)
from tf_transformer.run import Run
from tf_transformer.run.run import best_record


@pytest.fixture
def run(trained_run, tmp_path) -> Run:
    """A copy of the trained run, for tests that change it."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))


def card_of(run, sustained_tflops=None) -> str:
    """Returns the card, with cells of tables that are not padded."""
    return re.sub(" +", " ", joined(write_run_card(run, sustained_tflops), MARKDOWN))


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
        "1 + 1 layers, d_model 64, d_ff 128",
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
    for expected in (
        "| model.d_model | 64 | 512 | 3.1 |",
        "| model.dropout | 0.05 | 0.1 | 5.4 |",
        "| training.batch_tokens | 1,024 | 25,000 | 5.1 |",
        "| data.max_ratio | 4.0 | | |",
        "| data.normalization | identity | | |",
        "| data.character_coverage | 1.0 | | |",
    ):
        assert expected in text, expected
    assert "| training.beta_2 " not in text


@pytest.mark.parametrize("there", [True, False])
def test_the_normalization_shown_is_that_of_the_tokenizer(run, there):
    """Even if it is not the configured one; None if the tokenizer is missing."""
    run.tokenizer.unlink()
    if there:
        options = {"kind": "bpe", "normalization": "nmt_nfkc"}
        train_tokenizer(["a b c"] * 9, run.tokenizer, vocab_size=266, **options)
    assert f"| data.normalization | {'nmt_nfkc' if there else None} | | |" in card_of(run)


def test_text_that_has_changed_since_the_last_session_is_named(run):
    assert "Since the last session" not in card_of(run)
    run.text_hashes["train"] = "another hash"
    assert "\nSince the last session, the training text has changed.\n" in card_of(run)


def test_text_that_changed_since_training_is_named(trained_run, run, tmp_path):
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        shutil.copy(trained_run.corpus / name, tmp_path)
    moved = {"data.train": [str(tmp_path / "train")], "data.valid": [str(tmp_path / "dev")]}
    run.config = run.config.replace(moved)
    assert changed_text(run) == []
    with (tmp_path / "dev.en").open("a") as file:
        file.write("one more line\n")
    assert changed_text(run) == ["valid"]
    (tmp_path / "train.en").write_text("another text\n")
    assert changed_text(run) == ["train", "valid"]
    (tmp_path / "train.en").unlink()  # `data_files` says so
    assert changed_text(run) == ["valid"]


@pytest.mark.parametrize(("best_by", "best"), [("bleu", max), ("perplexity", min)])
def test_the_best_record_depends_on_best_by(run, best_by, best):
    records = run.history()
    for record, perplexity in zip(records, (2.0, 1.0, 3.0), strict=True):
        record["valid_perplexity"] = perplexity
    run.write_history(records)
    run.config = run.config.replace({"training.best_by": best_by})
    name = f"valid_{best_by}"
    assert best_record(run)[name] == best(record[name] for record in records)
    assert "tok:13a" in best_record(run)["bleu_signature"]


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
    assert re.search(r"\n\| 80 \| [\d,]+ \| \d+ \| \d.* \|\n", card_of(run))
    assert f" | {epoch * tokens / target.sum():.2e} |\n\nOn 1 device. " in card_of(run)


def test_the_cost_counts_all_devices(run):
    state = run.checkpoints.latest_state()
    with np.load(state) as archive:
        arrays = dict(archive)
    np.savez(state, **arrays | {"progress/replicas": np.asarray(4)})
    assert "\nOn 4 devices. " in card_of(run)
    (flops,) = re.findall(r"x 9.5 TFLOP/s: (\S+)", card_of(run, 9.5))
    seconds = sum(record["train_seconds"] for record in run.history())
    assert flops == f"{4 * seconds * 9.5e12:.2e}"


def test_a_card_can_be_written_without_the_data(run):
    shutil.rmtree(run.data)
    write_run_card(run, 9.5)
    text = (run.path / "card.md").read_text("utf-8")
    assert " unknown |" in text and f"FLOPs are unknown: {run.data}/train is not a" in text
    assert "time x devices x 9.5 TFLOP/s" in text


def test_a_damaged_checkpoint_is_named_in_the_card(run):
    with run.checkpoints.best.open("r+b") as file:
        file.seek(5_000)
        file.write(b"damage")
    text = card_of(run)
    assert "\n- best.npz is damaged\n- average.npz: the average of" in text


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
        write_run_card(run)
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
    config = preset("base").replace(
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
    back = preset("base").replace({"model.decoder_layers": 2})
    assert configured(train_command(back)) == back


def test_the_command_of_a_preset_is_short():
    assert train_command(preset("big")) == "tf-transformer train --model big"


def test_a_recorded_score_lists_options_that_change_translations():
    decoding = {"beam_size": 4, "alpha": 0.6}
    plain = {"checkpoint": "best", "precision": "float32", "litert": False, "ensemble": []}
    plain |= {"tag": None, "decoding": decoding}
    assert _search(plain) == ["best", "beam 4", "alpha 0.6"]
    changed = plain | {"precision": "int8", "litert": True, "ensemble": ["b"], "tag": "<2de>"}
    assert _search(changed)[3:] == ["int8", "LiteRT", "with b", "tag <2de>"]


def test_the_command_of_a_run_that_began_from_another_gives_what_that_run_would_change(run):
    settings = {"training.init_from": str(run.path)}
    words = ["data.subword_sampling=0.1"]  # not so in the run
    config = configure("tiny", settings=settings, overrides=words)
    assert configured(train_command(config)) == config


# --- Departures from the paper -------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_of_the_recipes_only_the_papers_has_no_departures(name):
    assert (departures(preset("base").replace(recipe(name))) == {}) == (name == "paper")


@pytest.mark.parametrize("row", TABLE3)
def test_no_row_of_table_3_departs_from_the_paper(row):
    assert departures(preset(row)) == {}


def test_big_is_compared_with_the_steps_and_dropout_of_big():
    config = preset("big").replace({"training.steps": 100_000, "model.dropout": 0.1})
    assert departures(config) == {
        "training.steps": (100_000, 300_000, "5.2"),
        "model.dropout": (0.1, 0.3, "5.4"),
    }


def test_unset_head_sizes_count_as_their_effective_values():
    assert departures(preset("base").replace({"model.key_dim": 64})) == {}
    narrow = preset("base").replace({"model.key_dim": 32})
    assert departures(narrow) == {"model.key_dim": (32, 64, "3.2.2")}


def test_a_decoder_of_another_depth_is_a_departure():
    config = preset("base").replace({"model.decoder_layers": 1})
    assert departures(config) == {"model.decoder_layers": (1, 6, "3.1")}
    assert "model.decoder_layers" not in additions(config)


def test_settings_that_the_paper_lacks_are_listed_separately():
    config = preset("base").replace(
        {
            "training.precision": "mixed_bfloat16",
            "training.max_tokens_per_device": 4096,
            "data.train": ["x"],
            "training.seed": 7,
        }
    )
    assert departures(config) == {}
    assert additions(config) == {
        "training.precision": "mixed_bfloat16",
        "training.max_tokens_per_device": 4096,
        "data.max_length": 256,
        "data.max_ratio": 4.0,
        "data.normalization": None,
        "data.character_coverage": 1.0,
    }
    told = {"data.normalization": "nfkc", "data.character_coverage": 0.99}
    assert additions(config, told) == additions(config) | told
