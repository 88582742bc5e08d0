"""The run directory: settings, tokenizer, checkpoints, metrics, and what changed in between."""

from tf_transformer.run.installed import versions
from tf_transformer.run.run import Run, holds_other_files

__all__ = ["Run", "holds_other_files", "versions"]
