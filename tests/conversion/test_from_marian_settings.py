"""Settings of a Marian checkpoint: those that are converted, and those that are refused."""

import json
import re

import pytest
from marian_folder import change_json

from tf_transformer.config import DecodingConfig
from tf_transformer.conversion.from_marian import from_marian
from tf_transformer.errors import UserError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "bart"),
        ("scale_embedding", False),
        ("normalize_embedding", True),
        ("normalize_before", True),
        ("static_position_embeddings", False),
        ("share_encoder_decoder_embeddings", False),
        ("tie_word_embeddings", False),
        ("encoder_attention_heads", 2),
        ("encoder_ffn_dim", 8),
        ("activation_function", "gelu"),
        ("activation_function", ["swish"]),
        ("decoder_start_token_id", 0),
        ("decoder_vocab_size", 7),
        ("d_model", None),
        ("dropout", "x"),
        ("dropout", 1.5),
    ],
)
def test_other_architectures_are_refused_by_setting(checkpoint, assert_refused, name, value):
    change_json(checkpoint / "config.json", {name: value})
    assert_refused(f"{name}` .*Received: ")


def test_missing_values_have_the_defaults_of_transformers(checkpoint, tmp_path):
    file = checkpoint / "config.json"
    record = json.loads(file.read_text())
    del record["normalize_before"], record["share_encoder_decoder_embeddings"]
    file.write_text(json.dumps(record))
    assert from_marian(checkpoint, tmp_path / "run").config.model.attention_bias
    del record["scale_embedding"]
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match="`scale_embedding` .*nothing, which means False"):
        from_marian(checkpoint, tmp_path / "another")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "config.json cannot be read: No such file.* huggingface.co"),
        ("config.json", b"{", "config.json is not valid JSON"),
        ("vocab.json", b"[]", "must hold a JSON object. Received: list"),
        ("vocab.json", b'{"<pad>": 0}', "vocab.json must have .*Received"),
        ("source.spm", None, "source.spm cannot be read: No such file"),
        ("target.spm", b"no model", "target.spm is not a SentencePiece model"),
        ("model.safetensors", b"no tensors", "model.safetensors cannot be read"),
        ("model.safetensors", None, "has no weights. Expected model.safetensors or"),
        ("generation_config.json", b'{"bad_words_ids": [[3]]}', "`bad_words_ids` must be"),
    ],
)
def test_a_damaged_folder_is_refused(checkpoint, assert_refused, name, content, message):
    (checkpoint / name).unlink()
    if content is not None:
        (checkpoint / name).write_bytes(content)
    assert_refused(message)


def test_search_settings_and_nulls_are_converted(checkpoint, tmp_path):
    """The minimum of transformers counts the start and not the end; ours, the reverse."""
    lengths = {"min_length": 7, "max_length": 12, "no_repeat_ngram_size": 3}
    neutral = {"do_sample": False, "repetition_penalty": 1.0, "suppress_tokens": []}
    nulls = dict.fromkeys(["num_beams", "length_penalty", "forced_bos_token_id"])
    change_json(checkpoint / "generation_config.json", lengths | neutral | nulls)
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
def test_unsupported_search_settings_are_refused_by_name(
    checkpoint, assert_refused, name, value
):
    change_json(checkpoint / "generation_config.json", {name: value})
    received = re.escape(repr(value))
    assert_refused(f"`{name}` must be .*Received: {received}\\.")
