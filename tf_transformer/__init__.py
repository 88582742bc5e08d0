"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in TensorFlow, Keras."""

import importlib

__version__ = "0.1.0"

# Imported when first asked for, so that the command line starts without TensorFlow.
_PUBLIC = {
    "Classifier": "models.classifier",
    "LabelSmoothedCrossEntropy": "models.losses",
    "Perplexity": "models.metrics",
    "Tokenizer": "data.tokenizer",
    "DecodingConfig": "config",
    "SamplingConfig": "config",
    "TokenAccuracy": "models.metrics",
    "Transformer": "models.transformer",
    "TransformerSchedule": "models.schedules",
    "Translator": "decoding.translator",
    "preset": "config.presets",
}

_KERAS = (
    "models.transformer",
    "models.classifier",
    "models.losses",
    "models.metrics",
    "models.schedules",
)

__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # All at once: importing them is what lets Keras find their classes in a saved model.
    modules = {module: importlib.import_module(f"{__name__}.{module}") for module in _KERAS}
    module = _PUBLIC[name]
    return getattr(modules.get(module) or importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
