"""Metrics with which systems are compared: sacreBLEU's by name, and ratios of two sums."""

from collections.abc import Callable, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric, Score

SACREBLEU: dict[str, Callable[[list[list[str]], str], Metric]] = {
    "bleu": lambda references, tokenize: BLEU(
        references=references, tokenize=tokenize, force=True
    ),
    "chrf": lambda references, tokenize: CHRF(references=references),
}
Parts = Callable[[Sequence[str]], Sequence[Sequence[float]]]


def make_metric(
    name: str, references: Sequence[Sequence[str]], tokenize: str = "13a"
) -> Metric:
    """Returns one of `SACREBLEU`; only BLEU uses `tokenize`, sacreBLEU's tokeniser."""
    return SACREBLEU[name]([list(lines) for lines in references], tokenize)


class Ratio(Metric):
    """Ratio of two sums over sentences, as a metric for sacreBLEU's significance tests.

    Args:
        name: name of the metric.
        version: version of its implementation, for the signature.
        parts: returns the contributions of each output to numerator and denominator,
            [sentences, 2].
    """

    def __init__(self, name: str, version: str, parts: Parts) -> None:
        super().__init__()
        self.name = name
        self.version = version
        self.num_refs = 1
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
