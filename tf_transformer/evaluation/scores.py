"""Scores of a set of translations, as printed by `evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass

from tf_transformer.evaluation.bleu import Score, bleu, chrf


@dataclass(frozen=True, repr=False)
class Scores:
    """BLEU and chrF of translations, and the share that exactly match a reference."""

    bleu: Score
    chrf: Score
    exact: float
    sentences: int

    @property
    def exact_line(self) -> str:
        """The share of exact matches as a line such as "exact 10.0% (2 of 20)"."""
        equal = round(self.exact * self.sentences)
        return f"exact {self.exact:.1%} ({equal:,} of {self.sentences:,})"

    def __repr__(self) -> str:
        return f"{self.bleu}\n{self.chrf}\n{self.exact_line}"


def score_translations(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Scores:
    """Scores translations against one or more sets of references; see `bleu.bleu`."""
    by_bleu = bleu(hypotheses, *references, lowercase=lowercase, tokenize=tokenize)
    pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
    exact = sum(hypothesis in each for hypothesis, each in pairs) / len(hypotheses)
    return Scores(by_bleu, chrf(hypotheses, *references), exact, len(hypotheses))
