"""Transforms for Apache Beam: large texts cleaned, translated and scored on many machines."""

from typing import Any

from tf_transformer.base.errors import missing_extra

__all__ = ["Clean", "ReadLines", "Score", "Translate"]


def __getattr__(name: str) -> Any:
    """Imports Beam, which logs while it is imported, not before it is needed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tf_transformer.bulk import transforms
    except ModuleNotFoundError as error:
        if error.name != "apache_beam":
            raise
        raise missing_extra("tf_transformer.bulk", "apache-beam", "beam") from None
    return getattr(transforms, name)
