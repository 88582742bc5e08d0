"""The grammar of trees, a rule of the search, and the tags of words that it allows.

The rule is written in TensorFlow, so it is for runs, not for exports and LiteRT.
"""

import collections
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

import tf_transformer
from experiments.parsing.trees import MAX_DEPTH, leaf_tag
from tf_transformer import UserError

MIN_COUNT = 5  # a rarer word may have tags with which it was not seen
LONGEST_CHAIN = 8  # opening brackets in a row, the maximum in GUM and CRAFT
OPEN, CLOSE, TAG = 1, 2, 3
EOS_ID = 3  # of every tokenizer of the package
WORD_START = "\u2581"  # what SentencePiece writes for the space before a word


@dataclass(frozen=True)
class Lexicon:
    """Tag dictionary (Ratnaparkhi 1996): the tags that each word may have."""

    tags: tuple[str, ...]  # all tags of the training trees
    # The tags of each word that occurs there at least MIN_COUNT times.
    words: dict[str, tuple[str, ...]]

    @classmethod
    def of_sequences(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Learns a lexicon from the words and tokens of trees; see `linearised`."""
        seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for sentence, sequence in pairs:
            tags = (token for token in sequence.split() if token[0] not in "()")
            for word, tag in zip(sentence.split(), tags, strict=True):
                seen[word][tag] += 1
        frequent = {word: tags for word, tags in seen.items() if tags.total() >= MIN_COUNT}
        return cls(
            tags=tuple(sorted({tag for counts in seen.values() for tag in counts})),
            words={word: tuple(sorted(frequent[word])) for word in sorted(frequent)},
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a lexicon file; UserError if it is missing or damaged."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            words = {word: tuple(tags.split()) for word, tags in content["words"].items()}
            return cls(tuple(content["tags"].split()), words)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror}. `train` writes it; `parse "
                "--constraint none` does not need it."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path} is damaged. Expected JSON with tags and words, as written by `train`."
            ) from None

    def text(self) -> str:
        """Returns the content of a lexicon file, one word per line."""
        words = {word: " ".join(tags) for word, tags in self.words.items()}
        content = {"tags": " ".join(self.tags), "words": words}
        return json.dumps(content, ensure_ascii=False, indent=0) + "\n"

    def tags_of(self, word: str) -> list[str]:
        """Returns the tags seen with a word, or all tags if it is rare.

        Tags that `leaf_tag` would change are left out.
        """
        return [tag for tag in self.words.get(word, self.tags) if leaf_tag(word, tag) == tag]


class TreeGrammar(tf_transformer.Rule):
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
        self, tokenizer: tf_transformer.Tokenizer, lexicon: Lexicon, *, any_tag: bool = False
    ) -> None:
        pieces = enumerate(tokenizer.vocabulary())
        # The pieces that begin a word, without the word-start mark, and their ids.
        ids = {piece[1:]: index for index, piece in pieces if piece[0] == WORD_START}
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

    def next_token(self, beams: Any) -> tf_transformer.NextToken:
        """Returns which tokens may follow those of each beam."""
        return tf_transformer.NextToken(allowed=self.allowed(beams.tokens, beams.context))

    def allowed(self, tokens: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
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
            f"{', '.join(missing[:3]) or 'all'}. Train a parser of its own on these trees; "
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
