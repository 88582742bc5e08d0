"""Words and sequences of a parser in a graph, as Python has them elsewhere.

B batch, N words, T tokens, G tags.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tasks.parsing.linearisation import SELF_TAGGED, UNKNOWN, leaf_tag
from tf_transformer.tasks.parsing.tree_grammar import CLOSE, OPEN, TAG, TreeGrammar

# The white space at which Python's str.split() divides.
_BLANKS = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]+"
)
_HAS_LETTER_OR_DIGIT = r"(?s).*[\pL\pN].*"
_ANY_WORD = ("\ue000", "a\ue000")  # words that no text has, without and with a letter


class _Table(tf.Module):
    """Rows of words: those listed have their own, others one of the first two."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self.words = [*_ANY_WORD, *words]
        rows = tf.lookup.KeyValueTensorInitializer(
            tf.constant(words, tf.string), tf.range(2, 2 + len(words))
        )
        self.table = tf.lookup.StaticHashTable(rows, default_value=-1)

    def rows(self, words: tf.Tensor) -> tf.Tensor:
        """Returns the row of each word, 1 for others with a letter or digit, 0 without."""
        other = tf.cast(tf.strings.regex_full_match(words, _HAS_LETTER_OR_DIGIT), tf.int32)
        found = self.table.lookup(words)
        return tf.where(found < 0, other, found)


class TreeGraph:
    """Contexts of a grammar and trees of sequences, in a graph.

    Args:
        grammar: that of the search.

    Attributes:
        tables: of words, which the graph refers to.
    """

    def __init__(self, grammar: TreeGrammar) -> None:
        self._grammar = grammar
        known = _Table(sorted(SELF_TAGGED.union(grammar.lexicon.words)))
        self.tables = known, itself = known, _Table(sorted(SELF_TAGGED))
        self._allowed = grammar.context([" ".join(known.words)])[0]  # bool [words, G]
        tags = (UNKNOWN, *grammar.lexicon.tags)
        self._leaf_tags = np.array([[leaf_tag(word, t) for t in tags] for word in itself.words])

    def context(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Returns the grammar's context of words, strings [B, None]: bool [B, N, G]."""
        rows = tf.ragged.map_flat_values(self.tables[0].rows, words)
        none = len(self._allowed)
        return tf.gather(np.pad(self._allowed, [(0, 1), (0, 0)]), rows.to_tensor(none))

    def trees(self, tokens: tf.Tensor, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tree that each sequence expresses or begins, and its repairs [B].

        These are those of `linearisation.delinearise`: brackets without words go, words without
        a tag go to the end of the outermost constituent that is open or was the last, and what
        is open is closed.
        """
        kinds = tf.gather(self._grammar.kinds, tokens)
        is_open, is_close = kinds == OPEN, kinds == CLOSE
        tagged, opens, closes = (_count(kinds == kind) for kind in (TAG, OPEN, CLOSE))
        missing = tf.cast(words.row_lengths(), tf.int32) - tagged
        positions = tf.range(1, tf.shape(tokens)[1] + 1)
        last = tf.reduce_max(tf.where((kinds == TAG) | is_close, positions, 0), axis=1)
        empty = is_open & (positions > last[:, tf.newaxis])
        depth = opens - _count(empty) - closes  # of what has words
        # Words without a tag keep the outermost bracket, even if it is empty or closed.
        keeps = (missing > 0) & (depth == 0) & (_count(empty) > 0)
        empty &= ~(keeps[:, tf.newaxis] & (positions == last[:, tf.newaxis] + 1))
        last_kind = tf.gather(tf.pad(kinds, [[0, 0], [1, 0]]), last, batch_dims=1)
        reopens = (missing > 0) & (depth == 0) & ~keeps & (last_kind == CLOSE)
        gone = empty | (reopens[:, tf.newaxis] & (positions == last[:, tf.newaxis]))
        inside = depth + tf.cast(keeps | reopens, tf.int32)
        before = tf.where(missing > 0, tf.maximum(inside - 1, 0), inside)
        written, rest = self._leaves(tokens, kinds, words)
        labels = tf.gather(tf.constant(self._grammar.labels), tokens)
        parts = tf.where(is_open, " (" + labels, tf.where(is_close, ")", written))
        head = tf.strings.reduce_join(tf.where(gone, "", parts), axis=1)
        tree = "(TOP" + head + _closing(before) + rest + _closing(inside - before) + ")"
        return tree, opens - closes + missing + _count(empty)

    def _leaves(
        self, tokens: tf.Tensor, kinds: tf.Tensor, words: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the leaf that a tag at each position stands for, and those without a tag.

        Strings [B, T], and [B]: one string of all words that are left.
        """
        dense = tf.concat([words.to_tensor(), tf.fill([words.nrows(), 1], "")], axis=1)
        rows, numbers = self.tables[1].rows(dense), tf.range(tf.shape(dense)[1])
        tagged = _count(kinds == TAG)[:, tf.newaxis]
        sizes = tf.cast(words.row_lengths(), tf.int32)[:, tf.newaxis]
        unknown = " (" + tf.gather(self._leaf_tags[:, 0], rows) + " " + dense + ")"
        rest = tf.where((numbers >= tagged) & (numbers < sizes), unknown, "")
        order = tf.cumsum(tf.cast(kinds == TAG, tf.int32), axis=1) - 1  # of each tag's word
        order = tf.clip_by_value(order, 0, numbers[-1])
        columns = tf.gather(self._grammar.tag_columns, tokens)
        tags = tf.gather_nd(
            self._leaf_tags, tf.stack([tf.gather(rows, order, batch_dims=1), columns], axis=-1)
        )
        leaves = " (" + tags + " " + tf.gather(dense, order, batch_dims=1) + ")"
        leaves = tf.where(kinds == TAG, leaves, "")
        return leaves, tf.strings.reduce_join(rest, axis=1)


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of each sentence, as `treebank.words_of` does: strings [B, None]."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    for bracket, name in ((r"\(", "-LRB-"), (r"\)", "-RRB-"), (_BLANKS, " ")):
        text = tf.strings.regex_replace(text, bracket, name)
    return tf.strings.split(text)


def _count(where: tf.Tensor) -> tf.Tensor:
    return tf.math.count_nonzero(where, axis=1, dtype=tf.int32)


def _closing(numbers: tf.Tensor) -> tf.Tensor:
    """Returns as many closing brackets as each number says, strings [B]."""
    return tf.strings.reduce_join(tf.where(tf.sequence_mask(numbers), ")", ""), axis=1)
