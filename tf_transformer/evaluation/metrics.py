"""Metrics by name: sacreBLEU's, and those that other packages add as entry points."""

import math
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric, Score

from tf_transformer.config.settings import nearest
from tf_transformer.errors import UserError, quoted

GROUP = "tf_transformer.metrics"  # the group of their entry points
SACREBLEU: dict[str, Callable[[list[list[str]], str], Metric]] = {
    "bleu": lambda references, tokenize: BLEU(
        references=references, tokenize=tokenize, force=True
    ),
    "chrf": lambda references, tokenize: CHRF(references=references),
}
# (sources, hypotheses, sets of references) -> one score per sentence; higher is better
SentenceScores = Callable[[Sequence[str], Sequence[str], Sequence[Sequence[str]]], Any]
Parts = Callable[[Sequence[str]], Sequence[Sequence[float]]]


def find_metric(name: str) -> EntryPoint | None:
    """Returns the entry point of a metric; None for one of sacreBLEU's.

    Raises:
        UserError: if there is no metric with this name.
    """
    if name in SACREBLEU:
        return None
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        hint = nearest(name, [*SACREBLEU, *installed])
        raise UserError(
            f"There is no metric {quoted(name)}.{hint} Packages add metrics as entry points in "
            f"the group {GROUP}."
        )
    return installed[name]


def make_metric(
    name: str,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str = "13a",
) -> Metric:
    """Returns the metric with this name for translations of `sources`; see `find_metric`.

    Only BLEU uses `tokenize`, sacreBLEU's tokeniser.

    Raises:
        UserError: if there is no such metric, or its package cannot be imported.
    """
    if (entry := find_metric(name)) is None:
        return SACREBLEU[name]([list(lines) for lines in references], tokenize)
    try:
        scores = entry.load()
    except Exception as error:  # an import may raise anything
        why = error if isinstance(error, (ImportError, AttributeError)) else repr(error)
        raise UserError(f"The metric {name}, {entry.value}, cannot be used: {why}.") from None
    version = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
    return SentenceMean(name, version, scores, sources, references)


class Ratio(Metric):
    """Ratio of two sums over sentences, as a metric for sacreBLEU's significance tests.

    Args:
        name: name of the metric.
        version: version of its implementation, for the signature.
        parts: returns the contributions of each output to numerator and denominator,
            [sentences, 2].
        num_refs: number of sets of references, for the signature.
    """

    def __init__(self, name: str, version: str, parts: Parts, num_refs: int = 1) -> None:
        super().__init__()
        self.name = name
        self.version = version
        self.num_refs = num_refs
        self._parts = parts
        self._known: dict[tuple[str, ...], Sequence[Sequence[float]]] = {}

    def _extract_corpus_statistics(self, hypotheses, references=None):
        """Returns the contributions of each sentence; each system is scored only once."""
        key = tuple(hypotheses)
        if key not in self._known:
            self._known[key] = self._parts(key)
        return self._known[key]

    def _aggregate_and_compute(self, stats) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats) -> Score:
        numerator, denominator = stats
        return Score(self.name, numerator / denominator if denominator else 0.0)

    def get_signature(self):
        """Returns the signature with the metric's version in place of sacreBLEU's."""
        signature = super().get_signature()
        signature.info["version"] = self.version
        return signature

    # Abstract methods of `Metric` that the overridden ones never call.
    def _preprocess_segment(self, sent):
        raise NotImplementedError

    def _extract_reference_info(self, refs):
        raise NotImplementedError

    def _compute_segment_statistics(self, hypothesis, ref_kwargs):
        raise NotImplementedError


class SentenceMean(Ratio):
    """Mean of the sentence scores of another package.

    Args:
        name: name of the metric.
        version: name and version of its package.
        scores: function of sources, hypotheses and sets of references; see `SentenceScores`.
        sources: the test sentences.
        references: one or more sets of references.
    """

    def __init__(
        self,
        name: str,
        version: str,
        scores: SentenceScores,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
    ) -> None:
        super().__init__(name, version, self._counted, len(references))
        self._score = scores
        self._text = list(sources), [list(lines) for lines in references]

    def _counted(self, hypotheses: Sequence[str]) -> list[list[float]]:
        """Returns each sentence's score and its weight, 1."""
        sources, references = self._text
        values = [float(score) for score in self._score(sources, [*hypotheses], references)]
        if len(values) != len(hypotheses) or not all(map(math.isfinite, values)):
            raise UserError(
                f"The metric {self.name} must return a finite number for each of "
                f"{len(hypotheses):,} sentences. Received: {len(values):,} numbers, "
                f"{sum(map(math.isfinite, values)):,} of them finite."
            )
        return [[value, 1.0] for value in values]
