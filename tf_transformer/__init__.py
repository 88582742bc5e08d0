"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in TensorFlow, Keras."""

import importlib

__version__ = "0.1.0"

# Imported when first asked for, so that the command line starts without TensorFlow.
_PUBLIC = {
    "LabelSmoothedCrossEntropy": "training.losses",
    "Perplexity": "training.metrics",
    "Tokenizer": "data.tokenizer",
    "TokenAccuracy": "training.metrics",
    "Transformer": "models.transformer",
    "TransformerSchedule": "training.schedules",
    "Translator": "decoding.translator",
    "preset": "presets",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
