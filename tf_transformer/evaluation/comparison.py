"""BLEU of several translations of one text, and the significance of their difference."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

SAMPLES = 1_000
SIGNIFICANT = 0.05  # a p-value below it is taken for a difference


@dataclass(frozen=True)
class BleuAndLength:
    """Corpus BLEU with the penalty for output that is too short, and the reason for it.

    Attributes:
        value: BLEU.
        brevity_penalty: the factor in it, 1 unless the output is shorter than the reference.
        length_ratio: tokens of the hypotheses / tokens of the references.
    """

    value: float
    brevity_penalty: float
    length_ratio: float


class Comparison:
    """Compares translations of one text by BLEU.

    Args:
        references: one for each sentence, tokenised only once.
    """

    def __init__(self, references: Sequence[str]) -> None:
        self._metric = BLEU(references=[list(references)], force=True)

    def score(self, hypotheses: Sequence[str]) -> BleuAndLength:
        """Computes BLEU of one translation a sentence, detokenised."""
        result = self._metric.corpus_score(list(hypotheses), None)
        return BleuAndLength(result.score, result.bp, result.sys_len / max(result.ref_len, 1))

    def p_value(self, baseline: Sequence[str], hypotheses: Sequence[str]) -> float:
        """Computes the probability of so large a difference in BLEU by chance alone.

        By paired bootstrap resampling of `SAMPLES` samples (Koehn 2004), as sacreBLEU has it.
        """
        if list(baseline) == list(hypotheses):
            return 1.0  # sacreBLEU counts only larger differences than that of none
        systems: list[tuple[str, Sequence[str]]]
        systems = [("baseline", list(baseline)), ("other", list(hypotheses))]
        test = PairedTest(systems, {"BLEU": self._metric}, None, "bs", SAMPLES)
        _, results = test()
        return results["BLEU"][1].p_value  # type: ignore[union-attr, return-value]

    @property
    def signature(self) -> str:
        """Signature, by sacreBLEU, of the scores."""
        return str(self._metric.get_signature())
