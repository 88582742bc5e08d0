"""Settings that may change between two sessions of one run."""

from collections.abc import Callable, Iterable
from typing import Any

from tf_transformer.config import Config

# None of these affects the model, its loss or the state of its optimizer.
_CHANGEABLE = (
    "preset",
    "decoding.",
    "training.steps",
    "training.batch_tokens",
    "training.max_tokens_per_device",
    "training.recompute",
    "training.learning_rate_scale",
    "training.warmup_steps",
    "training.clip_norm",
    "training.evaluate_every",
    "training.keep_last",
    "training.average_last",
    "training.patience",
    "training.save_minutes",
    "training.deterministic",
)


def forbidden_changes(stored: Config, given: Config, allowed: Iterable[str]) -> list[str]:
    """Lists the changed settings that may not change, as "NAME was X, now Y"."""
    return differences(stored, given, lambda name: name.startswith((*_CHANGEABLE, *allowed)))


def differences(stored: Config, given: Config, ignored: Callable[[str], bool]) -> list[str]:
    """Lists the settings that differ and are not `ignored`, as "NAME was X, now Y"."""
    before, now = _resolved(stored), _resolved(given)
    return [
        f"{name} was {before[name]!r}, now {now[name]!r}"
        for name in now
        if now[name] != before[name] and not ignored(name)
    ]


def _resolved(config: Config) -> dict[str, Any]:
    """Returns all settings; a depth that follows from another one, as a number."""
    return config.flat() | {"model.decoder_layers": config.model.num_decoder_layers}
