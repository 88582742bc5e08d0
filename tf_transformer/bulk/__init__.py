"""Transforms for Apache Beam: large texts cleaned, translated and scored on many machines."""

from tf_transformer.base.errors import missing_extra

try:
    from tf_transformer.bulk.transforms import Clean, ReadLines, Score, Translate
except ModuleNotFoundError:
    raise missing_extra("tf_transformer.bulk", "apache-beam", "beam") from None

__all__ = ["Clean", "ReadLines", "Score", "Translate"]
