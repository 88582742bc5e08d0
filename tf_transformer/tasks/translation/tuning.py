"""Tuning of a run's checkpoint, beam size and length penalty by BLEU on dev text; its plot."""

import dataclasses
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.data.corpora import all_pairs, corpora
from tf_transformer.data.corpus import read_pairs
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import SIGNIFICANT, BleuAndLength, Comparison
from tf_transformer.files import locked
from tf_transformer.plots.figure import STYLES, new_figure, save
from tf_transformer.progress import ProgressBars
from tf_transformer.run import Run
from tf_transformer.run.weight_files import read_arrays
from tf_transformer.tables import Table
from tf_transformer.tasks.models import load_engine
from tf_transformer.tasks.sequences import Progress
from tf_transformer.tasks.translation.task import TranslationTask

logger = logging.getLogger(__name__)

ALPHAS = tuple(tenths / 10 for tenths in range(21))
_TOLERANCE = 1e-4  # between the scores of the same tokens in search and in forced decoding


@dataclass(frozen=True)
class Choice:
    """Checkpoint and search settings to compare."""

    checkpoint: str
    beam_size: int
    alpha: float

    def __str__(self) -> str:
        return f"{self.checkpoint}, beam {self.beam_size}, alpha {self.alpha:g}"

    @classmethod
    def of(cls, run: Run) -> "Choice":
        """Returns the current settings of a run."""
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: getattr(run.config.decoding, name) for name in names})

    def settings(self) -> dict[str, Any]:
        """Returns the choice as settings, by their full names."""
        return {f"decoding.{name}": value for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True)
class Candidate:
    """A choice with its translations of the dev text and their BLEU."""

    choice: Choice
    hypotheses: list[Translation]
    bleu: BleuAndLength


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning.

    Attributes:
        candidates: all candidates.
        present: the candidate with the run's current settings.
        best: the candidate with the highest BLEU.
        p_value: significance of the difference between the present and the best candidate.
        signature: of BLEU.
    """

    candidates: list[Candidate]
    present: Candidate
    best: Candidate
    p_value: float
    signature: str

    @property
    def chosen(self) -> Candidate:
        """The best if it is significantly better, else the present one."""
        return self.best if self.p_value < SIGNIFICANT else self.present

    def table(self) -> Table:
        """Returns BLEU and brevity penalty by alpha, a column per checkpoint and beam size."""
        columns = curves(self.candidates)
        rows = [
            [f"{row[0].choice.alpha:g}"]
            + [f"{each.bleu.value:.2f} ({each.bleu.brevity_penalty:.3f})" for each in row]
            for row in zip(*columns.values(), strict=True)
        ]
        return Table(["alpha", *columns], rows)


@dataclass(frozen=True)
class SearchErrors:
    """Counts of sentences in which the search missed a translation with a higher model score.

    Attributes:
        sentences: all sentences.
        references: sentences whose reference has a higher score.
        other_beams: sentences for which another beam size found a higher score.
    """

    sentences: int
    references: int
    other_beams: int


class Tuner:
    """Translates a dev text with all candidate settings of a run and compares the results.

    Args:
        run: a translation run.
        sources: the dev text.
        references: its translations.
        progress: called with the name of the current step and the number of sentences done.
        tag: text to put before each source; "" if the sources already have their tags.
    """

    def __init__(
        self,
        run: Run,
        sources: Sequence[str],
        references: Sequence[str],
        progress: Progress,
        tag: str | None = None,
    ) -> None:
        self._run, self._tag = run, tag
        self._sources, self._references = list(sources), list(references)
        self._progress = progress

    def tune(
        self, checkpoints: Sequence[str], beam_sizes: Sequence[int], alphas: Sequence[float]
    ) -> Tuning:
        """Compares all combinations and the current settings; one search serves all alphas."""
        current = Choice.of(self._run)
        comparison = Comparison(self._references, self._run.config.data.bleu_tokenizer)
        candidates = [
            Candidate(choice, best, comparison.score(best))
            for checkpoint in dict.fromkeys([current.checkpoint, *checkpoints])
            for choice, best in self._decode(
                checkpoint, {current.beam_size, *beam_sizes}, sorted({current.alpha, *alphas})
            )
        ]
        present = next(each for each in candidates if each.choice == current)
        best = max(candidates, key=lambda each: (each.bleu.value, each is present))
        p_value = comparison.p_value(present.hypotheses, best.hypotheses)
        return Tuning(candidates, present, best, p_value, comparison.signature)

    def _decode(
        self, checkpoint: str, beam_sizes: set[int], alphas: Sequence[float]
    ) -> Iterator[tuple[Choice, list[Translation]]]:
        engine = load_engine(self._run, checkpoint, tag=self._tag)
        for beam_size in sorted(beam_sizes):
            decoding = dataclasses.replace(self._run.config.decoding, beam_size=beam_size)
            report = functools.partial(self._progress, f"{checkpoint}, beam {beam_size}")
            best = engine.translate(self._sources, decoding, alphas=alphas, progress=report)
            for column, alpha in enumerate(alphas):
                choice = Choice(checkpoint, beam_size, alpha)
                yield choice, [by_alpha[column] for by_alpha in best]

    def search_errors(self, tuning: Tuning) -> SearchErrors:
        """Counts the search errors of the chosen candidate."""
        chosen = tuning.chosen
        choice, scores = chosen.choice, [each.score for each in chosen.hypotheses]
        engine = load_engine(self._run, choice.checkpoint, tag=self._tag)
        decoding = dataclasses.replace(self._run.config.decoding, alpha=choice.alpha)
        report = functools.partial(self._progress, "references")
        forced = engine.score(self._sources, self._references, decoding, report)
        by_beam = [
            [hypothesis.score for hypothesis in candidate.hypotheses]
            for candidate in tuning.candidates
            if dataclasses.replace(candidate.choice, beam_size=choice.beam_size) == choice
        ]
        highest = [max(row) for row in zip(*by_beam, strict=True)]
        references = [each.score for each in forced]
        return SearchErrors(len(scores), _above(references, scores), _above(highest, scores))


def _above(scores: Sequence[float], others: Sequence[float]) -> int:
    pairs = zip(scores, others, strict=True)
    return sum(score > other + _TOLERANCE for score, other in pairs)


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

    Args:
        run: a translation run, whose folder is locked meanwhile.
        text: files of sources and references; by default the run's dev text.
        tag: text to put before each source of `text`.
        alphas: exponents of the length penalty to try.
        beam_sizes: beam sizes to try besides the run's.
        checkpoints: weights to try; by default best, and average if it differs.

    Raises:
        UserError: if there is no text, or the run lacks a checkpoint.
    """
    if lookahead := run.config.decoding.lookahead:
        message = "decoding.lookahead is %d, but tuning searches exactly, as with 0"
        logger.warning(message, lookahead)
    with locked(run.path):
        name, pairs = _dev_text(run, text)
        sources, references = zip(*pairs, strict=True)
        with ProgressBars(len(sources)) as bars:
            # The run's own text has its tags.
            tuner = Tuner(run, sources, references, bars, tag if text else "")
            tuning = tuner.tune(checkpoints or _checkpoints(run), beam_sizes, alphas)
            errors = tuner.search_errors(tuning)
        _log(tuning, errors)
        if tuning.chosen is tuning.present:
            logger.info("%s keeps its settings", run.path)
        else:
            run.change_settings(tuning.chosen.choice.settings(), f"tuned on {name}")
    return tuning


def _checkpoints(run: Run) -> list[str]:
    """Returns the checkpoints to try: best and average, as far as they exist and differ."""
    files = {"best": run.checkpoints.best, "average": run.checkpoints.average}
    existing = [name for name, file in files.items() if file.exists()]
    if len(existing) == 2 and _same_weights(*files.values()):
        existing.remove("average")  # training has chosen it as best
    return existing


def _same_weights(*files: Path) -> bool:
    one, other = (read_arrays(file, prefix="model/") for file in files)
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def _dev_text(run: Run, text: tuple[str, str] | None) -> tuple[str, list[tuple[str, str]]]:
    """Returns the name of the dev text and its pairs."""
    if not text and run.has_no_text:
        raise UserError(
            f"{run.path} has no record of its text, like every converted or pruned run: give "
            "--source and --reference. Received: neither."
        )
    if text:
        name, pairs = text[0], list(read_pairs(Path(text[0]), Path(text[1])))
    else:
        data = TranslationTask.effective_data(run)
        texts = corpora(data.valid, data)
        name = ", ".join(str(text.source) for text in texts)
        pairs = list(all_pairs(texts))
    if not pairs:
        raise UserError(f"{name} must have at least one sentence. Received: none.")
    return name, pairs


def _log(tuning: Tuning, errors: SearchErrors) -> None:
    logger.info("present  %s", _described(tuning.present))
    logger.info("best     %s", _described(tuning.best))
    logger.info("%s; paired bootstrap: p = %.3f", tuning.signature, tuning.p_value)
    logger.info(
        "search errors of %s: among %s sentences, the model prefers the reference in %s, the "
        "result of another beam in %s",
        tuning.chosen.choice,
        *(f"{n:,}" for n in (errors.sentences, errors.references, errors.other_beams)),
    )


def _described(candidate: Candidate) -> str:
    bleu = candidate.bleu
    return (
        f"{candidate.choice}: BLEU {bleu.value:.2f}, brevity penalty "
        f"{bleu.brevity_penalty:.3f}, length {bleu.length_ratio:.3f} of the reference"
    )


def draw_tuning(tuning: Tuning, path: Path) -> None:
    """Draws a curve for each checkpoint and beam size; marks the present and the best choice.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    figure = new_figure(6.5, 5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for index, (label, curve) in enumerate(curves(tuning.candidates).items()):
        style = STYLES[index % len(STYLES)] | {"markersize": 3}
        alphas = [candidate.choice.alpha for candidate in curve]
        bleus = [candidate.bleu for candidate in curve]
        above.plot(alphas, [bleu.value for bleu in bleus], label=label, **style)
        below.plot(alphas, [bleu.length_ratio for bleu in bleus], **style)
    for name, candidate, marker in (
        ("present", tuning.present, "o"),
        (f"best, p = {tuning.p_value:.3f}", tuning.best, "*"),
    ):
        above.plot(
            [candidate.choice.alpha], [candidate.bleu.value], marker, color="none",
            markeredgecolor="black", markersize=13, label=f"{name}: {candidate.bleu.value:.2f}",
        )  # fmt: skip
    below.axhline(1, color="0.5", linewidth=0.8)
    above.set(ylabel="dev BLEU", title="Dev BLEU by length penalty")
    below.set(ylabel="tokens of output\n/ of reference")
    below.set_xlabel(f"alpha, exponent of the length penalty\n{tuning.signature}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    above.legend(fontsize="small")
    save(figure, path)


def curves(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Groups candidates by checkpoint and beam size, under a label for the plot."""
    grouped: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        label = f"{candidate.choice.checkpoint}, beam {candidate.choice.beam_size}"
        grouped.setdefault(label, []).append(candidate)
    return grouped
