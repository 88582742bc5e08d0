"""Marian checkpoints (OPUS-MT) in Hugging Face's format: to a run, and from one.

One table of settings and one of weights serve both directions. Marian's positional encodings
have all sines before all cosines; ours alternate. Nothing else depends on the order of the D
units between layers, so the conversion permutes them in every weight that reads or writes them,
and the model needs no setting for that.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tf_transformer.base.errors import UserError, missing_extra, quoted
from tf_transformer.base.files import new_folder, parse_json
from tf_transformer.config import BOS_ID, MAX_TOKENS, SETTINGS, Config, DecodingConfig
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.conversion import read_weights, require_possible
from tf_transformer.conversion.marian_vocabulary import (
    BOS,
    EOS,
    PAD,
    MarianVocabulary,
    list_vocabulary,
    merge_vocabulary,
)
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import Arrays, save_weights

logger = logging.getLogger(__name__)

# Values that config.json must have, each with its default in transformers.
_REQUIRED = {
    "model_type": ("marian", None),
    "scale_embedding": (True, False),
    "static_position_embeddings": (True, True),
    "normalize_embedding": (False, False),
    "normalize_before": (False, False),
    "add_final_layer_norm": (False, False),
    "share_encoder_decoder_embeddings": (True, True),
    "tie_word_embeddings": (True, True),
}
# Our sizes of the model by their names in config.json, whose values must be equal.
_SIZES = {
    "d_model": ("d_model",),
    "num_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
}
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
_EPSILON = 1e-5  # PyTorch's layer norm
# Values that Marian's architecture allows.
_POSSIBLE: dict[str, tuple[object, ...]] = {
    "norm_first": (False,),
    "norm": ("layer",),
    "positions": ("sinusoidal",),
    "attention_window": (0,),
    "activation": tuple(dict.fromkeys(_ACTIVATIONS.values())),
    "tie_embeddings": (True,),
}
# Our settings of the search by their names in generation_config.json.
_SEARCH = {
    "beam_size": "num_beams",
    "alpha": "length_penalty",
    "min_length": "min_length",
    "no_repeat_ngram": "no_repeat_ngram_size",
}
# Facts of the run in the config.json of `to_marian`, which transformers ignores.
_OUR_EPSILON, _OUR_ALPHA, _OUR_BIAS = "norm_epsilon", "alpha", "bos_bias"
_SEARCH_DEFAULTS = DecodingConfig(alpha=1.0)  # of what both files lack
# Options of the search in transformers that ours lacks, each with the value that disables it.
_NEUTRAL = {
    "do_sample": False, "repetition_penalty": 1, "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0, "num_beam_groups": 1, "diversity_penalty": 0,
    "guidance_scale": 1, "penalty_alpha": 0, "min_new_tokens": 0, "max_new_tokens": None,
    "forced_bos_token_id": None, "forced_decoder_ids": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "sequence_bias": None, "constraints": None,
    "force_words_ids": None, "exponential_decay_length_penalty": None,
}  # fmt: skip

_TOKENIZER = "tokenizer_config.json"
_SHARED, _BIAS = "model.shared.weight", "final_logits_bias"
# Other names for the same matrix, all optional.
_COPIES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
# A logit that makes a piece impossible without dominating a label-smoothed loss.
_NEVER = -100.0


def from_marian(checkpoint: Path, run: Path) -> Run:
    """Writes a run directory with the weights, vocabulary and search settings of a checkpoint.

    Args:
        checkpoint: a folder with config.json, vocab.json, source.spm, target.spm, and
            model.safetensors or pytorch_model.bin.
        run: the folder to write; it must not exist.

    Raises:
        UserError: if a file is missing or damaged, or the architecture or the search cannot be
            converted. Nothing is written in that case.
    """
    with new_folder(run) as temporary:
        record = _without_nulls(_read_json(checkpoint / "config.json"))
        _check_architecture(record)
        pieces = _read_json(checkpoint / "vocab.json")
        _check_vocabulary(record, pieces)
        own_padding = BOS in pieces and record.get("bos_token_id") == pieces[BOS]
        models = checkpoint / "source.spm", checkpoint / "target.spm"
        vocabulary = merge_vocabulary(pieces, *models, own_padding)
        generation = checkpoint / "generation_config.json"
        search = record | (
            _without_nulls(_read_json(generation)) if generation.exists() else {}
        )
        model_settings = _model_settings(record, len(vocabulary.rows))
        longest = _longest_source(record, checkpoint / _TOKENIZER)
        config = Config().replace(model_settings | _search_settings(record, search, longest))
        model = Transformer(**vars(config.model), name="transformer")
        tensors = read_weights(checkpoint)
        if _OUR_BIAS in record and _POSITIONS[1] not in tensors:
            raise UserError(
                f"{checkpoint} must have {_POSITIONS[1]}, whose first row begins translations. "
                "Received: weights without it, as transformers saves them. Use the folder that "
                "`tf-transformer convert --to marian` wrote."
            )
        assign_weights(model, tensors, vocabulary, record.get(_OUR_BIAS))
        written = Run.create_or_resume(temporary, config)
        written.tokenizer.write_bytes(vocabulary.source_model)
        if vocabulary.target_model != vocabulary.source_model:
            target_model_path(written.tokenizer).write_bytes(vocabulary.target_model)
        save_weights(written.checkpoints.best, model)
        try:
            Tokenizer(Run.open(temporary).tokenizer)  # as any command would
        except UserError as error:
            raise UserError(
                "vocab.json, source.spm and target.spm must together be valid SentencePiece "
                f"models. Received: files whose merged models cannot be opened ({error})"
            ) from None
    return Run.open(run)


def _read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; raises UserError if the file cannot be read or holds no object."""
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. Expected a checkpoint folder as on "
            "huggingface.co: config.json, vocab.json, source.spm, target.spm and "
            "model.safetensors or pytorch_model.bin."
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(f"{path} must hold a JSON object. Received: {type(record).__name__}.")
    return record


def _without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record without its nulls, which mean defaults."""
    return {name: value for name, value in record.items() if value is not None}


def to_marian(
    model: Transformer, tokenizer: Tokenizer, decoding: DecodingConfig, folder: Path
) -> None:
    """Writes a folder that `from_pretrained` of MarianMTModel and MarianTokenizer reads.

    It logs in one line what differs in the search of `transformers`.

    Args:
        model: a trained model.
        tokenizer: the tokenizer it was trained with.
        decoding: settings of the search to write.
        folder: folder to write; it must not exist.

    Raises:
        UserError: if the folder exists or cannot be written, or Marian's format lacks something
            that the model has.
    """
    with new_folder(folder) as temporary:
        try:
            from safetensors.numpy import save
        except ImportError:
            raise missing_extra("A model of Marian", "safetensors", "marian") from None
        _check_model(model, tokenizer)
        ids, vocabulary = list_vocabulary(tokenizer)
        special = {
            "bos_token_id": vocabulary[BOS],
            "eos_token_id": vocabulary[EOS],
            "pad_token_id": vocabulary[PAD],
            "decoder_start_token_id": vocabulary[PAD],
            "forced_eos_token_id": vocabulary[EOS],
        }
        config = _written_config(model, decoding, len(vocabulary)) | special
        records: dict[str, dict[str, Any]] = {
            "config.json": config,
            "generation_config.json": _written_search(decoding, vocabulary) | special,
            "vocab.json": vocabulary,
            _TOKENIZER: {
                "tokenizer_class": "MarianTokenizer",
                "model_max_length": decoding.max_source_length,
                "clean_up_tokenization_spaces": False,
                "separate_vocabs": False,
            },
        }
        models = tokenizer.models
        for name, record in records.items():
            text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            (temporary / name).write_text(text, "utf-8")
        for side in SIDES:
            (temporary / f"{side}.spm").write_bytes(models.get(side, models["source"]))
        tensors = _written_tensors(model, ids, config["max_position_embeddings"])
        weights = save(tensors, metadata={"format": "pt"})
        (temporary / "model.safetensors").write_bytes(weights)
    logger.info("transformers has %s", "; ".join(_differences(model, decoding)))


# --- Settings of the model ----------------------------------------------------------------


def _check_architecture(record: dict[str, Any]) -> None:
    """Raises UserError for an architecture that cannot be converted."""
    for name, (required, default) in _REQUIRED.items():
        _require(record, name, record.get(name, default), required)
    same = *_SIZES.values(), ("decoder_start_token_id", "pad_token_id")
    for name, *others in same:
        for other in others:
            _require(record, name, record.get(name), record.get(other))
    activation = record.get("activation_function")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise UserError(
            f"`activation_function` in config.json must be one of {tuple(_ACTIVATIONS)}. "
            f"Received: {quoted(activation)}."
        )
    for name in ("max_position_embeddings", "vocab_size", *(name for name, *_ in same)):
        if type(record.get(name)) is not int:
            raise UserError(
                f"`{name}` in config.json must be int. Received: {quoted(record.get(name))}."
            )


def _require(record: dict[str, Any], name: str, value: object, required: object) -> None:
    if value != required:
        stated = quoted(record.get(name, value))
        if name not in record:
            stated = f"nothing, which means {stated}"
        raise UserError(
            f"`{name}` in config.json must be {required!r}: no other value can be converted. "
            f"Received: {stated}."
        )


def _check_vocabulary(record: dict[str, Any], pieces: dict[str, Any]) -> None:
    required = {EOS: record.get("eos_token_id"), PAD: record.get("pad_token_id")}
    ids = {name: pieces.get(name) for name in required}
    if ids != required:
        raise UserError(
            f"vocab.json must have {required}, as config.json does. Received: {ids}."
        )


def _model_settings(record: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """Returns the model's settings of a checked config.json."""
    sizes = {ours: record[names[0]] for ours, names in _SIZES.items()}
    if sizes["decoder_layers"] == sizes["num_layers"]:
        del sizes["decoder_layers"]
    settings = sizes | {
        "vocab_size": vocab_size,
        "dropout": record.get("dropout", 0.1),
        "attention_bias": True,
        "output_bias": True,
        "activation": _ACTIVATIONS[record["activation_function"]],
        "norm_epsilon": record.get(_OUR_EPSILON, _EPSILON),
    }
    return {f"model.{name}": value for name, value in settings.items()}


def _check_model(model: Transformer, tokenizer: Tokenizer) -> None:
    """Raises UserError for what Marian's format cannot carry."""
    require_possible(model.config, _POSSIBLE, "Marian's format")
    if (epsilon := model.config.norm_epsilon) > _EPSILON:
        raise UserError(
            f"Marian's model.norm_epsilon is {_EPSILON:g}, which replaces smaller ones only. "
            f"Received: {epsilon:g}."
        )
    if all(len(tokenizer.slots(side)) for side in SIDES):
        raise UserError("Marian's format lacks slots (data.slots).")


def _written_config(
    model: Transformer, decoding: DecodingConfig, vocab_size: int
) -> dict[str, Any]:
    """Returns config.json without its special ids."""
    ours = model.config
    sizes = vars(ours) | {"decoder_layers": ours.num_decoder_layers}
    return {
        "architectures": ["MarianMTModel"],
        **{name: value for name, (value, _) in _REQUIRED.items()},
        **{name: sizes[size] for size, names in _SIZES.items() for name in names},
        "activation_function": ours.activation,
        "num_hidden_layers": ours.num_layers,
        "max_position_embeddings": max(decoding.max_source_length, _longest_target(decoding)),
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "dropout": ours.dropout,
        "attention_dropout": ours.attention_dropout,
        "activation_dropout": ours.activation_dropout,
        _OUR_EPSILON: ours.norm_epsilon,
        _OUR_ALPHA: decoding.alpha,
        _OUR_BIAS: float(_array(model.projection.output_bias, (BOS_ID + 1,))[BOS_ID]),
        "is_encoder_decoder": True,
        "dtype": "float32",
    }


# --- Settings of the search ---------------------------------------------------------------


def _search_settings(
    record: dict[str, Any], search: dict[str, Any], max_source_length: int
) -> dict[str, Any]:
    """Returns the search settings of a checkpoint as settings of `decoding`.

    `record` is config.json, `search` the same with generation_config.json over it. Marian's
    length penalty divides by length ** alpha, ours by ((5 + length) / 6) ** alpha. Its
    `max_length` counts BOS, ours does not. Its `min_length` counts BOS but not EOS, ours EOS
    but not BOS, so the number stays the same.
    """
    _check_search(record, search)
    longest = record["max_position_embeddings"]
    max_length = _number(search, "max_length", longest, Bounds(low=2, high=MAX_TOKENS))
    bounds = {ours: SETTINGS[f"decoding.{ours}"].bounds for ours in _SEARCH}
    bounds["min_length"] = Bounds(low=0, high=max_length - 1)
    settings = {
        ours: _number(search, name, getattr(_SEARCH_DEFAULTS, ours), bounds[ours])
        for ours, name in _SEARCH.items()
    }
    if _OUR_ALPHA in record:
        alpha = _number(record, _OUR_ALPHA, DecodingConfig.alpha, bounds["alpha"])
        if _length_penalty(alpha) == settings["alpha"]:  # nobody has changed it
            settings["alpha"] = alpha
    settings |= {"max_source_length": max_source_length, "max_length": max_length - 1}
    return {f"decoding.{name}": value for name, value in settings.items()}


def _longest_source(record: dict[str, Any], tokenizer: Path) -> int:
    """Returns the tokens after which Marian's tokenizer cuts, and no more than positions."""
    limit = _read_json(tokenizer).get("model_max_length") if tokenizer.exists() else None
    longest = record["max_position_embeddings"]
    return min(longest, limit) if type(limit) is int else longest


def _check_search(record: dict[str, Any], search: dict[str, Any]) -> None:
    """Raises UserError for rules that our search does not support."""
    banned = search.get("bad_words_ids", [])
    ours = [[record["pad_token_id"]], [record.get("bos_token_id")]]
    if banned not in ([], ours[:1], ours):
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


def _number(search: dict[str, Any], name: str, default: float, bounds: Bounds) -> float:
    """Returns a number within bounds, of the same type as its default."""
    return Setting(type(default), bounds).check(name, search.get(name, default))


def _length_penalty(alpha: float) -> float:
    """Returns the p for which n^p ranks most like ((5 + n) / 6)^alpha, around n of 15."""
    return round(alpha * 15 / (5 + 15), 6)


def _longest_target(decoding: DecodingConfig) -> int:
    """Returns the most tokens of any translation, EOS included."""
    most = decoding.max_length or decoding.max_source_length + decoding.max_extra_length
    return min(most, MAX_TOKENS - 1)


def _written_search(decoding: DecodingConfig, vocabulary: dict[str, int]) -> dict[str, Any]:
    """Returns generation_config.json without its special ids."""
    settings = vars(decoding) | {"alpha": _length_penalty(decoding.alpha)}
    return {name: settings[ours] for ours, name in _SEARCH.items()} | {
        "max_length": _longest_target(decoding) + 1,
        "bad_words_ids": [[vocabulary[PAD]], [vocabulary[BOS]]],
    }


def _differences(model: Transformer, decoding: DecodingConfig) -> list[str]:
    """Describes what `transformers` does otherwise."""
    found = []
    if (epsilon := model.config.norm_epsilon) != _EPSILON:
        found.append(f"a norm epsilon of {_EPSILON:g} instead of {epsilon:g}")
    if decoding.alpha:
        ours, theirs = f"{decoding.alpha:g}", f"{_length_penalty(decoding.alpha):g}"
        found.append(f"the length penalty n^{theirs} instead of ((5 + n) / 6)^{ours}")
    extra = decoding.max_extra_length
    return [*found, f"no limit of {extra} tokens more than the source"]


# --- Weights ------------------------------------------------------------------------------


def _weights(
    model: Transformer,
) -> Iterator[tuple[str, Any, tuple[int, ...], int | None]]:
    """Yields all weights but those of embeddings and projection.

    Each has Marian's name, our variable (None for a bias that the model lacks), whose transpose
    is Marian's tensor, and of that the shape and the axis of the D units, if it has one.
    """
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            for name, part, axis in _parts(layer):
                is_norm = hasattr(part, "gamma")
                weight = part.gamma if is_norm else part.kernel
                prefix = f"model.{side}.layers.{number}.{name}"
                yield f"{prefix}.weight", weight, weight.shape[::-1], axis
                # A bias is one of outputs: D units if the part writes them.
                bias = part.beta if is_norm else part.bias
                yield f"{prefix}.bias", bias, weight.shape[-1:], None if axis else 0


def _parts(layer) -> Iterator[tuple[str, Any, int]]:
    """Yields Marian's names of a layer's parts, and the axis of D in Marian's weight.

    A part that reads the D units is [outputs, D] in Marian, one that writes them [D, inputs],
    and a norm [D].
    """
    attentions = [("self_attn", layer.self_attention, layer.self_attention_norm)]
    if layer.cross_attention:
        attentions += [("encoder_attn", layer.cross_attention, layer.cross_attention_norm)]
    for name, attention, norm in attentions:
        yield f"{name}.q_proj", attention.query_dense, 1
        yield f"{name}.k_proj", attention.key_dense, 1
        yield f"{name}.v_proj", attention.value_dense, 1
        yield f"{name}.out_proj", attention.output_dense, 0
        yield f"{name}_layer_norm", norm.norm, 0
    yield "fc1", layer.feed_forward.inner, 1
    yield "fc2", layer.feed_forward.outer, 0
    yield "final_layer_norm", layer.feed_forward_norm.norm, 0


def _units(d_model: int) -> np.ndarray:
    """Returns Marian's unit for each of ours, [D]: sine i is i, cosine i is D / 2 + i."""
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def _reordered(tensor: np.ndarray, order: np.ndarray, axis: int | None) -> np.ndarray:
    return tensor if axis is None else tensor.take(order, axis)


def _written_tensors(model: Transformer, ids: np.ndarray, positions: int) -> Arrays:
    """Returns Marian's tensors; `ids` [V] has our id for each of Marian's.

    Marian's decoder begins with <pad>, whose embedding CTranslate2 takes to be zero and whose
    row, the last, it drops. So our BOS stands in the decoder's first position instead.
    """
    d_model = model.config.d_model
    order = np.argsort(_units(d_model))  # our unit for each of Marian's
    bias = _array(model.projection.output_bias, (len(ids),))[ids]
    tensors = {
        name: _reordered(_array(variable, shape).T, order, axis)
        for name, variable, shape, axis in _weights(model)
    }
    embeddings = _array(model.projection.embeddings)[ids][:, order]
    table = _sinusoids(positions, d_model)
    table[0] += d_model**0.5 * embeddings[-1]
    embeddings[-1], bias[-1] = 0.0, _NEVER
    tensors |= {_SHARED: embeddings, _BIAS: bias[np.newaxis], _POSITIONS[1]: table}
    return {name: np.ascontiguousarray(tensor, "float32") for name, tensor in tensors.items()}


def _array(variable: keras.Variable | None, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Returns a variable's value in float32; zeros of the shape if the model lacks it."""
    if variable is None:
        return np.zeros(shape, "float32")
    return np.asarray(keras.ops.convert_to_numpy(variable), "float32")


def assign_weights(
    model: Transformer,
    tensors: Arrays,
    vocabulary: MarianVocabulary,
    bos_bias: float | None = None,
) -> None:
    """Assigns Marian's tensors to a model, in the model's order of pieces and units.

    `bos_bias` is that of our BOS, in a folder of `to_marian`. What the decoder's first position
    has besides its sinusoids belongs to BOS, which is always there.

    Raises:
        UserError: if a tensor is missing, of another shape, or left over.
    """
    left, units = dict(tensors), _units(model.config.d_model)
    vocab_size = vocabulary.rows.max() + 1
    shape: tuple[int, ...] = (vocab_size, len(units))
    embeddings = _take(left, _SHARED, shape)
    for name in _COPIES:
        if name in left and not np.array_equal(_take(left, name, shape), embeddings):
            raise UserError(
                f"{name} must equal {_SHARED}: a checkpoint with several embeddings cannot "
                "be converted. Received: another matrix."
            )
    bias = _take(left, _BIAS, (1, vocab_size))[0, vocabulary.rows]
    bias[vocabulary.inputs_only] = _NEVER
    if bos_bias is not None:
        bias[BOS_ID] = bos_bias
    rows = embeddings[vocabulary.rows]
    table = left.get(_POSITIONS[1])
    if table is not None and table.ndim == 2 and table.shape[1:] == rows.shape[1:]:
        first = _sinusoids(1, len(units))[0]
        if not np.allclose(table[0], first, atol=2e-3):
            rows[BOS_ID] += (table[0] - first) / len(units) ** 0.5
            left[_POSITIONS[1]] = np.concatenate([first[np.newaxis], table[1:]])
    model.projection.embeddings.assign(rows[:, units])
    model.projection.output_bias.assign(bias)
    for name, variable, shape, axis in _weights(model):
        variable.assign(_reordered(_take(left, name, shape), units, axis).T)
    for name in _POSITIONS:
        table = left.pop(name, None)
        if table is not None and not _are_sinusoids(table, len(units)):
            raise UserError(f"{name} must hold the paper's sinusoids. Received: other values.")
    if left:
        raise UserError(
            "The checkpoint must have the weights of a MarianMTModel and no others. "
            f"Received also: {', '.join(sorted(left)[:3])}."
        )


def _take(left: Arrays, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Removes and returns a tensor; raises UserError if it is missing or misshapen."""
    tensor = left.pop(name, None)
    if tensor is None or tensor.shape != tuple(shape):
        raise UserError(
            f"The checkpoint must have {name} of shape {tuple(shape)}. "
            f"Received: {'nothing' if tensor is None else tensor.shape}."
        )
    return tensor


def _are_sinusoids(table: np.ndarray, d_model: int) -> bool:
    if table.ndim != 2 or table.shape[1] != d_model:
        return False
    return np.allclose(table, _sinusoids(len(table), d_model), atol=2e-3)


def _sinusoids(length: int, d_model: int) -> np.ndarray:
    """Returns the positional encodings of Section 3.5, [length, D], sines first."""
    rates = 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    angles = np.arange(length)[:, None] / rates
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)
