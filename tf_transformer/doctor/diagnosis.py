"""All checks combined, for `tf-transformer doctor` and for the start of training."""

import functools
from collections.abc import Callable, Sequence

from tf_transformer.config import Config, DataConfig
from tf_transformer.data.batching import bucket_boundaries
from tf_transformer.data.corpora import corpora
from tf_transformer.doctor import line_checks, pair_checks, vocabulary_checks
from tf_transformer.doctor.findings import Finding
from tf_transformer.doctor.survey import Survey, take_survey
from tf_transformer.tasks.sequences import SequenceTask

QUICK_PAIRS = 50_000  # training pairs to examine when training starts

Progress = Callable[[str, int], None]


def quick_findings(task: SequenceTask, *, prose: bool = True) -> list[str]:
    """Returns the warnings for the start of training, one line each.

    Examines the whole dev set and `QUICK_PAIRS` evenly spaced training pairs, which takes 1 s
    on Multi30k. Skipping the rest of a larger corpus takes about 1 s per million pairs.

    Args:
        task: data, tokenizer and batches of the run.
        prose: see `text_findings`.
    """
    every = -(-task.train.report.read // QUICK_PAIRS)
    surveys = survey_text(task.data, every=every)
    if not prose:
        name_files(surveys, task.run.config.data)
    findings = text_findings(surveys, task.data, prose=prose) + task_findings(task, surveys)
    return [f"{finding.check}: {finding.text}" for finding in findings if finding.warning]


def survey_text(
    data: DataConfig,
    test: Sequence[str] = (),
    *,
    every: int = 1,
    progress: Progress = lambda step, done: None,
) -> list[Survey]:
    """Surveys the training text, the dev text and the test text, if any.

    Args:
        data: settings that name the corpora.
        test: names of test corpora, in the same form as those of `data`.
        every: examine only every `every`-th training pair; see `take_survey`.
        progress: called with the name of the current step and the number of pairs read.

    Raises:
        UserError: see `corpora` and `ParallelText.plain_pairs`.
    """
    names = {"train": data.train, "dev": data.valid, "test": tuple(test)}
    return [
        take_survey(
            name,
            corpora(prefixes, data),
            every=every if name == "train" else 1,
            progress=functools.partial(progress, f"reading {name}"),
        )
        for name, prefixes in names.items()
        if prefixes
    ]


def name_files(surveys: Sequence[Survey], data: DataConfig, test: Sequence[str] = ()) -> None:
    """Locates defects in the user's files, from which the surveyed texts were made."""
    files = {"train": data.train, "dev": data.valid, "test": test}
    for survey in surveys:
        survey.files = files[survey.name]


def text_findings(
    surveys: Sequence[Survey], data: DataConfig, *, prose: bool = True
) -> list[Finding]:
    """Runs all checks that need only the text.

    Args:
        surveys: one for each split, train first.
        data: settings of the text.
        prose: whether both sides are natural-language sentences; if not, checks of writing
            conventions and of translation between two languages are skipped.
    """
    train, *others = surveys
    return [
        *(_writing_findings(surveys, data.bleu_tokenizer) if prose else []),
        *line_checks.check_empty(surveys),
        *line_checks.check_length(surveys, data.max_length),
        *(_language_findings(surveys) if prose else []),
        *pair_checks.check_repetitions(train),
        *pair_checks.check_overlap(train, others),
    ]


def _writing_findings(surveys: Sequence[Survey], bleu_tokenizer: str) -> list[Finding]:
    """Runs the checks of writing conventions."""
    return [
        *line_checks.check_characters(surveys, bleu_tokenizer),
        *line_checks.check_tokenised(surveys, bleu_tokenizer),
        *line_checks.check_bleu_tokenizer(surveys, bleu_tokenizer),
        *line_checks.check_case(surveys),
    ]


def _language_findings(surveys: Sequence[Survey]) -> list[Finding]:
    """Runs the checks of translation between two languages."""
    return [
        *pair_checks.check_ratio(surveys),
        *pair_checks.check_copies(surveys),
        *pair_checks.check_direction(surveys),
    ]


def task_findings(task: SequenceTask, surveys: Sequence[Survey]) -> list[Finding]:
    """Runs the checks that also need the tokenizer and the tokenised corpora."""
    config, sides = task.run.config, task.train.text_sides
    # Not for the built-in corpus, whose vocabulary is sized to fit, nor for separate
    # vocabularies, whose ids mean different pieces on each side, nor for the vocabulary of
    # another run, half of which may be in another language.
    seek_unused = bool(config.data.train) and not (
        config.data.separate_vocabularies or config.training.init_from
    )
    return [
        *vocabulary_checks.check_size(task.tokenizer, config.model.vocab_size),
        *vocabulary_checks.check_unknown(task.tokenizer, surveys, sides),
        *vocabulary_checks.check_round_trip(task.tokenizer, surveys, sides),
        *(vocabulary_checks.check_unused(task.tokenizer, task.train) if seek_unused else []),
        *vocabulary_checks.check_filters({"train": task.train, "dev": task.valid}),
    ]


def longest_shape(config: Config) -> tuple[int, int]:
    """Returns the shape (rows, length) of a batch of the longest sentences allowed."""
    length = bucket_boundaries(config.data.max_length)[-1]
    return max(1, config.training.batch_tokens // length), length
