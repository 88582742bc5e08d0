"""All checks of a run, even before its training has begun."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.doctor import diagnosis
from tf_transformer.doctor.findings import Finding
from tf_transformer.doctor.vocabulary_checks import (
    check_round_trip,
    check_trainable,
    check_unknown,
)
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
    record = task_named(config.task).record()
    with ProgressBars() as progress, tempfile.TemporaryDirectory() as folder:
        if run.tokenizer.exists():
            task = record.prepare(run, progress)
        data = record.effective_data(run)
        if test := named:  # as parallel text, like the others
            tested = config.replace({"data.train": named, "data.valid": named})
            test = record.effective_data(Run(Path(folder), tested)).valid
        surveys = diagnosis.survey_text(data, test, progress=progress)
        if not record.prose:
            diagnosis.name_files(surveys, config.data, named)
    findings = diagnosis.text_findings(surveys, data, prose=record.prose)
    if task:
        findings += diagnosis.task_findings(task, surveys)
    elif data.tokenizer:
        tokenizer = Tokenizer(Path(data.tokenizer))
        config = config.replace({"model.vocab_size": tokenizer.vocab_size})
        findings += check_unknown(tokenizer, surveys, record.text_sides)
        findings += check_round_trip(tokenizer, surveys, record.text_sides)
    elif config.data.train:  # for the built-in corpus `train` lowers an excessive size
        findings += check_trainable(config, surveys[0], record.text_sides, prose=record.prose)
    return findings
