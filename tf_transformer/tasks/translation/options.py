"""Options of a search by the bare names of their settings, as arguments of methods."""

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
    """Returns `decoding` with some options replaced, and how to draw if `sample`.

    Raises:
        UserError: if there is no such option, a value is out of its range, or the option is of
            sampling without `sample`, or of the search with it.
    """
    known = _DECODING | SAMPLING
    for name in options:
        if name not in known:
            raise UserError(f"There is no option {quoted(name)}.{nearest(name, known)}")
    values = {name: known[name].check(name, value) for name, value in options.items()}
    drawn = {name: value for name, value in values.items() if name in SAMPLING}
    if drawn and not sample:
        raise UserError(f"`{next(iter(drawn))}` needs `sample=True`. Received: it alone.")
    if wrong := [name for name in ("beam_size", "alpha") if sample and name in values]:
        raise UserError(f"`sample=True` draws and does not search: leave out `{wrong[0]}`.")
    searched = {name: value for name, value in values.items() if name in _DECODING}
    decoding = dataclasses.replace(decoding, **searched)
    return decoding, SamplingConfig(**drawn) if sample else None
