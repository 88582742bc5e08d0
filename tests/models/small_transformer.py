"""A small Transformer and a batch for it."""

import keras
import numpy as np
import pytest

from tf_transformer.models.transformer import Transformer

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}
VOCAB_SIZE = 20
SOURCE = np.array([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]], "int32")
TARGET = np.array([[2, 11, 12, 13], [2, 14, 15, 0]], "int32")

VARIANTS = pytest.mark.parametrize(
    "variant",
    [
        {},
        {"norm_first": True, "tie_embeddings": False, "decoder_layers": 1},
        {"positions": "learned", "max_length": 12, "key_dim": 3, "value_dim": 5},
        {"attention_bias": True, "output_bias": True, "activation": "swish"},
    ],
    ids=["paper", "pre-LN-untied-shallow", "learned-key_dim", "biases-swish"],
)


def make_model(**arguments) -> Transformer:
    """Creates a model from a fixed seed, without dropout."""
    keras.utils.set_random_seed(1)
    return Transformer(VOCAB_SIZE, **(SIZES | {"dropout": 0.0} | arguments))


def logits_of(model: Transformer, source, target) -> np.ndarray:
    """Returns the logits of a forward pass without dropout."""
    return np.asarray(model({"source": source, "target": target}, training=False))
