"""Parser: well-formed trees over exactly the words of each sentence."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.linearisation import delinearise
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.treebank import words_of
from tf_transformer.tasks.parsing.trees import Tree


@dataclass(frozen=True)
class Counts:
    """Counts of what the model wrote, before any repair.

    Attributes:
        sentences: parsed; blank ones are not.
        repaired: those whose sequence was no tree over their words until it was mended.
        repairs: the changes that this took, of all together.
        cut: those whose sequence ended at the length limit.
    """

    sentences: int = 0
    repaired: int = 0
    repairs: int = 0
    cut: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(int.__add__, astuple(self), astuple(other)))

    @property
    def well_formed(self) -> float:
        """Share of sentences without a repair; 1 if there are none."""
        return 1 - self.repaired / self.sentences if self.sentences else 1.0

    def summary(self) -> str:
        """Formats a line such as "9 sentences; repaired: 1 (11.1%), by 2 changes; ..."."""
        return (
            f"{self.sentences:,} sentences; well-formed: {self.well_formed:.1%}; repaired: "
            f"{self.repaired:,}, by {self.repairs:,} changes; cut at the length limit: "
            f"{self.cut:,}"
        )


@dataclass(frozen=True)
class Parses:
    """Trees of sentences, None for a blank one, and counts of their repairs."""

    trees: list[Tree | None]
    counts: Counts


def check_rules(decoding: DecodingConfig) -> None:
    """Refuses rules that forbid what a tree needs next: the same brackets again, or its end."""
    if decoding.no_repeat_ngram or decoding.min_length > 1:
        raise UserError(
            "`decoding.no_repeat_ngram` and `decoding.min_length` must be off where the search "
            f"keeps to trees. Received: {decoding.no_repeat_ngram} and {decoding.min_length}. "
            "`parse --unconstrained` takes them."
        )


class Parser:
    """Parses with a translator from sentences to linearised trees.

    Args:
        translator: the trained model.
        grammar: what keeps its search to trees over the words; None leaves it free.

    Raises:
        UserError: if the translator has rules under which the grammar could find no tree.
    """

    def __init__(self, translator: BatchTranslator, grammar: TreeGrammar | None = None) -> None:
        if grammar:
            check_rules(translator.decoding)
        self._translator = translator
        self._grammar = grammar

    def parse(
        self, sentences: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> Parses:
        """Returns the best tree of each sentence by beam search.

        Words are what blanks divide; brackets in them become -LRB- and -RRB-. A sequence that
        is no tree over the words is mended, see `linearisation.delinearise`.

        Args:
            sentences: any number of them.
            progress: called with the number of sentences done so far.
        """
        words = [words_of(sentence) for sentence in sentences]
        texts = [" ".join(sentence) for sentence in words]
        hypotheses = self._translator.translate(texts, progress, grammar=self._grammar)
        best = [ranked[0] for ranked in hypotheses]
        parses = [
            delinearise(hypothesis.text.split(), sentence) if sentence else None
            for hypothesis, sentence in zip(best, words, strict=True)
        ]
        limits = self._translator.codec.length_limits(texts)
        repairs = [parse.repairs for parse in parses if parse]
        counts = Counts(
            sentences=len(repairs),
            repaired=sum(number > 0 for number in repairs),
            repairs=sum(repairs),
            cut=sum(h.num_tokens >= limit for h, limit in zip(best, limits, strict=True)),
        )
        return Parses([parse.tree if parse else None for parse in parses], counts)
