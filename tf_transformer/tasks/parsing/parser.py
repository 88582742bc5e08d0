"""Parser that finds well-formed trees over exactly a sentence's words; counts and scores."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, overload

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.alignment import Attention
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.errors import Strings, UserError, one_or_more, pairs, quoted, strings
from tf_transformer.run import Run
from tf_transformer.tasks.models import load_engine
from tf_transformer.tasks.parsing.brackets import Bracketing, score_sentence, summarise
from tf_transformer.tasks.parsing.linearisation import Parse, delinearise
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar, load_grammar
from tf_transformer.tasks.parsing.treebank import pair_of, rooted, words_of
from tf_transformer.tasks.parsing.trees import Tree, read_line, read_trees


def check_rules(decoding: DecodingConfig) -> None:
    """Refuses search rules that can forbid every continuation of a tree."""
    if decoding.no_repeat_ngram or decoding.min_length > 1:
        raise UserError(
            "`decoding.no_repeat_ngram` must be 0 and `decoding.min_length` at most 1 when the "
            f"search is constrained to trees. Received: {decoding.no_repeat_ngram} and "
            f"{decoding.min_length}. `parse --constraint none` accepts other values."
        )


@dataclasses.dataclass(frozen=True)
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
        return Counts(*map(int.__add__, *map(dataclasses.astuple, (self, other))))

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


class Parser:
    """Parses by translation from sentences to linearised trees.

    Args:
        engine: the trained model and its tokenizer.
        decoding: settings of the search.
        grammar: constrains the search to trees over the words; None for no constraint.

    Raises:
        UserError: if the rules of the search conflict with the grammar.
    """

    def __init__(
        self,
        engine: GraphEngine,
        decoding: DecodingConfig,
        grammar: TreeGrammar | None = None,
    ) -> None:
        if grammar:
            check_rules(decoding)
        self.engine, self.decoding, self.grammar = engine, decoding, grammar

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

    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        texts = [" ".join(words) for words in sentences]
        results = self.engine.translate(
            texts, self.decoding, grammar=self.grammar, progress=progress
        )
        limits = self.engine.codec(self.decoding).length_limits(texts)
        parses = []
        for words, (best, *_), limit in zip(sentences, results, limits, strict=True):
            cut = best.num_tokens >= limit
            parses.append(delinearise(best.split(), words, cut) if words else Parse(None, 0))
        return parses

    # fmt: off
    @overload
    def score(self, sentences: str, trees: str) -> Translation: ...
    @overload
    def score(self, sentences: Strings, trees: Strings) -> list[Translation]: ...
    # fmt: on
    def score(self, sentences, trees):
        """Returns the log-probabilities of given trees, scored as linearised sequences.

        Args:
            sentences: a sentence, or a list of them.
            trees: its tree in Penn brackets, whose function tags are ignored; a list for a list
                of sentences.

        Raises:
            UserError: if a tree is not well-formed, or not over the words of its sentence.
        """
        one, texts, gold = pairs(sentences=sentences, trees=trees)
        scored = self.engine.score(*self._sequences(texts, gold), self.decoding)
        results = [
            Translation(tree, each.score, each.log_prob, each.num_tokens)
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
            trees: its tree in Penn brackets; a list for a list of sentences; None for the
                model's own parse.

        Raises:
            UserError: as `score` does.
        """
        if trees is None:
            one, texts = one_or_more("sentences", sentences)
            trees = self.parse(texts)
        else:
            one, texts, trees = pairs(sentences=sentences, trees=trees)
        weights = self.engine.attention(*self._sequences(texts, trees), self.decoding)
        return weights[0] if one else weights

    def _sequences(self, texts: list[str], trees: list[str]) -> tuple[list[str], list[str]]:
        """Returns sentences and linearised trees in the model's input and output format."""
        sentences = [" ".join(words_of(text)) for text in texts]
        sequences = []
        for number, (sentence, line) in enumerate(zip(sentences, trees, strict=True), start=1):
            gold = [pair_of(tree) for tree in read_line(line, "trees", number)] or [("", "")]
            if len(gold) > 1 or gold[0][0] != sentence:
                raise UserError(
                    f"Tree {number:,} must be a single tree over the words of its sentence, "
                    f"{quoted(sentence)}. Received: {quoted(line)}."
                )
            sequences.append(gold[0][1])
        return sentences, sequences


def score_parses(gold: Iterable[Tree], parses: Iterable[Parse]) -> Bracketing:
    """Scores parses against the gold trees by Collins's rules."""
    return summarise(
        score_sentence((tree,), (parse.tree,) if parse.tree else ())
        for tree, parse in zip(gold, parses, strict=True)
    )


def load_parser(
    run: Run,
    checkpoint: str | Path | None = None,
    *,
    decoding: DecodingConfig | None = None,
    constraint: str = "tags",
    **options: Any,
) -> Parser:
    """Loads the parser of a run.

    Args:
        run: the run.
        checkpoint: see `load_engine`.
        decoding: settings of the search; None for those of the run.
        constraint: "tags" to search only for trees with tags that training saw for each word,
            "words" for trees with any tags, "none" for any sequence, which is then repaired.
        **options: `ensemble` and `precision`; see `load_engine`.

    Raises:
        UserError: if a run lacks the checkpoint, a tokenizer or the lexicon.
    """
    engine = load_engine(run, checkpoint, **options)
    grammar = None
    if constraint != "none":
        grammar = load_grammar(run, engine.tokenizer, any_tag=constraint == "words")
    return Parser(engine, decoding or run.config.decoding, grammar)
