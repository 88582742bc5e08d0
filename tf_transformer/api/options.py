"""Settings named by their field alone, as arguments of `train`."""

from collections.abc import Mapping
from typing import Any

from tf_transformer.config import SETTINGS
from tf_transformer.config.settings import nearest
from tf_transformer.errors import UserError, quoted


def full_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values by "section.field", from values by "field" alone.

    Raises:
        UserError: if there is no such field, or several sections have it.
    """
    by_name: dict[str, list[str]] = {}
    for dotted in SETTINGS:
        by_name.setdefault(dotted.partition(".")[2], []).append(dotted)
    by_name["batch_tokens"] = ["training.batch_tokens"]  # like the option of `train`
    for name in fields:
        if name not in by_name:
            raise UserError(f"There is no setting {quoted(name)}.{nearest(name, by_name)}")
        if len(by_name[name]) > 1:
            raise UserError(
                f"`{name}` is a setting of several sections: give one of them, such as "
                f"settings={{{by_name[name][0]!r}: {quoted(fields[name])}}}. There are: "
                f"{', '.join(by_name[name])}."
            )
    return {by_name[name][0]: value for name, value in fields.items()}
