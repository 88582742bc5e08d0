"""Conversion of a Marian checkpoint's search settings."""

from typing import Any

from tf_transformer.config import MAX_TOKENS, SETTINGS, DecodingConfig
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.errors import UserError, quoted

# Options of transformers' search that ours lacks, each with the value that disables it.
_NEUTRAL = {
    "do_sample": False,
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "guidance_scale": 1,
    "penalty_alpha": 0,
    "min_new_tokens": 0,
    "max_new_tokens": None,
    "forced_bos_token_id": None,
    "forced_decoder_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "constraints": None,
    "force_words_ids": None,
    "exponential_decay_length_penalty": None,
}


def search_settings(record: dict[str, Any], search: dict[str, Any]) -> dict[str, Any]:
    """Returns the search settings of a checkpoint as settings of `decoding`.

    The checkpoint's length penalty divides by length ** alpha, ours by
    ((5 + length) / 6) ** alpha. Its `max_length` counts BOS, ours does not. Its `min_length`
    counts BOS but not EOS, ours EOS but not BOS, so the number stays the same.

    Args:
        record: content of config.json.
        search: search settings from config.json and generation_config.json.

    Raises:
        UserError: if our search lacks one of the settings.
    """
    _check_search(record, search)
    longest = record["max_position_embeddings"]
    max_length = _number(search, "max_length", longest, Bounds(low=2, high=MAX_TOKENS))
    return {
        "decoding.beam_size": _setting(search, "num_beams", "beam_size"),
        "decoding.alpha": _setting(search, "length_penalty", "alpha", 1.0),
        "decoding.max_source_length": longest,
        "decoding.max_length": max_length - 1,
        "decoding.min_length": _number(
            search, "min_length", 0, Bounds(low=0, high=max_length - 1)
        ),
        "decoding.no_repeat_ngram": _setting(search, "no_repeat_ngram_size", "no_repeat_ngram"),
    }


def _check_search(record: dict[str, Any], search: dict[str, Any]) -> None:
    """Raises UserError for rules that our search lacks."""
    banned = search.get("bad_words_ids", [])
    if banned not in ([], [[record["pad_token_id"]]]):
        raise UserError(
            "`bad_words_ids` must be only padding: the search cannot forbid other tokens. "
            f"Received: {quoted(banned)}."
        )
    end = record["eos_token_id"]
    if search.get("forced_eos_token_id", end) not in (end, [end]):
        raise UserError(
            f"`forced_eos_token_id` must be `eos_token_id`, {end}: the search ends with no "
            f"other token. Received: {quoted(search['forced_eos_token_id'])}."
        )
    for name, neutral in _NEUTRAL.items():
        if search.get(name, neutral) not in (neutral, []):
            raise UserError(
                f"`{name}` must be {neutral!r} or absent: the search has no such rule. "
                f"Received: {quoted(search[name])}."
            )


def _setting(
    search: dict[str, Any], name: str, ours: str, default: float | None = None
) -> float:
    """Returns a number within the bounds of our setting, by default that setting's default."""
    default = getattr(DecodingConfig, ours) if default is None else default
    return _number(search, name, default, SETTINGS[f"decoding.{ours}"].bounds)


def _number(search: dict[str, Any], name: str, default: float, bounds: Bounds | None) -> float:
    """Returns a number within bounds, of the same type as its default."""
    return Setting(type(default), bounds).check(name, search.get(name, default))
