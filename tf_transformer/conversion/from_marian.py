"""Conversion of a Marian checkpoint (OPUS-MT) in Hugging Face's format to a run.

Marian's positional encodings have all sines before all cosines; ours alternate. Nothing else
depends on the order of the D units between layers, so the conversion permutes them in every
weight that reads or writes them, and the model needs no setting for that.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.base.errors import UserError, missing_extra, quoted
from tf_transformer.base.files import new_folder, parse_json, replacing
from tf_transformer.config import MAX_TOKENS, SETTINGS, Config, DecodingConfig
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.conversion.marian_vocabulary import (
    BOS,
    EOS,
    PAD,
    MarianVocabulary,
    merge_vocabulary,
)
from tf_transformer.data.tokenizer import Tokenizer, target_model_path
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import Arrays, save_weights

# Values that config.json must have, each with its default in transformers.
REQUIRED = {
    "model_type": ("marian", None),
    "scale_embedding": (True, False),
    "static_position_embeddings": (True, True),
    "normalize_embedding": (False, False),
    "normalize_before": (False, False),
    "add_final_layer_norm": (False, False),
    "share_encoder_decoder_embeddings": (True, True),
    "tie_word_embeddings": (True, True),
}
# Numbers that must be equal.
_EQUAL = {
    "encoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "decoder_ffn_dim",
    "decoder_start_token_id": "pad_token_id",
}
_LAYERS = "encoder_layers", "decoder_layers"
ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
EPSILON = 1e-5  # PyTorch's layer norm
# Settings of the run in the config.json of `to_marian`, which transformers ignores.
OUR_EPSILON, OUR_ALPHA = "norm_epsilon", "alpha"
TOKENIZER_CONFIG = "tokenizer_config.json"

# Options of the search in transformers that ours lacks, each with the value that disables it.
_NEUTRAL = {
    "do_sample": False, "repetition_penalty": 1, "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0, "num_beam_groups": 1, "diversity_penalty": 0,
    "guidance_scale": 1, "penalty_alpha": 0, "min_new_tokens": 0, "max_new_tokens": None,
    "forced_bos_token_id": None, "forced_decoder_ids": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "sequence_bias": None, "constraints": None,
    "force_words_ids": None, "exponential_decay_length_penalty": None,
}  # fmt: skip

# A logit that makes a piece impossible without dominating a label-smoothed loss.
_NEVER = -100.0
SHARED, BIAS = "model.shared.weight", "final_logits_bias"
# Other names for the same matrix, all optional.
_COPIES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


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
    if run.exists():
        raise UserError(f"{run} exists already. Choose another folder.")
    record = _without_nulls(_read_json(checkpoint / "config.json"))
    _check_architecture(record)
    pieces = _read_json(checkpoint / "vocab.json")
    _check_vocabulary(record, pieces)
    own_padding = BOS in pieces and record.get("bos_token_id") == pieces[BOS]
    models = checkpoint / "source.spm", checkpoint / "target.spm"
    vocabulary = merge_vocabulary(pieces, *models, own_padding)
    generation = checkpoint / "generation_config.json"
    search = record | (_without_nulls(_read_json(generation)) if generation.exists() else {})
    model_settings = _model_settings(record, len(vocabulary.rows))
    longest = _longest_source(record, checkpoint / TOKENIZER_CONFIG)
    config = Config().replace(model_settings | _search_settings(record, search, longest))
    model = Transformer(**vars(config.model), name="transformer")
    assign_weights(model, read_weights(checkpoint), vocabulary)
    with new_folder(run) as temporary:
        written = Run.create_or_resume(temporary, config)
        contents = {written.tokenizer: vocabulary.source_model}
        if vocabulary.target_model != vocabulary.source_model:
            contents[target_model_path(written.tokenizer)] = vocabulary.target_model
        for path, content in contents.items():
            with replacing(path) as file:
                file.write_bytes(content)
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


# --- Settings -----------------------------------------------------------------------------


def _check_architecture(record: dict[str, Any]) -> None:
    """Raises UserError for an architecture that cannot be converted."""
    for name, (required, default) in REQUIRED.items():
        _require(record, name, record.get(name, default), required)
    for name, other in _EQUAL.items():
        _require(record, name, record.get(name), record.get(other))
    activation = record.get("activation_function")
    if type(activation) is not str or activation not in ACTIVATIONS:
        raise UserError(
            f"`activation_function` in config.json must be one of {tuple(ACTIVATIONS)}. "
            f"Received: {quoted(activation)}."
        )
    for name in ("d_model", "max_position_embeddings", "vocab_size", *_LAYERS, *_EQUAL):
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
    layers, decoder_layers = (record[name] for name in _LAYERS)
    return {
        "model.vocab_size": vocab_size,
        "model.num_layers": layers,
        "model.decoder_layers": None if decoder_layers == layers else decoder_layers,
        "model.d_model": record["d_model"],
        "model.d_ff": record["encoder_ffn_dim"],
        "model.num_heads": record["encoder_attention_heads"],
        "model.dropout": record.get("dropout", 0.1),
        "model.attention_bias": True,
        "model.output_bias": True,
        "model.activation": ACTIVATIONS[record["activation_function"]],
        "model.norm_epsilon": record.get(OUR_EPSILON, EPSILON),
    }


def _longest_source(record: dict[str, Any], tokenizer: Path) -> int:
    """Returns the tokens after which Marian's tokenizer cuts, and no more than positions."""
    limit = _read_json(tokenizer).get("model_max_length") if tokenizer.exists() else None
    longest = record["max_position_embeddings"]
    return min(longest, limit) if type(limit) is int else longest


def _search_settings(
    record: dict[str, Any], search: dict[str, Any], max_source_length: int
) -> dict[str, Any]:
    """Returns the search settings of a checkpoint as settings of `decoding`.

    The checkpoint's length penalty divides by length ** alpha, ours by
    ((5 + length) / 6) ** alpha. Its `max_length` counts BOS, ours does not. Its `min_length`
    counts BOS but not EOS, ours EOS but not BOS, so the number stays the same.
    """
    _check_search(record, search)
    longest = record["max_position_embeddings"]
    max_length = _number(search, "max_length", longest, Bounds(low=2, high=MAX_TOKENS))
    alpha = _setting(search, "length_penalty", "alpha", 1.0)
    if OUR_ALPHA in record:
        ours = _setting(record, OUR_ALPHA, "alpha")
        alpha = ours if length_penalty(ours) == alpha else alpha  # nobody has changed it
    return {
        "decoding.beam_size": _setting(search, "num_beams", "beam_size"),
        "decoding.alpha": alpha,
        "decoding.max_source_length": max_source_length,
        "decoding.max_length": max_length - 1,
        "decoding.min_length": _number(
            search, "min_length", 0, Bounds(low=0, high=max_length - 1)
        ),
        "decoding.no_repeat_ngram": _setting(search, "no_repeat_ngram_size", "no_repeat_ngram"),
    }


def length_penalty(alpha: float) -> float:
    """Returns the p for which n^p ranks most like ((5 + n) / 6)^alpha, around n of 15."""
    return round(alpha * 15 / (5 + 15), 6)


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


def _setting(
    search: dict[str, Any], name: str, ours: str, default: float | None = None
) -> float:
    """Returns a number within the bounds of our setting, whose default is the fallback."""
    default = getattr(DecodingConfig, ours) if default is None else default
    return _number(search, name, default, SETTINGS[f"decoding.{ours}"].bounds)


def _number(search: dict[str, Any], name: str, default: float, bounds: Bounds) -> float:
    """Returns a number within bounds, of the same type as its default."""
    return Setting(type(default), bounds).check(name, search.get(name, default))


# --- Weights ------------------------------------------------------------------------------


def assign_weights(model: Transformer, tensors: Arrays, vocabulary: MarianVocabulary) -> None:
    """Assigns Marian's tensors to a model, in the model's order of pieces and units.

    Raises:
        UserError: if a tensor is missing, of another shape, or left over.
    """
    marian = _Tensors(tensors, model.config.d_model)
    vocab_size = vocabulary.rows.max() + 1
    embeddings = marian.take_embeddings(vocab_size)[vocabulary.rows]
    bias = marian.take(BIAS, (1, vocab_size))[0, vocabulary.rows]
    bias[vocabulary.inputs_only] = _NEVER
    model.projection.embeddings.assign(embeddings[:, marian.units])
    model.projection.output_bias.assign(bias)
    marian.visit(model)
    marian.check_all_taken()


class Visitor(ABC):
    """Goes through the layers of a model with Marian's names of their weights.

    Attributes:
        units: int [D], Marian's unit for each of ours: sine i is unit i, cosine i is D / 2 + i.
    """

    def __init__(self, d_model: int) -> None:
        halves = np.arange(d_model).reshape(2, -1)
        self.units = halves.T.reshape(-1)

    def visit(self, model: Transformer) -> None:
        """Visits all weights but those of embeddings and projection."""
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(stack.layers):
                self._visit_layer(layer, f"model.{name}.layers.{number}")

    def _visit_layer(self, layer, prefix: str) -> None:
        self._visit_attention(f"{prefix}.self_attn", layer.self_attention)
        self.norm(f"{prefix}.self_attn_layer_norm", layer.self_attention_norm.norm)
        if hasattr(layer, "cross_attention"):
            self._visit_attention(f"{prefix}.encoder_attn", layer.cross_attention)
            self.norm(f"{prefix}.encoder_attn_layer_norm", layer.cross_attention_norm.norm)
        self.reader(f"{prefix}.fc1", layer.feed_forward.inner)
        self.writer(f"{prefix}.fc2", layer.feed_forward.outer)
        self.norm(f"{prefix}.final_layer_norm", layer.feed_forward_norm.norm)

    def _visit_attention(self, name: str, layer) -> None:
        self.reader(f"{name}.q_proj", layer.query_dense)
        self.reader(f"{name}.k_proj", layer.key_dense)
        self.reader(f"{name}.v_proj", layer.value_dense)
        self.writer(f"{name}.out_proj", layer.output_dense)

    @abstractmethod
    def reader(self, name: str, dense) -> None:
        """Visits a dense layer that reads the D units: weight [outputs, D], bias [outputs]."""

    @abstractmethod
    def writer(self, name: str, dense) -> None:
        """Visits a dense layer that writes the D units: weight [D, inputs], bias [D]."""

    @abstractmethod
    def norm(self, name: str, layer) -> None:
        """Visits gain and bias of a layer norm, [D]."""


class _Tensors(Visitor):
    """The tensors of a checkpoint, which can be taken only once, and assigned to a model."""

    def __init__(self, tensors: Arrays, d_model: int) -> None:
        super().__init__(d_model)
        self._left = dict(tensors)

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Removes and returns a tensor; raises UserError if it is missing or misshapen."""
        tensor = self._left.pop(name, None)
        if tensor is None or tensor.shape != tuple(shape):
            raise UserError(
                f"The checkpoint must have {name} of shape {tuple(shape)}. "
                f"Received: {'nothing' if tensor is None else tensor.shape}."
            )
        return tensor

    def take_embeddings(self, vocab_size: int) -> np.ndarray:
        """Returns the matrix [V, D] shared by both embeddings and the output projection."""
        shape = (vocab_size, len(self.units))
        embeddings = self.take(SHARED, shape)
        for name in _COPIES:
            if name in self._left and not np.array_equal(self.take(name, shape), embeddings):
                raise UserError(
                    f"{name} must equal {SHARED}: a checkpoint with several embeddings cannot "
                    "be converted. Received: another matrix."
                )
        return embeddings

    def reader(self, name: str, dense) -> None:
        kernel, bias = dense.kernel, dense.bias
        kernel.assign(self.take(f"{name}.weight", kernel.shape[::-1]).T[self.units])
        bias.assign(self.take(f"{name}.bias", bias.shape))

    def writer(self, name: str, dense) -> None:
        kernel, bias = dense.kernel, dense.bias
        kernel.assign(self.take(f"{name}.weight", kernel.shape[::-1])[self.units].T)
        bias.assign(self.take(f"{name}.bias", bias.shape)[self.units])

    def norm(self, name: str, layer) -> None:
        layer.gamma.assign(self.take(f"{name}.weight", layer.gamma.shape)[self.units])
        layer.beta.assign(self.take(f"{name}.bias", layer.beta.shape)[self.units])

    def check_all_taken(self) -> None:
        """Raises UserError for tensors not taken, except tables of the paper's sinusoids."""
        for name in _POSITIONS:
            table = self._left.pop(name, None)
            if table is not None and not _are_sinusoids(table, len(self.units)):
                raise UserError(
                    f"{name} must hold the paper's sinusoids. Received: other values."
                )
        if self._left:
            raise UserError(
                "The checkpoint must have the weights of a MarianMTModel and no others. "
                f"Received also: {', '.join(sorted(self._left)[:3])}."
            )


def _are_sinusoids(table: np.ndarray, d_model: int) -> bool:
    """Returns whether a table has the positional encodings of Section 3.5, sines first."""
    if table.ndim != 2 or table.shape[1] != d_model:
        return False
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = np.arange(len(table))[:, None] * rates
    return np.allclose(table, np.concatenate([np.sin(angles), np.cos(angles)], 1), atol=2e-3)


def read_weights(folder: Path) -> Arrays:
    """Reads all tensors of a checkpoint by their names, in float32.

    Raises:
        UserError: if the weights are missing or damaged, or the library that reads them is not
            installed.
    """
    readers = {"model.safetensors": _read_safetensors, "pytorch_model.bin": _read_torch}
    for name, read in readers.items():
        if (folder / name).exists():
            tensors = read(folder / name)
            return {key: np.asarray(value, "float32") for key, value in tensors.items()}
    raise UserError(f"{folder} has no weights. Expected {' or '.join(readers)} in it.")


def _read_safetensors(path: Path) -> Arrays:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise missing_extra(str(path), "safetensors", "marian") from None
    try:
        return load_file(path)
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


def _read_torch(path: Path) -> Arrays:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} needs PyTorch, which is not installed: pip install torch. Or use the "
            "checkpoint's model.safetensors, if it has one."
        ) from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # raised by pickle, zipfile or torch
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read: {reason}.") from None
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}
