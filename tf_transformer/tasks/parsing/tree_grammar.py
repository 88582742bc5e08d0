"""Grammar of linearised trees, which constrains a beam search."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.lexicon import LEXICON_FILE, Lexicon
from tf_transformer.tasks.parsing.trees import MAX_DEPTH

LONGEST_CHAIN = 8  # opening brackets in a row, the maximum in GUM and CRAFT
OPEN, CLOSE, TAG = 1, 2, 3


class TreeGrammar:
    """Constrains a beam search to trees over exactly the words of its sentences.

    Every word gets one tag, by default one that the lexicon allows for it; a closing bracket
    closes the innermost constituent, which must not be empty; EOS follows once all words are
    tagged and all brackets are closed. A sequence is then incomplete only if it reaches its
    length limit.

    B batch, W beam width, V vocabulary, N words of the longest sentence, G tags, t tokens so
    far.

    Args:
        tokenizer: the parser's tokenizer, in which brackets and tags are single pieces.
        lexicon: the tags of each word.
        any_tag: whether every word may have any tag of the lexicon.

    Attributes:
        lexicon: the tags of each word.
        kinds: int32 [V], OPEN, CLOSE or TAG; 0 for other tokens.

    Raises:
        UserError: if a tag is not a piece of the tokenizer.
    """

    def __init__(
        self, tokenizer: Tokenizer, lexicon: Lexicon, *, any_tag: bool = False
    ) -> None:
        ids = _words_of(tokenizer)
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


def load_grammar(run: Run, tokenizer: Tokenizer, *, any_tag: bool = False) -> TreeGrammar:
    """Loads the grammar of a parsing run; see `TreeGrammar` for `any_tag`.

    Raises:
        UserError: if its lexicon is missing, damaged or does not fit the tokenizer.
    """
    return TreeGrammar(tokenizer, Lexicon.load(run.path / LEXICON_FILE), any_tag=any_tag)


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


def _words_of(tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the pieces that begin a word, without the word-start mark, and their ids."""
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    texts = [piece.decode("utf-8") for piece in pieces]
    return {text[1:]: index for index, text in enumerate(texts) if text[0] == SPACE_PIECE}


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
