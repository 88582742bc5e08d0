"""All checks together, for `tf-transformer doctor` and for the start of a training."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from tf_transformer.config import Config, DataConfig
from tf_transformer.data.batching import bucket_boundaries
from tf_transformer.data.corpora import corpora
from tf_transformer.doctor import line_checks, pair_checks, vocabulary_checks
from tf_transformer.doctor.findings import Finding
from tf_transformer.doctor.survey import Survey, take_survey
from tf_transformer.tasks.sequences import SequenceTask
from tf_transformer.training.memory import PROCESS_BYTES, device_memory, gigabytes
from tf_transformer.training.parts import Workload, choose_size

QUICK_PAIRS = 50_000  # of the training text that a training looks at when it starts

Progress = Callable[[str, int], None]


def quick_findings(task: SequenceTask, replicas: int = 1, *, prose: bool = True) -> list[str]:
    """Returns the warnings for the start of a training, a line each.

    It looks at the whole dev set and at `QUICK_PAIRS` training pairs, evenly spread: 1 s on
    Multi30k. Of a larger corpus the rest is read past, about 1 s for a million pairs.

    Args:
        task: data, tokenizer and batches of the run.
        replicas: devices that share a batch.
        prose: see `text_findings`.
    """
    every = -(-task.train.report.read // QUICK_PAIRS)
    surveys = survey_text(task.data, every=every)
    findings = [
        *text_findings(surveys, task.data.max_length, prose=prose),
        *task_findings(task, surveys),
        memory_finding(task.run.config, task.shapes, replicas, task.encoder_outputs),
    ]
    return [f"{finding.check}: {finding.text}" for finding in findings if finding.warning]


def survey_text(
    data: DataConfig,
    test: Sequence[str] = (),
    *,
    every: int = 1,
    progress: Progress = lambda text, done: None,
) -> list[Survey]:
    """Surveys train, dev and, if it has prefixes, test.

    Args:
        data: whose corpora are read.
        test: names of corpora as those of `data`.
        every: which training pairs to look at, see `take_survey`.
        progress: called with what is read and how many pairs of it are.

    Raises:
        UserError: as `corpora` and `ParallelText.plain_pairs` do.
    """
    names = {"train": data.train, "dev": data.valid, "test": tuple(test)}
    return [
        take_survey(
            name,
            corpora(each, data),
            every=every if name == "train" else 1,
            progress=functools.partial(progress, f"reading {name}"),
        )
        for name, each in names.items()
        if each
    ]


def text_findings(
    surveys: Sequence[Survey], max_length: int, *, prose: bool = True
) -> list[Finding]:
    """Runs all checks that need only the text.

    Args:
        surveys: those of train first.
        max_length: of the configuration, in tokens.
        prose: whether both sides are sentences of a language; if not, checks of how sentences
            are written and of how two languages go together are left out.
    """
    train, *others = surveys
    return [
        *(_writing_findings(surveys) if prose else []),
        *line_checks.check_empty(surveys),
        *line_checks.check_length(surveys, max_length),
        *(_language_findings(surveys) if prose else []),
        *pair_checks.check_repetitions(train),
        *pair_checks.check_overlap(train, others),
    ]


def _writing_findings(surveys: Sequence[Survey]) -> list[Finding]:
    return [
        *line_checks.check_characters(surveys),
        *line_checks.check_tokenised(surveys),
        *line_checks.check_case(surveys),
    ]


def _language_findings(surveys: Sequence[Survey]) -> list[Finding]:
    return [
        *pair_checks.check_ratio(surveys),
        *pair_checks.check_copies(surveys),
        *pair_checks.check_direction(surveys),
    ]


def task_findings(task: SequenceTask, surveys: Sequence[Survey]) -> list[Finding]:
    """Runs the checks that need the tokenizer and the tokenised corpora as well."""
    config, sides = task.run.config, task.train.text_sides
    # The built-in corpus always gets a size it can fill, and each side its own pieces.
    own_text = bool(config.data.train) and not config.data.separate_vocabularies
    return [
        *vocabulary_checks.check_size(task.tokenizer, config.model.vocab_size),
        *vocabulary_checks.check_unknown(task.tokenizer, surveys, sides),
        *vocabulary_checks.check_round_trip(task.tokenizer, surveys, sides),
        *(vocabulary_checks.check_unused(task.tokenizer, task.train) if own_text else []),
        *vocabulary_checks.check_filters({"train": task.train, "dev": task.valid}),
    ]


def longest_shape(config: Config) -> tuple[int, int]:
    """Returns the shape (rows, length) of a batch of the longest sentences allowed."""
    length = bucket_boundaries(config.data.max_length)[-1]
    return max(1, config.training.batch_tokens // length), length


def memory_finding(
    config: Config,
    shapes: Sequence[tuple[int, int]],
    replicas: int = 1,
    encoder_outputs: int = 0,
) -> Finding:
    """Compares the memory for the largest of some batch shapes with that of a device.

    Args:
        config: of the run.
        shapes: (rows, length) of batches.
        replicas: devices that share a batch.
        encoder_outputs: see `training.task.Task`.
    """
    device, available = memory = device_memory()
    work = Workload(config, shapes, replicas, encoder_outputs=encoder_outputs)
    size = choose_size(work, memory)
    parts = f"in parts of {size:,} " if work.has_parts(size) else ""
    process = f" and {gigabytes(PROCESS_BYTES)} the process itself" if device == "RAM" else ""
    needed = f"{parts}about {work.estimate(size)}{process}"
    text = f"{needed}; the {device} has {gigabytes(available)}"
    if work.needed(size, device) <= available:
        return Finding("memory", text)
    chosen = config.replace({"training.max_tokens_per_device": None})
    other = choose_size(dataclasses.replace(work, config=chosen), memory)
    advice = "No part of a batch fits: take a smaller model or data.max_length."
    if work.needed(other, device) <= available:
        advice = (
            f"Leave --max-tokens-per-device {size} out: parts of {other:,} would be chosen, "
            "with the same result."
        )
    return Finding("memory", f"{text}. {advice}", warning=True)
