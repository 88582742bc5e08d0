"""Weights of a Marian checkpoint: read from its file, and assigned to a Transformer.

Marian's positional encodings have all sines before all cosines; ours alternate. Nothing else
depends on the order of the D units between layers, so the conversion permutes them in every
weight that reads or writes them, and the model needs no setting for that.
"""

from pathlib import Path

import numpy as np

from tf_transformer.conversion.marian_vocabulary import MarianVocabulary
from tf_transformer.errors import UserError, missing_extra
from tf_transformer.models.transformer import Transformer

Arrays = dict[str, np.ndarray]

# A logit that makes a piece impossible without dominating a label-smoothed loss.
_NEVER = -100.0
_SHARED = "model.shared.weight"
# Other names for the same matrix, all optional.
_COPIES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def assign_weights(model: Transformer, tensors: Arrays, vocabulary: MarianVocabulary) -> None:
    """Assigns Marian's tensors to a model, in the model's order of pieces and units.

    Raises:
        UserError: if a tensor is missing, of another shape, or left over.
    """
    marian = _Tensors(tensors, model.config.d_model)
    vocab_size = vocabulary.rows.max() + 1
    embeddings = marian.take_embeddings(vocab_size)[vocabulary.rows]
    bias = marian.take("final_logits_bias", (1, vocab_size))[0, vocabulary.rows]
    bias[vocabulary.inputs_only] = _NEVER
    model.projection.embeddings.assign(embeddings[:, marian.units])
    model.projection.output_bias.assign(bias)
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            _assign_layer(layer, marian, f"model.{name}.layers.{number}")
    marian.check_all_taken()


def _assign_layer(layer, marian: "_Tensors", prefix: str) -> None:
    marian.assign_attention(f"{prefix}.self_attn", layer.self_attention)
    marian.assign_norm(f"{prefix}.self_attn_layer_norm", layer.self_attention_norm.norm)
    if hasattr(layer, "cross_attention"):
        marian.assign_attention(f"{prefix}.encoder_attn", layer.cross_attention)
        norm = layer.cross_attention_norm.norm
        marian.assign_norm(f"{prefix}.encoder_attn_layer_norm", norm)
    marian.assign_reader(f"{prefix}.fc1", layer.feed_forward.inner)
    marian.assign_writer(f"{prefix}.fc2", layer.feed_forward.outer)
    marian.assign_norm(f"{prefix}.final_layer_norm", layer.feed_forward_norm.norm)


class _Tensors:
    """The tensors of a checkpoint, which can be taken only once.

    Attributes:
        units: int [D], Marian's unit for each of ours: sine i is unit i, cosine i is D / 2 + i.
    """

    def __init__(self, tensors: Arrays, d_model: int) -> None:
        self._left = dict(tensors)
        halves = np.arange(d_model).reshape(2, -1)
        self.units = halves.T.reshape(-1)

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
        embeddings = self.take(_SHARED, shape)
        for name in _COPIES:
            if name in self._left and not np.array_equal(self.take(name, shape), embeddings):
                raise UserError(
                    f"{name} must equal {_SHARED}: a checkpoint with several embeddings cannot "
                    "be converted. Received: another matrix."
                )
        return embeddings

    def assign_reader(self, name: str, dense) -> None:
        """Assigns a dense layer that reads the D units: weight [outputs, D], bias [outputs]."""
        kernel, bias = dense.kernel, dense.bias
        kernel.assign(self.take(f"{name}.weight", kernel.shape[::-1]).T[self.units])
        bias.assign(self.take(f"{name}.bias", bias.shape))

    def assign_writer(self, name: str, dense) -> None:
        """Assigns a dense layer that writes the D units: weight [D, inputs], bias [D]."""
        kernel, bias = dense.kernel, dense.bias
        kernel.assign(self.take(f"{name}.weight", kernel.shape[::-1])[self.units].T)
        bias.assign(self.take(f"{name}.bias", bias.shape)[self.units])

    def assign_attention(self, name: str, layer) -> None:
        """Assigns the four projections of an attention layer."""
        self.assign_reader(f"{name}.q_proj", layer.query_dense)
        self.assign_reader(f"{name}.k_proj", layer.key_dense)
        self.assign_reader(f"{name}.v_proj", layer.value_dense)
        self.assign_writer(f"{name}.out_proj", layer.output_dense)

    def assign_norm(self, name: str, layer) -> None:
        """Assigns gain and bias of a layer norm."""
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


# --- Files --------------------------------------------------------------------------------


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
