"""The run directory: settings, tokenizer, checkpoints, metrics, changes between sessions."""

from tf_transformer.run.run import Run, holds_other_files, versions

__all__ = ["Run", "holds_other_files", "versions"]
