"""The run directory: settings, tokenizer, checkpoints, metrics, changes between sessions."""

from tf_transformer.run.run import Run, require_created_by

__all__ = ["Run", "require_created_by"]
