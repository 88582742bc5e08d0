"""The Transformer ("Attention Is All You Need", 2017) in TensorFlow and Keras."""

import importlib
import sys
from typing import TYPE_CHECKING

from tf_transformer.base.former import CLASSES, gone

if TYPE_CHECKING:  # for type checkers and autocompletion; the same names as in `_MODULES`
    from tf_transformer import evaluation as evaluation
    from tf_transformer import layers as layers
    from tf_transformer.api.train import train as train
    from tf_transformer.base.errors import UserError as UserError
    from tf_transformer.config import DecodingConfig as DecodingConfig
    from tf_transformer.config import SamplingConfig as SamplingConfig
    from tf_transformer.config.presets import preset as preset
    from tf_transformer.data.batches import text_dataset as text_dataset
    from tf_transformer.data.tokenizer import Tokenizer as Tokenizer
    from tf_transformer.data.vocabulary import train_tokenizer as train_tokenizer
    from tf_transformer.decoding.interface import Translation as Translation
    from tf_transformer.decoding.rules import NextToken as NextToken
    from tf_transformer.decoding.rules import Rule as Rule
    from tf_transformer.layers import Decoder as Decoder
    from tf_transformer.layers import DecoderLayer as DecoderLayer
    from tf_transformer.layers import Encoder as Encoder
    from tf_transformer.layers import EncoderLayer as EncoderLayer
    from tf_transformer.layers import MultiHeadAttention as MultiHeadAttention
    from tf_transformer.layers import PositionalEmbedding as PositionalEmbedding
    from tf_transformer.loading.load import load as load
    from tf_transformer.models.losses import (
        LabelSmoothedCrossEntropy as LabelSmoothedCrossEntropy,
    )
    from tf_transformer.models.losses import Perplexity as Perplexity
    from tf_transformer.models.losses import TokenAccuracy as TokenAccuracy
    from tf_transformer.models.losses import TransformerSchedule as TransformerSchedule
    from tf_transformer.models.transformer import Transformer as Transformer
    from tf_transformer.run import Run as Run
    from tf_transformer.translation.translator import Translator as Translator

__version__ = "2.0.0"

# Imported on first access, so that the command line starts without TensorFlow.
_MODULES = {
    "api.train": ("train",),
    "config": ("DecodingConfig", "SamplingConfig"),
    "config.presets": ("preset",),
    "data.batches": ("text_dataset",),
    "data.tokenizer": ("Tokenizer",),
    "data.vocabulary": ("train_tokenizer",),
    "decoding.interface": ("Translation",),
    "decoding.rules": ("NextToken", "Rule"),
    "base.errors": ("UserError",),
    "layers": (
        "Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "MultiHeadAttention",
        "PositionalEmbedding",
    ),
    "loading.load": ("load",),
    "models.losses": (
        "LabelSmoothedCrossEntropy", "Perplexity", "TokenAccuracy", "TransformerSchedule",
    ),
    "models.transformer": ("Transformer",),
    "run": ("Run",),
    "translation.translator": ("Translator",),
}  # fmt: skip
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names}
_PUBLIC_MODULES = ("evaluation", "layers")

__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in CLASSES:
        raise ImportError(gone(f"tf_transformer.{name}", CLASSES[name]))  # `from` too shows it
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC_MODULES, *__all__])


def _register() -> None:
    """Registers all classes of saved models, for `keras.saving.load_model`."""
    for module in ("fast.optimizers", "models.losses", "models.transformer"):
        importlib.import_module(f"{__name__}.{module}")


# Whoever has imported Keras waits no longer for this. Otherwise it would take seconds, and the
# classes register themselves when one of them is imported.
_KERAS = getattr(sys.modules.get("keras"), "config", None)  # if it is imported, and whole
if _KERAS and _KERAS.backend() == "tensorflow":
    _register()
