"""Parser: well-formed trees over exactly the words of each sentence."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Self, overload

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.attention import Attention
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.hypotheses import Hypothesis
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.serving.publish import publish
from tf_transformer.strings import Strings, one_or_more, pairs, strings
from tf_transformer.tasks.models import Card
from tf_transformer.tasks.parsing.bracket_rules import COLLINS
from tf_transformer.tasks.parsing.brackets import Bracketing, score_sentence, summarise
from tf_transformer.tasks.parsing.linearisation import Parse, delinearise, linearise
from tf_transformer.tasks.parsing.signature import exportable
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.treebank import pair_of, rooted, words_of
from tf_transformer.tasks.parsing.trees import Tree, read_line, read_trees


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

    @classmethod
    def of(cls, parses: Iterable[Parse]) -> Self:
        """Counts the parses of sentences; blank ones do not count."""
        real = [parse for parse in parses if parse.tree]
        repairs = [parse.repairs for parse in real]
        repaired = sum(number > 0 for number in repairs)
        return cls(len(real), repaired, sum(repairs), sum(parse.cut for parse in real))

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


def check_rules(decoding: DecodingConfig) -> None:
    """Refuses rules that forbid what a tree needs next: the same brackets again, or its end."""
    if decoding.no_repeat_ngram or decoding.min_length > 1:
        raise UserError(
            "`decoding.no_repeat_ngram` and `decoding.min_length` must be off where the search "
            f"keeps to trees. Received: {decoding.no_repeat_ngram} and {decoding.min_length}. "
            "`parse --unconstrained` takes them."
        )


class BaseParser(ABC):
    """Parses, whatever it gets the trees from."""

    @overload
    def parse(self, sentences: str, progress: Progress | None = None) -> Parse: ...
    @overload
    def parse(self, sentences: Strings, progress: Progress | None = None) -> list[Parse]: ...
    def parse(self, sentences, progress=None):
        """Returns the best tree of a sentence, or of each of a list, by beam search.

        Words are what blanks divide; brackets in them become -LRB- and -RRB-. A sequence that
        is no tree over the words is mended, see `linearisation.delinearise`.

        Args:
            sentences: a string, or a list of strings.
            progress: called with the number of sentences done so far.
        """
        one, texts = one_or_more("sentences", sentences)
        parses = self._parse([words_of(text) for text in texts], progress)
        return parses[0] if one else parses

    def evaluate(self, trees: Strings, progress: Progress | None = None) -> Bracketing:
        """Parses the words of trees and scores the parses by Collins's rules.

        Args:
            trees: the correct ones, each a string in Penn brackets.
            progress: called with the number of sentences done so far.

        Raises:
            UserError: if a tree is not well-formed.
        """
        lines = strings("trees", trees)
        gold = list(rooted(read_trees(lines, "trees")))
        if len(gold) != len(lines):
            raise UserError(
                "`trees` must have a tree in each string. Received: "
                f"{len(gold)} trees in {len(lines)} strings."
            )
        sentences = [pair_of(tree)[0].split() for tree in gold]
        return score_parses(gold, self._parse(sentences, progress))

    @abstractmethod
    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        """Returns the best tree over each sentence's words."""


class Parser(BaseParser):
    """Parses with a translator from sentences to linearised trees.

    Args:
        translator: the trained model.
        grammar: what keeps its search to trees over the words; None leaves it free.
        card: makes the model card of its exports.

    Raises:
        UserError: if the translator has rules under which the grammar could find no tree.
    """

    def __init__(
        self,
        translator: BatchTranslator,
        grammar: TreeGrammar | None = None,
        *,
        card: Card | None = None,
    ) -> None:
        if grammar:
            check_rules(translator.decoding)
        self.translator, self.grammar, self._card = translator, grammar, card or dict

    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        texts = [" ".join(words) for words in sentences]
        found = self.translator.translate(texts, progress, grammar=self.grammar)
        limits = self.translator.codec.length_limits(texts)
        parses = []
        for words, (best, *_), limit in zip(sentences, found, limits, strict=True):
            parse = delinearise(best.text.split(), words) if words else Parse(None, 0)
            parses.append(dataclasses.replace(parse, cut=best.num_tokens >= limit))
        return parses

    # fmt: off
    @overload
    def score(self, sentences: str, trees: str) -> Hypothesis: ...
    @overload
    def score(self, sentences: Strings, trees: Strings) -> list[Hypothesis]: ...
    # fmt: on
    def score(self, sentences, trees):
        """Returns the log-probabilities of given trees, as the sequences that the model writes.

        Args:
            sentences: a sentence, or a list of them.
            trees: its tree in Penn brackets, of which function tags do not count; a list for a
                list.

        Raises:
            UserError: if a tree is not well-formed.
        """
        one, texts, gold = pairs(sentences=sentences, trees=trees)
        scored = self.translator.score(*self._sequences(texts, gold))
        results = [
            dataclasses.replace(each, text=tree)
            for each, tree in zip(scored, gold, strict=True)
        ]
        return results[0] if one else results

    # fmt: off
    @overload
    def attention(self, sentences: str, trees: str | None = None) -> Attention: ...
    @overload
    def attention(
        self, sentences: Strings, trees: Strings | None = None
    ) -> list[Attention]: ...
    # fmt: on
    def attention(self, sentences, trees=None):
        """Returns all attention weights of one pass over a sentence and its tree.

        Args:
            sentences: a sentence, or a list of them.
            trees: its tree in Penn brackets; a list for a list; None for the model's own.
        """
        if trees is None:
            one, texts = one_or_more("sentences", sentences)
            trees = [str(parse) for parse in self.parse(texts)]
        else:
            one, texts, trees = pairs(sentences=sentences, trees=trees)
        weights = self.translator.attention(*self._sequences(texts, trees))
        return weights[0] if one else weights

    def _sequences(self, texts: list[str], trees: list[str]) -> tuple[list[str], list[str]]:
        """Returns the sentences and sequences, as the model reads and writes them."""
        gold = [read_line(tree, "trees", n) for n, tree in enumerate(trees, start=1)]
        sequences = [" ".join(linearise(tree[0])) if tree else "" for tree in gold]
        return [" ".join(words_of(text)) for text in texts], sequences

    def export(
        self,
        output: str | Path,
        *,
        version: int | None = None,
    ) -> Path:
        """Writes a SavedModel for TF Serving, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.

        Raises:
            ValueError: if the search is free: an export has the grammar in its graph.
            UserError: if the export cannot be written, or fails its test.
        """
        if self.grammar is None:
            raise ValueError("An export needs a `grammar`. Received: a parser without one.")
        card = self._card() | {"decoding": dataclasses.asdict(self.translator.decoding)}
        return publish(exportable(self, self.grammar), Path(output), version, card)


def score_parses(gold: Iterable[Tree], parses: Iterable[Parse]) -> Bracketing:
    """Scores parses against the correct trees by Collins's rules."""
    return summarise(
        score_sentence((tree,), (parse.tree,) if parse.tree else (), COLLINS)
        for tree, parse in zip(gold, parses, strict=True)
    )
