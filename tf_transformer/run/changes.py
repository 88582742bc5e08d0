"""Settings that may change between two sessions of one run."""

from collections.abc import Callable, Iterable, Iterator
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
    return [
        f"{name} was {before!r}, now {now!r}"
        for name, before, now in changed(stored, given)
        if not ignored(name)
    ]


def changed(stored: Config, given: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name and both values of each setting that differs.

    A decoder depth that is written in another way, but equal, does not.
    """
    before, now = stored.flat(), given.flat()
    if stored.model.num_decoder_layers == given.model.num_decoder_layers:
        now["model.decoder_layers"] = before["model.decoder_layers"]
    for name in now:
        if now[name] != before[name]:
            yield name, before[name], now[name]
