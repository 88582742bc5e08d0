"""A model with its signatures: everything that an export needs to know about it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.serving.selftest import Comparison
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.token_signature import Function
from tf_transformer.serving.warmup import Request


@dataclass(frozen=True)
class Exportable:
    """A model with its signatures.

    Attributes:
        models: the Keras models whose weights the signatures use; several for an ensemble.
        tokenizer: the tokenizer of the models.
        functions: a TensorFlow function for each signature name.
        requests: warm-up requests for all signatures.
        compare: runs the signatures of a loaded export on awkward texts; yields their answers
            with those expected.
        sizes: entries for "sizes" in the card, such as the longest source in tokens.
        resources: other objects that the graph refers to, such as tables.
        text: whether the signatures take text; otherwise the tokenizer is copied beside the
            model.
    """

    models: Sequence[keras.Model]
    tokenizer: Tokenizer
    functions: Mapping[str, Function]
    requests: Sequence[Request]
    compare: Callable[[SavedModelSession], Iterable[Comparison]]
    sizes: Mapping[str, int]
    resources: Sequence[tf.Module] = field(default=())
    text: bool = True

    def facts(self) -> dict[str, Any]:
        """Returns the entries of the card on vocabulary and sizes."""
        return facts(self.models, self.tokenizer, self.sizes)

    def module(self) -> tf.Module:
        """Returns the objects that the graph refers to, without Keras objects.

        Those would be saved with a second copy of every weight.
        """
        module = tf.Module(name="model")
        module.weights = [variable.value for model in self.models for variable in model.weights]
        module.tokenizer = self.tokenizer if self.text else None
        module.resources = list(self.resources)
        return module


def facts(
    models: Sequence[keras.Model], tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the card's entries on vocabulary and sizes; see `Exportable` for arguments."""
    weights = [weight for model in models for weight in model.weights]
    parameters = sum(math.prod(weight.shape) for weight in weights)
    ids = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
    return {
        "vocabulary": {"size": tokenizer.vocab_size, "ids": ids},
        "sizes": {"parameters": parameters, **sizes},
    }
