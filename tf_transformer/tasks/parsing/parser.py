"""The parser: a beam search constrained to trees over exactly a sentence's words."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Self, overload

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import Strings, UserError, one_or_more, pairs, quoted, strings
from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.decoding.attention import Attention
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.rules import Beams, NextToken, Rule
from tf_transformer.decoding.streams import Progress
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.run.records import WithHistory
from tf_transformer.tasks.parsing.brackets import Bracketing, score_sentence, summarise
from tf_transformer.tasks.parsing.trees import (
    MAX_DEPTH,
    Lexicon,
    Parse,
    Tree,
    check_rules,
    delinearise,
    linearised,
    read_line,
    read_trees,
    rooted,
    words_of,
)

LONGEST_CHAIN = 8  # opening brackets in a row, the maximum in GUM and CRAFT
OPEN, CLOSE, TAG = 1, 2, 3


class TreeGrammar(Rule):
    """Constrains a beam search to trees over exactly the words of its sentences.

    Every word gets one tag, by default one that the lexicon allows for it, or any of its tags;
    a closing bracket closes the innermost constituent, which must not be empty; EOS follows
    once all words are tagged and all brackets are closed. A sequence is then incomplete only if
    it reaches its length limit.

    B batch, W beam width, V vocabulary, N words of the longest sentence, G tags, t tokens so
    far.

    The attribute `kinds`, int32 [V], has OPEN, CLOSE or TAG; 0 for other tokens. Raises
    UserError if a tag of the lexicon is not a piece of the tokenizer.
    """

    def __init__(
        self, tokenizer: Tokenizer, lexicon: Lexicon, *, any_tag: bool = False
    ) -> None:
        pieces = enumerate(tokenizer.vocabulary())
        # The pieces that begin a word, without the word-start mark, and their ids.
        ids = {piece[1:]: index for index, piece in pieces if piece[0] == SPACE_PIECE}
        self.lexicon, self._any_tag = lexicon, any_tag
        _check_tags(lexicon, ids)
        kinds, closing, tag_columns = np.zeros((3, tokenizer.vocab_size), np.int32)
        for label in (text[1:] for text in ids if text.startswith("(") and text[1:]):
            if f"){label}" in ids:
                opener, closer = ids[f"({label}"], ids[f"){label}"]
                kinds[opener], kinds[closer], closing[opener] = OPEN, CLOSE, closer
        for column, tag in enumerate(lexicon.tags, start=1):
            kinds[ids[tag]], tag_columns[ids[tag]] = TAG, column
        self.kinds = tf.constant(kinds)
        self._closing = tf.constant(closing)  # int32 [V], closing token of an opening one
        self._tag_columns = tf.constant(tag_columns)  # int32 [V], from 1; 0 for other tokens

    def context(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns the tags that each word may have: bool [B, N, G], False after the last word.

        A word without a possible tag may have any.
        """
        split = [sentence.split() for sentence in sentences]
        allowed = np.zeros((len(split), max(map(len, split)), len(self.lexicon.tags)), bool)
        for row, words in zip(allowed, split, strict=True):
            for column, word in enumerate(words):
                fitting = [] if self._any_tag else self.lexicon.tags_of(word)
                row[column] = [not fitting or tag in fitting for tag in self.lexicon.tags]
        return allowed

    def next_token(self, beams: Beams) -> NextToken:
        """Returns the tokens that may follow."""
        return NextToken(allowed=self(beams.tokens, beams.context))

    def __call__(self, tokens: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """Tells which tokens may follow `tokens`, int32 [B, W, t]: bool [B, W, V].

        `context` holds the tags allowed for the words; see the method of that name.
        """
        kinds = tf.gather(self.kinds, tokens)
        is_open = kinds == OPEN
        done = tf.math.count_nonzero(kinds == TAG, axis=-1, dtype=tf.int32)  # [B, W]
        # Padded by a word without tags, for beams that have tagged all words; only impossible
        # beams have more tags than words.
        context = tf.pad(context, [[0, 0], [0, 1], [1, 0]])
        done = tf.minimum(done, tf.shape(context)[1] - 1)
        tags = tf.gather(context, done, batch_dims=1)  # [B, W, 1 + G]
        unfinished = tf.reduce_any(tags, axis=-1, keepdims=True)
        depth = tf.reduce_sum(_changes(kinds), axis=-1)
        chain = tf.shape(tokens)[-1] - _last(~is_open)  # opening brackets at the end
        may_open = (chain < LONGEST_CHAIN) & (depth < MAX_DEPTH - 2)
        may_open = unfinished & may_open[..., tf.newaxis]
        return (
            tf.gather(tags, self._tag_columns, axis=-1)
            | (may_open & (self.kinds == OPEN))
            | self._closes(tokens, kinds, unfinished[..., 0])
        )

    def _closes(self, tokens: tf.Tensor, kinds: tf.Tensor, unfinished: tf.Tensor) -> tf.Tensor:
        """Tells which closing bracket or EOS may follow, if any: bool [B, W, V]."""
        is_open, changes = kinds == OPEN, _changes(kinds)
        depths = tf.cumsum(changes, axis=-1)
        depth = tf.reduce_sum(changes, axis=-1, keepdims=True)  # [B, W, 1]
        # The innermost open bracket is the last one that led to the current depth.
        position = _last(is_open & (depths == depth))  # [B, W], from 1; 0 is none
        opener = tf.gather(_with_first(tokens), position, batch_dims=2)
        is_empty = position == tf.shape(tokens)[-1]
        closable = (depth[..., 0] > 0) & ~is_empty
        complete = (depth[..., 0] == 0) & ~unfinished
        only = tf.where(closable, tf.gather(self._closing, opener), -1)
        only = tf.where(complete, EOS_ID, only)
        return only[..., tf.newaxis] == tf.range(tf.size(self.kinds))


def _check_tags(lexicon: Lexicon, pieces: dict[str, int]) -> None:
    missing = [tag for tag in lexicon.tags if tag not in pieces]
    if missing or not lexicon.tags:
        raise UserError(
            "A parser's tokenizer must have each tag of the training trees as a single piece. "
            f"Received: {len(missing)} of {len(lexicon.tags)} tags are not, such as "
            f"{', '.join(missing[:3]) or 'all'}. Train a new run without "
            "data.tokenizer, which --init-from sets unless `--set data.tokenizer=` is given; "
            "`parse --constraint none` does not need the tags."
        )


def _changes(kinds: tf.Tensor) -> tf.Tensor:
    """Returns the change of depth by each token: 1, -1 or 0."""
    return tf.cast(kinds == OPEN, tf.int32) - tf.cast(kinds == CLOSE, tf.int32)


def _with_first(sequences: tf.Tensor) -> tf.Tensor:
    """Prepends a zero: [B, W, t] -> [B, W, t + 1]."""
    return tf.pad(sequences, [[0, 0], [0, 0], [1, 0]])


def _last(where: tf.Tensor) -> tf.Tensor:
    """Returns the position of the last True, from 1; 0 if none: [B, W, t] -> [B, W]."""
    positions = tf.where(where, tf.range(1, tf.shape(where)[-1] + 1), 0)
    return tf.reduce_max(_with_first(positions), axis=-1)


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of defects in the model's output, before repair."""

    sentences: int = 0  # without blank ones
    repaired: int = 0  # those whose sequence was no tree over their words
    repairs: int = 0  # in all of them
    cut: int = 0  # sentences whose sequence was cut off at the length limit

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


class Parser(WithHistory):
    """Parses by translation from sentences to linearised trees.

    Args:
        engine: the trained model and its tokenizer.
        decoding: settings of the search.
        grammar: constrains the search to trees over the words; None for no constraint.

    Raises:
        UserError: if the rules of the search conflict with the grammar.

    Example:
        >>> import tf_transformer
        >>> parser = tf_transformer.load("runs/parser", task="parsing")
        >>> print(parser.parse("the cat sees a dog ."))
        (...
    """

    def __init__(
        self, engine: GraphEngine, decoding: DecodingConfig, grammar: TreeGrammar | None = None
    ) -> None:
        if grammar:
            check_rules(decoding)
        self.engine, self.decoding, self.grammar = engine, decoding, grammar
        self._rules = [grammar] if grammar else []

    @overload
    def parse(self, sentences: str, progress: Progress | None = None) -> Parse: ...
    @overload
    def parse(self, sentences: Strings, progress: Progress | None = None) -> list[Parse]: ...
    def parse(self, sentences, progress=None):
        """Returns the best tree of a sentence, or of each sentence of a list, by beam search.

        Sentences are split into words at white space; brackets in them become -LRB- and -RRB-.
        A sequence that is not a tree over the words is repaired; see
        `trees.delinearise`.

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
        gold = [rooted(tree) for tree in read_trees(lines, "trees")]
        if len(gold) != len(lines):
            raise UserError(
                "`trees` must have one tree in each string. Received: "
                f"{len(gold)} trees in {len(lines)} strings."
            )
        sentences = [linearised(tree)[0].split() for tree in gold]
        return score_parses(gold, self._parse(sentences, progress))

    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        texts = [" ".join(words) for words in sentences]
        results = self.engine.translate(
            texts, self.decoding, rules=self._rules, progress=progress
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
            gold = [linearised(tree) for tree in read_line(line, "trees", number)]
            gold = gold or [("", "")]
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
