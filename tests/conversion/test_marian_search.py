"""The search of a Marian checkpoint: what ours takes over, what it refuses."""

import re

import pytest
from marian_folder import change_json

from tf_transformer.config import DecodingConfig
from tf_transformer.conversion.from_marian import from_marian


def test_lengths_repetitions_and_nulls_of_the_checkpoint(checkpoint, tmp_path):
    """Of a minimum of 7, start and no end, transformers' end is the 7th of our tokens."""
    wishes = {"min_length": 7, "max_length": 12, "no_repeat_ngram_size": 3}
    neutral = {"do_sample": False, "repetition_penalty": 1.0, "suppress_tokens": []}
    nulls = dict.fromkeys(["num_beams", "length_penalty", "forced_bos_token_id"])
    change_json(checkpoint / "generation_config.json", wishes | neutral | nulls)
    change_json(checkpoint / "config.json", {"dropout": None, "length_penalty": 0.5})
    config = from_marian(checkpoint, tmp_path / "run").config
    assert config.decoding == DecodingConfig(
        beam_size=4, alpha=0.5, max_source_length=64, max_length=11, min_length=7,
        no_repeat_ngram=3,
    )  # fmt: skip
    assert config.model.dropout == 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_length", 1),
        ("max_length", "40"),
        ("num_beams", 0),
        ("num_beams", 1.5),
        ("num_beams", "4"),
        ("length_penalty", -1),
        ("length_penalty", 10.5),
        ("length_penalty", "x"),
        ("min_length", 40),
        ("no_repeat_ngram_size", -1),
        ("forced_eos_token_id", 1),
        ("forced_bos_token_id", 3),
        ("repetition_penalty", 1.2),
        ("do_sample", True),
        ("num_beam_groups", 2),
        ("max_new_tokens", 5),
        ("suppress_tokens", [4]),
    ],
)
def test_a_search_that_ours_cannot_be_is_refused_by_name(
    checkpoint, assert_refused, name, value
):
    change_json(checkpoint / "generation_config.json", {name: value})
    received = re.escape(repr(value))
    assert_refused(f"`{name}` must be .*Received: {received}\\.")
