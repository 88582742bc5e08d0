"""Conversion of a model to CTranslate2, for fast decoding on CPUs, also in int8.

https://opennmt.net/CTranslate2
"""

import logging
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import missing_extra
from tf_transformer.base.files import new_folder
from tf_transformer.config import BOS_ID, EOS_ID, UNK_ID
from tf_transformer.conversion import require_possible
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.layers import sinusoidal_positions
from tf_transformer.layers.feed_forward import GATES
from tf_transformer.layers.positions import Relative
from tf_transformer.models.transformer import Transformer

LONGEST = 2048  # positions in the table of a model with sinusoids, which itself has no limit
# Values of settings that CTranslate2 has.
_POSSIBLE = {"positions": ("sinusoidal", "learned", "relative"), "attention_window": (0,)}
_ACTIVATIONS = {"relu": "RELU", "swish": "SWISH", "swiglu": "SWISH", "geglu": "GELU"}
logger = logging.getLogger(__name__)
_QKV, _OUTPUT = ("query", "key", "value"), ("output",)

try:
    from ctranslate2.specs import common_spec, transformer_spec
except ImportError:
    raise missing_extra("A model of CTranslate2", "ctranslate2", "ctranslate2") from None


def to_ctranslate2(
    model: Transformer, tokenizer: Tokenizer, folder: Path, quantization: str = "float32"
) -> None:
    """Writes the model and its tokenizer.model, or one for each side, to a new folder.

    Args:
        model: a trained model.
        tokenizer: the tokenizer it was trained with.
        folder: folder to write; it must not exist.
        quantization: float32, int8, int16, float16 or bfloat16.

    Raises:
        UserError: if the folder exists or cannot be written, or CTranslate2 lacks the model's
            positions, its window, or a key_dim or value_dim other than d_model / num_heads.
    """
    with new_folder(folder) as temporary:
        if model.config.positions == "learned":
            logger.warning(
                "positions are trained up to %d source and %d target tokens, which CTranslate2 "
                "does not know: cut longer text before you translate it",
                model.longest_source,
                model.longest_target,
            )
        if len(tokenizer.slots()):
            logger.warning("CTranslate2 may lose or double slots: its search lacks their rule")
        spec = _spec(model, tokenizer)
        spec.validate()
        spec.optimize(quantization=None if quantization == "float32" else quantization)
        spec.save(str(temporary))
        tokenizer.copy(temporary / "tokenizer.model")


def _spec(model: Transformer, tokenizer: Tokenizer):
    config = model.config
    require_possible(config, _POSSIBLE, "CTranslate2")
    common = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm_first,
        "activation": common_spec.Activation[_ACTIVATIONS[config.activation]],
        "ffn_glu": config.activation in GATES,
        "rms_norm": config.norm == "rms",
        "relative_position": config.positions == "relative",
    }
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.num_layers, **common),
        transformer_spec.TransformerDecoderSpec(config.num_decoder_layers, **common),
    )
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.source_embedding)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.target_embedding)
    _set_stack(spec.encoder, model.encoder)
    _set_stack(spec.decoder, model.decoder)
    spec.decoder.projection.weight = _array(model.projection.output_kernel()).T.copy()
    spec.decoder.projection.bias = _bias(model.projection.output_bias, model.vocab_size)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    _set_vocabulary(spec, tokenizer)
    return spec


def _set_vocabulary(spec, tokenizer: Tokenizer) -> None:
    source, target = map(tokenizer.vocabulary, SIDES)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token = target[UNK_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.eos_token = target[EOS_ID]
    spec.config.add_source_eos = True


def _set_embedding(stack, embeddings, layer) -> None:
    embeddings.weight = _array(layer.embeddings)
    stack.scale_embeddings = True  # by sqrt(D)
    if layer.positions == "learned":
        stack.position_encodings.encodings = _array(layer.position_embeddings)
    elif layer.positions == "sinusoidal":
        table = sinusoidal_positions(tf.range(LONGEST), layer.d_model)
        stack.position_encodings.encodings = _array(table)


def _set_stack(spec, stack) -> None:
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        attention, norm = layer.self_attention, layer.self_attention_norm
        _set_attention(layer_spec.self_attention, attention, norm, [_QKV, _OUTPUT])
        if isinstance(kind := attention.position_kind, Relative):
            layer_spec.self_attention.relative_position_keys = _array(kind.keys)
            layer_spec.self_attention.relative_position_values = _array(kind.values)
        if layer.cross_attention:
            attention, norm = layer.cross_attention, layer.cross_attention_norm
            _set_attention(layer_spec.attention, attention, norm, [_QKV[:1], _QKV[1:], _OUTPUT])
        _set_dense(layer_spec.ffn.linear_0, layer.feed_forward.inner)
        if layer.feed_forward.gated:
            _set_dense(layer_spec.ffn.linear_0_noact, layer.feed_forward.gated)
        _set_dense(layer_spec.ffn.linear_1, layer.feed_forward.outer)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_norm.norm)
    if stack.norm:
        _set_norm(spec.layer_norm, stack.norm)


def _set_attention(spec, attention, norm, projections: list[tuple[str, ...]]) -> None:
    """Sets the linear layers from the projections that each concatenates, and the norm."""
    for linear, names in zip(spec.linear, projections, strict=True):
        parts = [getattr(attention, f"{name}_dense") for name in names]
        kernels = [_array(part.kernel).T for part in parts]
        biases = [_bias(part.bias, part.units) for part in parts]
        linear.weight = np.concatenate(kernels)  # [outputs, inputs]
        linear.bias = np.concatenate(biases)
    _set_norm(spec.layer_norm, norm.norm)


def _bias(weight, size: int) -> np.ndarray:
    """Returns a bias [size]; zeros if the model has none."""
    return np.zeros(size, "float32") if weight is None else _array(weight)


def _set_dense(spec, dense) -> None:
    spec.weight = _array(dense.kernel).T.copy()
    spec.bias = _array(dense.bias)


def _set_norm(spec, norm) -> None:
    spec.gamma = _array(norm.weights[0])
    if len(norm.weights) > 1:  # layer norm's offset
        spec.beta = _array(norm.beta)


def _array(tensor) -> np.ndarray:
    return np.array(tf.convert_to_tensor(tensor), "float32")  # a copy, for quantisation
