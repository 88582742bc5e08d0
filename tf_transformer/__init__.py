"""The Transformer ("Attention Is All You Need", 2017) in TensorFlow and Keras."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and autocompletion; the same names as in `_MODULES`
    from tf_transformer.api.train import train as train
    from tf_transformer.base.errors import UserError as UserError
    from tf_transformer.config import DecodingConfig as DecodingConfig
    from tf_transformer.config import SamplingConfig as SamplingConfig
    from tf_transformer.config.presets import preset as preset
    from tf_transformer.data.batches import text_dataset as text_dataset
    from tf_transformer.data.tokenizer import Tokenizer as Tokenizer
    from tf_transformer.data.vocabulary import train_tokenizer as train_tokenizer
    from tf_transformer.layers import Decoder as Decoder
    from tf_transformer.layers import DecoderLayer as DecoderLayer
    from tf_transformer.layers import Encoder as Encoder
    from tf_transformer.layers import EncoderLayer as EncoderLayer
    from tf_transformer.layers import MultiHeadAttention as MultiHeadAttention
    from tf_transformer.layers import PositionalEmbedding as PositionalEmbedding
    from tf_transformer.loading.kinds import load as load
    from tf_transformer.models.classifier import Classifier as Classifier
    from tf_transformer.models.losses import (
        LabelSmoothedCrossEntropy as LabelSmoothedCrossEntropy,
    )
    from tf_transformer.models.losses import Perplexity as Perplexity
    from tf_transformer.models.losses import TokenAccuracy as TokenAccuracy
    from tf_transformer.models.losses import TransformerSchedule as TransformerSchedule
    from tf_transformer.models.transformer import Transformer as Transformer
    from tf_transformer.tasks.classification.predictor import (
        SentenceClassifier as SentenceClassifier,
    )
    from tf_transformer.tasks.parsing.parser import Parser as Parser
    from tf_transformer.tasks.translation.translator import Translator as Translator

__version__ = "1.0.0"

# Imported on first access, so that the command line starts without TensorFlow.
_MODULES = {
    "api.train": ("train",),
    "config": ("DecodingConfig", "SamplingConfig"),
    "config.presets": ("preset",),
    "data.batches": ("text_dataset",),
    "data.tokenizer": ("Tokenizer",),
    "data.vocabulary": ("train_tokenizer",),
    "base.errors": ("UserError",),
    "layers": (
        "Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "MultiHeadAttention",
        "PositionalEmbedding",
    ),
    "loading.kinds": ("load",),
    "models.classifier": ("Classifier",),
    "models.losses": (
        "LabelSmoothedCrossEntropy", "Perplexity", "TokenAccuracy", "TransformerSchedule",
    ),
    "models.transformer": ("Transformer",),
    "tasks.classification.predictor": ("SentenceClassifier",),
    "tasks.parsing.parser": ("Parser",),
    "tasks.translation.translator": ("Translator",),
}  # fmt: skip
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _PUBLIC[name]
    if module.startswith(("layers", "models")):
        # All of them: Keras loads a saved model only if its classes have been imported.
        for other in _MODULES:
            if other.startswith(("layers", "models")):
                importlib.import_module(f"{__name__}.{other}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
