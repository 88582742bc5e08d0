"""Conversion of a run to a Marian checkpoint in Hugging Face's format, for `MarianMTModel`.

The reverse of `from_marian`. Marian's decoder starts with <pad>, so that this name has the
weights of our BOS; those of our padding, which count in the softmax, are named <s>.
"""

import json
import logging
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tf_transformer.base.errors import UserError, missing_extra, quoted
from tf_transformer.base.files import new_folder
from tf_transformer.config import BOS_ID, EOS_ID, MAX_TOKENS, PAD_ID, UNK_ID, DecodingConfig
from tf_transformer.conversion.from_marian import (
    ACTIVATIONS,
    BIAS,
    EPSILON,
    OUR_ALPHA,
    OUR_EPSILON,
    REQUIRED,
    SHARED,
    TOKENIZER_CONFIG,
    Visitor,
    length_penalty,
)
from tf_transformer.conversion.marian_vocabulary import BOS, EOS, PAD, UNK, name_of
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import Arrays

logger = logging.getLogger(__name__)

_SPECIAL = {EOS: EOS_ID, UNK: UNK_ID, BOS: PAD_ID, PAD: BOS_ID}  # our ids by Marian's names
# Values of the model's settings that Marian's architecture has.
_POSSIBLE: dict[str, tuple[object, ...]] = {
    "norm_first": (False,),
    "norm": ("layer",),
    "positions": ("sinusoidal",),
    "attention_window": (0,),
    "activation": tuple(dict.fromkeys(ACTIVATIONS.values())),
    "tie_embeddings": (True,),
}


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
    if folder.exists():
        raise UserError(f"{folder} exists already. Choose another folder.")
    try:
        from safetensors.numpy import save
    except ImportError:
        raise missing_extra("convert --to marian", "safetensors", "marian") from None
    _check(model, tokenizer)
    ids, vocabulary = _vocabulary(tokenizer)
    config, search = _config(model, vocabulary, decoding), _search(vocabulary, decoding)
    records: dict[str, dict[str, Any]] = {
        "config.json": config,
        "generation_config.json": search,
        "vocab.json": vocabulary,
        TOKENIZER_CONFIG: {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": decoding.max_source_length,
            "clean_up_tokenization_spaces": False,
            "separate_vocabs": False,
        },
    }
    models = tokenizer.models
    with new_folder(folder) as temporary:
        for name, record in records.items():
            text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            (temporary / name).write_text(text, "utf-8")
        for side in SIDES:
            (temporary / f"{side}.spm").write_bytes(models.get(side, models["source"]))
        weights = save(tensors_of(model, ids), metadata={"format": "pt"})
        (temporary / "model.safetensors").write_bytes(weights)
    logger.info("transformers has %s", "; ".join(_differences(model, decoding)))


def _check(model: Transformer, tokenizer: Tokenizer) -> None:
    """Raises UserError for what Marian's format cannot carry."""
    config = model.config
    for name, possible in _POSSIBLE.items():
        if (value := getattr(config, name)) not in possible:
            raise UserError(f"Marian's format lacks model.{name}={value}.")
    if {config.num_heads * size for size in config.head_sizes} != {config.d_model}:
        raise UserError(
            "Marian's format needs model.key_dim and model.value_dim to be d_model / "
            f"num_heads, {config.d_model / config.num_heads:g}. "
            f"Received: {config.key_dim}, {config.value_dim}."
        )
    if config.norm_epsilon > EPSILON:
        raise UserError(
            f"Marian's model.norm_epsilon is {EPSILON:g}, which replaces smaller ones only. "
            f"Received: {config.norm_epsilon:g}."
        )
    if all(len(tokenizer.slots(side)) for side in SIDES):
        raise UserError("Marian's format lacks slots (data.slots).")


def _vocabulary(tokenizer: Tokenizer) -> tuple[np.ndarray, dict[str, int]]:
    """Returns our id for each of Marian's, [V], and vocab.json: Marian's id of each piece."""
    source, target = map(tokenizer.vocabulary, SIDES)
    first = EOS_ID + 1
    if source[first:] != target[first:]:
        raise UserError(
            "Marian's format needs one vocabulary for both languages. Received: two "
            "(data.separate_vocabularies)."
        )
    ids = [EOS_ID, UNK_ID, PAD_ID, *range(first, len(source)), BOS_ID]  # <pad> is the last
    special = {number: name for name, number in _SPECIAL.items()}
    names = [special.get(i) or name_of(source[i]) for i in ids]
    vocabulary = {name: i for i, name in enumerate(names)}
    if len(vocabulary) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"Marian reads {quoted(twice)} as special or as a language, so it must be one "
            "piece of the tokenizer. Received: two."
        )
    return np.array(ids), vocabulary


def _config(
    model: Transformer, vocabulary: dict[str, int], decoding: DecodingConfig
) -> dict[str, Any]:
    """Returns config.json."""
    ours = model.config
    longest = max(decoding.max_source_length, _longest_target(decoding))
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", ours.num_layers), ("decoder", ours.num_decoder_layers))
        for name, value in {
            "layers": layers, "attention_heads": ours.num_heads, "ffn_dim": ours.d_ff,
        }.items()
    }  # fmt: skip
    return {name: value for name, (value, _) in REQUIRED.items()} | sides | {
        "architectures": ["MarianMTModel"],
        "activation_function": ours.activation,
        "d_model": ours.d_model,
        "num_hidden_layers": ours.num_layers,
        "max_position_embeddings": longest,
        "vocab_size": len(vocabulary),
        "decoder_vocab_size": len(vocabulary),
        "dropout": ours.dropout,
        "attention_dropout": ours.attention_dropout,
        "activation_dropout": ours.activation_dropout,
        OUR_EPSILON: ours.norm_epsilon,
        OUR_ALPHA: decoding.alpha,
        "is_encoder_decoder": True,
        "dtype": "float32",
    } | _special_ids(vocabulary)  # fmt: skip


def _special_ids(vocabulary: dict[str, int]) -> dict[str, int]:
    return {
        "bos_token_id": vocabulary[BOS],
        "eos_token_id": vocabulary[EOS],
        "pad_token_id": vocabulary[PAD],
        "decoder_start_token_id": vocabulary[PAD],
        "forced_eos_token_id": vocabulary[EOS],
    }


def _longest_target(decoding: DecodingConfig) -> int:
    """Returns the most tokens of any translation, EOS included."""
    most = decoding.max_length or decoding.max_source_length + decoding.max_extra_length
    return min(most, MAX_TOKENS - 1)


def _search(vocabulary: dict[str, int], decoding: DecodingConfig) -> dict[str, Any]:
    """Returns generation_config.json; `from_marian` says how lengths are counted."""
    return _special_ids(vocabulary) | {
        "num_beams": decoding.beam_size,
        "length_penalty": length_penalty(decoding.alpha),
        "max_length": _longest_target(decoding) + 1,
        "min_length": decoding.min_length,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "bad_words_ids": [[vocabulary[PAD]], [vocabulary[BOS]]],
    }


def _differences(model: Transformer, decoding: DecodingConfig) -> list[str]:
    """Describes what `transformers` does otherwise."""
    found = []
    if (epsilon := model.config.norm_epsilon) != EPSILON:
        found.append(f"a norm epsilon of {EPSILON:g} instead of {epsilon:g}")
    if decoding.alpha:
        ours, theirs = f"{decoding.alpha:g}", f"{length_penalty(decoding.alpha):g}"
        found.append(f"the length penalty n^{theirs} instead of ((5 + n) / 6)^{ours}")
    extra = decoding.max_extra_length
    return [*found, f"no limit of {extra} tokens more than the source"]


# --- Weights ------------------------------------------------------------------------------


def tensors_of(model: Transformer, ids: np.ndarray) -> Arrays:
    """Returns Marian's tensors; `ids` [V] has our id for each of Marian's."""
    written = _Tensors(model.config.d_model)
    written.visit(model)
    embeddings, bias = _array(model.projection.embeddings), model.projection.output_bias
    written.tensors[SHARED] = embeddings[ids][:, written.ours]
    written.tensors[BIAS] = _bias(bias, len(ids))[ids][np.newaxis]
    return {name: np.ascontiguousarray(value) for name, value in written.tensors.items()}


class _Tensors(Visitor):
    """Marian's tensors of a model.

    Attributes:
        tensors: by name.
        ours: int [D], our unit for each of Marian's.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.tensors: Arrays = {}
        self.ours = np.argsort(self.units)

    def reader(self, name: str, dense) -> None:
        self.tensors[f"{name}.weight"] = _array(dense.kernel)[self.ours].T
        self.tensors[f"{name}.bias"] = _bias(dense.bias, dense.units)

    def writer(self, name: str, dense) -> None:
        self.tensors[f"{name}.weight"] = _array(dense.kernel).T[self.ours]
        self.tensors[f"{name}.bias"] = _bias(dense.bias, dense.units)[self.ours]

    def norm(self, name: str, layer) -> None:
        self.tensors[f"{name}.weight"] = _array(layer.gamma)[self.ours]
        self.tensors[f"{name}.bias"] = _array(layer.beta)[self.ours]


def _bias(weight, size: int) -> np.ndarray:
    """Returns a bias [size]; zeros if the model has none."""
    return np.zeros(size, "float32") if weight is None else _array(weight)


def _array(weight) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(weight), "float32")
