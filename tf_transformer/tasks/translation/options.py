"""Search settings as keyword arguments of methods, without the prefix `decoding.`."""

import dataclasses
from typing import Any

from tf_transformer.config import SAMPLING, SETTINGS, DecodingConfig, SamplingConfig
from tf_transformer.config.settings import nearest
from tf_transformer.errors import UserError, quoted

_DECODING = {name.partition(".")[2]: SETTINGS[name] for name in SETTINGS if "decoding." in name}
del _DECODING["checkpoint"]  # chosen when a run is loaded


def search_options(
    options: dict[str, Any], decoding: DecodingConfig, sample: bool = False
) -> tuple[DecodingConfig, SamplingConfig | None]:
    """Returns `decoding` with `options` applied and, with `sample`, the sampling settings.

    Raises:
        UserError: if there is no such option, a value is out of range, a sampling option is
            given without `sample`, or a beam-search option with it.
    """
    known = _DECODING | SAMPLING
    for name in options:
        if name not in known:
            raise UserError(f"There is no option {quoted(name)}.{nearest(name, known)}")
    values = {name: known[name].check(name, value) for name, value in options.items()}
    sampling = {name: value for name, value in values.items() if name in SAMPLING}
    if sampling and not sample:
        raise UserError(
            f"`{next(iter(sampling))}` needs `sample=True`. Received: `sample=False`."
        )
    of_beams = ("beam_size", "alpha", "lookahead")
    if wrong := [name for name in of_beams if sample and name in values]:
        raise UserError(f"`sample=True` draws and does not search: leave out `{wrong[0]}`.")
    search = {name: value for name, value in values.items() if name in _DECODING}
    decoding = dataclasses.replace(decoding, **search)
    return decoding, SamplingConfig(**sampling) if sample else None
