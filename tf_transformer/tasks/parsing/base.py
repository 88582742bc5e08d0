"""Base class of the parsers, and counts and scores of their output."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Self, overload

from tf_transformer.decoding.batches import Progress
from tf_transformer.errors import UserError
from tf_transformer.strings import Strings, one_or_more, strings
from tf_transformer.tasks.parsing.bracket_rules import COLLINS
from tf_transformer.tasks.parsing.brackets import Bracketing, score_sentence, summarise
from tf_transformer.tasks.parsing.linearisation import Parse
from tf_transformer.tasks.parsing.treebank import pair_of, rooted, words_of
from tf_transformer.tasks.parsing.trees import Tree, read_trees


@dataclass(frozen=True)
class Counts:
    """Counts of defects in the model's output, before repair.

    Attributes:
        sentences: number of sentences, without blank ones.
        repaired: sentences whose sequence was not a tree over their words and was repaired.
        repairs: total number of repairs.
        cut: sentences whose sequence was cut off at the length limit.
    """

    sentences: int = 0
    repaired: int = 0
    repairs: int = 0
    cut: int = 0

    @classmethod
    def of(cls, parses: Iterable[Parse]) -> Self:
        """Counts the parses; those of blank sentences are left out."""
        parses = [parse for parse in parses if parse.tree]
        repairs = [parse.repairs for parse in parses]
        repaired = sum(count > 0 for count in repairs)
        return cls(len(parses), repaired, sum(repairs), sum(parse.cut for parse in parses))

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(int.__add__, astuple(self), astuple(other)))

    @property
    def well_formed(self) -> float:
        """Share of sentences that needed no repair; 1 if there are no sentences."""
        return 1 - self.repaired / self.sentences if self.sentences else 1.0

    def summary(self) -> str:
        """Formats a line such as "9 sentences; well-formed: 88.9%; repaired: 1, by ..."."""
        return (
            f"{self.sentences:,} sentences; well-formed: {self.well_formed:.1%}; repaired: "
            f"{self.repaired:,}, by {self.repairs:,} changes; cut at the length limit: "
            f"{self.cut:,}"
        )


class BaseParser(ABC):
    """Base class of the parsers; a subclass computes the trees."""

    @overload
    def parse(self, sentences: str, progress: Progress | None = None) -> Parse: ...
    @overload
    def parse(self, sentences: Strings, progress: Progress | None = None) -> list[Parse]: ...
    def parse(self, sentences, progress=None):
        """Returns the best tree of a sentence, or of each sentence of a list, by beam search.

        Sentences are split into words at white space; brackets in them become -LRB- and -RRB-.
        A sequence that is not a tree over the words is repaired; see
        `linearisation.delinearise`.

        Args:
            sentences: a string, or a list of strings.
            progress: called with the number of sentences done so far.
        """
        one, texts = one_or_more("sentences", sentences)
        parses = self._parse([words_of(text) for text in texts], progress)
        return parses[0] if one else parses

    def evaluate(self, trees: Strings, progress: Progress | None = None) -> Bracketing:
        """Parses the words of gold trees and scores the parses by Collins's rules.

        Args:
            trees: the gold trees, each a string in Penn brackets.
            progress: called with the number of sentences done so far.

        Raises:
            UserError: if a tree is not well-formed.
        """
        lines = strings("trees", trees)
        gold = list(rooted(read_trees(lines, "trees")))
        if len(gold) != len(lines):
            raise UserError(
                "`trees` must have one tree in each string. Received: "
                f"{len(gold)} trees in {len(lines)} strings."
            )
        sentences = [pair_of(tree)[0].split() for tree in gold]
        return score_parses(gold, self._parse(sentences, progress))

    @abstractmethod
    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        """Returns the best tree over the words of each sentence."""


def score_parses(gold: Iterable[Tree], parses: Iterable[Parse]) -> Bracketing:
    """Scores parses against the gold trees by Collins's rules."""
    return summarise(
        score_sentence((tree,), (parse.tree,) if parse.tree else (), COLLINS)
        for tree, parse in zip(gold, parses, strict=True)
    )
