"""All checks of a run, even before its training has begun."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.doctor.checks import Finding, diagnose
from tf_transformer.progress import ProgressBars
from tf_transformer.run import Run
from tf_transformer.strings import strings
from tf_transformer.tasks.registry import task_named


def examine(run: Run, test: Sequence[str] = ()) -> list[Finding]:
    """Returns all findings; those on the tokenizer and encoded data only if these exist.

    Args:
        run: a run, whose folder may be empty.
        test: prefixes of test text, which is compared with the training text.
    """
    config, task, named = run.config, None, tuple(strings("test", test))
    task_class = task_named(config.task).task_class()
    with ProgressBars() as progress, tempfile.TemporaryDirectory() as folder:
        if run.tokenizer.exists():
            task = task_class(run, progress)
        data, texts = task_class.effective_data(run), named
        if named:  # as parallel text, like the others
            tested = config.replace({"data.train": named, "data.valid": named})
            texts = task_class.effective_data(Run(Path(folder), tested)).valid
        return diagnose(
            task_class, config, data, task, test=texts, test_files=named, progress=progress
        )
