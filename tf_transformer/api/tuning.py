"""Tuning of a run's checkpoint, beam size and length penalty by BLEU on dev text."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import locked
from tf_transformer.base.output import NamedProgress, ProgressBars, Table
from tf_transformer.config import DecodingConfig
from tf_transformer.data.text import all_pairs, corpora, read_some_pairs
from tf_transformer.decoding.interface import Translation
from tf_transformer.evaluation import (
    SIGNIFICANT,
    BleuAndLength,
    bleu_and_length,
    make_metric,
    paired_bootstrap,
    tokenizer_for,
)
from tf_transformer.loading.translators import load_engine
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import read_arrays
from tf_transformer.translation.task import TranslationTask

logger = logging.getLogger(__name__)

ALPHAS = tuple(tenths / 10 for tenths in range(21))


@dataclass(frozen=True)
class Trial:
    """Settings with the translations of the dev text by them, and their BLEU."""

    settings: DecodingConfig
    hypotheses: list[Translation]
    bleu: BleuAndLength

    @property
    def name(self) -> str:
        """The checkpoint and the beam size."""
        return f"{self.settings.checkpoint}, beam {self.settings.beam_size}"

    def __str__(self) -> str:
        bleu = self.bleu
        return (
            f"{self.name}, alpha {self.settings.alpha:g}: BLEU {bleu.value:.2f}, "
            f"brevity penalty {bleu.brevity_penalty:.3f}, "
            f"length {bleu.length_ratio:.3f} of the reference"
        )


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning."""

    tried: list[Trial]
    present: Trial  # with the run's current settings
    best: Trial  # with the highest BLEU
    p_value: float  # one-sided significance of the best's lead over the present
    signature: str  # of BLEU

    @property
    def chosen(self) -> Trial:
        """The best if it is significantly better, else the present one."""
        return self.best if self.p_value < SIGNIFICANT else self.present

    def table(self) -> Table:
        """Returns BLEU and brevity penalty by alpha, a column per checkpoint and beam size."""
        columns: dict[str, list[Trial]] = {}
        for trial in self.tried:
            columns.setdefault(trial.name, []).append(trial)
        rows = [
            [f"{row[0].settings.alpha:g}"]
            + [f"{trial.bleu.value:.2f} ({trial.bleu.brevity_penalty:.3f})" for trial in row]
            for row in zip(*columns.values(), strict=True)
        ]
        return Table(["alpha", *columns], rows)


def compare_settings(
    run: Run,
    sources: Sequence[str],
    references: Sequence[str],
    checkpoints: Sequence[str],
    beam_sizes: Sequence[int],
    alphas: Sequence[float],
    progress: NamedProgress,
    tag: str | None = None,
) -> Tuning:
    """Translates a dev text with all combinations and the run's current settings.

    One search serves all `alphas`. The tag stands before each source; "" if the sources already
    have their tags.
    """
    current = run.config.decoding
    alphas = sorted({current.alpha, *alphas})
    tokenize = tokenizer_for(run.config.data.bleu_tokenizer, references)
    metric = make_metric("bleu", [references], tokenize)
    tried = []
    for checkpoint in dict.fromkeys([current.checkpoint, *checkpoints]):
        engine = load_engine(run, checkpoint, tag=tag)
        for beam_size in sorted({current.beam_size, *beam_sizes}):
            decoding = replace(current, checkpoint=checkpoint, beam_size=beam_size)
            report = functools.partial(progress, f"{checkpoint}, beam {beam_size}")
            ranked = engine.translate(sources, decoding, alphas=alphas, progress=report)
            for alpha, column in zip(alphas, zip(*ranked, strict=True), strict=True):
                bleu = bleu_and_length(metric, column)
                tried.append(Trial(replace(decoding, alpha=alpha), [*column], bleu))
    present = next(trial for trial in tried if trial.settings == current)
    best = max(tried, key=lambda trial: (trial.bleu.value, trial is present))
    p_value = paired_bootstrap(metric, present.hypotheses, best.hypotheses)
    return Tuning(tried, present, best, p_value, str(metric.get_signature()))


def tune(
    run: Run,
    text: tuple[str, str] | None = None,
    *,
    tag: str | None = None,
    alphas: Sequence[float] = ALPHAS,
    beam_sizes: Sequence[int] = (),
    checkpoints: Sequence[str] | None = None,
) -> Tuning:
    """Compares settings of a run by BLEU on dev text, and writes significantly better ones.

    The run's folder is locked meanwhile. `text` names files of sources, which get the tag, and
    references; by default it is the run's dev text. Beam sizes are tried besides the run's;
    checkpoints are by default best, and average if it differs. Raises UserError if there is no
    text, or the run lacks a checkpoint.
    """
    if lookahead := run.config.decoding.lookahead:
        message = "decoding.lookahead is %d, but tuning searches exactly, as with 0"
        logger.warning(message, lookahead)
    with locked(run.path):
        text_name, pairs = _dev_text(run, text)
        sources, references = zip(*pairs, strict=True)
        with ProgressBars(len(sources)) as bars:
            tuning = compare_settings(
                run,
                sources,
                references,
                checkpoints or _checkpoints(run),
                beam_sizes,
                alphas,
                bars,
                tag if text else "",  # the run's own text has its tags
            )
        logger.info("present  %s", tuning.present)
        logger.info("best     %s", tuning.best)
        logger.info(
            "%s; paired bootstrap, one-sided: p = %.3f", tuning.signature, tuning.p_value
        )
        if tuning.chosen is tuning.present:
            logger.info("%s keeps its settings", run.path)
        else:
            chosen, names = tuning.chosen.settings, ("checkpoint", "beam_size", "alpha")
            values = {f"decoding.{name}": getattr(chosen, name) for name in names}
            run.change_settings(values, f"tuned on {text_name}")
    return tuning


def _checkpoints(run: Run) -> list[str]:
    """Returns the checkpoints to try: best and average, as far as they exist and differ."""
    files = {"best": run.checkpoints.best, "average": run.checkpoints.average}
    existing = [name for name, file in files.items() if file.exists()]
    if len(existing) == 2:
        best, average = (read_arrays(file, prefix="model/") for file in files.values())
        if best.keys() == average.keys() and all(
            np.array_equal(best[name], average[name]) for name in best
        ):
            existing.remove("average")  # training has chosen it as best
    return existing


def _dev_text(run: Run, text: tuple[str, str] | None) -> tuple[str, list[tuple[str, str]]]:
    if not text and run.has_no_text:
        raise UserError(
            f"{run.path} has no record of its text, like every converted or pruned run: give "
            "`source` and `reference`. Received: neither."
        )
    if text:
        return text[0], read_some_pairs(*text)
    data = TranslationTask.effective_data(run)
    texts = corpora(data.valid, data)
    for corpus in texts:
        corpus.check()
    return ", ".join(str(corpus.source) for corpus in texts), list(all_pairs(texts))
