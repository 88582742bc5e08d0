"""Word splitting and repair of a parser's output as TensorFlow graphs, for its export.

B batch, N words, T tokens, G tags.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.tasks.parsing.linearisation import SELF_TAGGED, UNKNOWN, leaf_tag
from tf_transformer.tasks.parsing.tree_grammar import CLOSE, OPEN, TAG, TreeGrammar

# The white space at which Python's str.split() splits.
_BLANKS = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]+"
)
_HAS_LETTER_OR_DIGIT = r"(?s).*[\pL\pN].*"
_ANY_WORD = ("\ue000", "a\ue000")  # stand for unlisted words, without and with a letter


class _Table(tf.Module):
    """Row numbers of words: one for each listed word; others share the first two."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self.words = [*_ANY_WORD, *words]
        rows = tf.lookup.KeyValueTensorInitializer(
            tf.constant(words, tf.string), tf.range(2, 2 + len(words))
        )
        self.table = tf.lookup.StaticHashTable(rows, default_value=-1)

    def rows(self, words: tf.Tensor) -> tf.Tensor:
        """Returns each word's row; for others, 1 if they have a letter or digit, else 0."""
        other = tf.cast(tf.strings.regex_full_match(words, _HAS_LETTER_OR_DIGIT), tf.int32)
        rows = self.table.lookup(words)
        return tf.where(rows < 0, other, rows)


class TreeGraph:
    """Graph versions of `TreeGrammar.context` and `linearisation.delinearise`.

    Args:
        grammar: the grammar of the search.

    Attributes:
        tables: lookup tables of words used by the graph.
    """

    def __init__(self, grammar: TreeGrammar) -> None:
        self._grammar = grammar
        known = _Table(sorted(SELF_TAGGED.union(grammar.lexicon.words)))
        self.tables = known, fixed = known, _Table(sorted(SELF_TAGGED))
        self._allowed = grammar.context([" ".join(known.words)])[0]  # bool [words, G]
        tags = (UNKNOWN, *grammar.lexicon.tags)
        self._leaf_tags = np.array([[leaf_tag(word, t) for t in tags] for word in fixed.words])

    def context(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Returns the tags that words, strings [B, None], may have: bool [B, N, G]."""
        rows = tf.ragged.map_flat_values(self.tables[0].rows, words)
        padding = len(self._allowed)  # index of the row without tags
        return tf.gather(np.pad(self._allowed, [(0, 1), (0, 0)]), rows.to_tensor(padding))

    def trees(self, tokens: tf.Tensor, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tree of each sequence and its number of repairs, [B] each.

        The grammar rules out all defects but an early end, which is repaired as in
        `linearisation.delinearise`: brackets without words are dropped, words without a tag are
        added to the end of the outermost open constituent, or else of the last one closed, and
        open constituents are closed.
        """
        kinds = tf.gather(self._grammar.kinds, tokens)
        is_open, is_close = kinds == OPEN, kinds == CLOSE
        tagged, opens, closes = (_count(kinds == kind) for kind in (TAG, OPEN, CLOSE))
        missing = tf.cast(words.row_lengths(), tf.int32) - tagged
        positions = tf.range(1, tf.shape(tokens)[1] + 1)
        last = tf.reduce_max(tf.where((kinds == TAG) | is_close, positions, 0), axis=1)
        empty = is_open & (positions > last[:, tf.newaxis])
        depth = opens - _count(empty) - closes  # open constituents that have words
        # Words without a tag go into the outermost bracket, even if it is empty or closed.
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
        """Returns the leaf of the tag at each position, and the leaves of untagged words.

        Returns:
            Strings [B, T], "" where the token is no tag; and strings [B], all untagged words.
        """
        dense = tf.concat([words.to_tensor(), tf.fill([words.nrows(), 1], "")], axis=1)
        rows, numbers = self.tables[1].rows(dense), tf.range(tf.shape(dense)[1])
        tagged = _count(kinds == TAG)[:, tf.newaxis]
        sizes = tf.cast(words.row_lengths(), tf.int32)[:, tf.newaxis]
        unknown = " (" + tf.gather(self._leaf_tags[:, 0], rows) + " " + dense + ")"
        rest = tf.where((numbers >= tagged) & (numbers < sizes), unknown, "")
        order = tf.cumsum(tf.cast(kinds == TAG, tf.int32), axis=1) - 1  # index of the word
        order = tf.clip_by_value(order, 0, numbers[-1])
        columns = tf.gather(self._grammar.tag_columns, tokens)
        tags = tf.gather_nd(
            self._leaf_tags, tf.stack([tf.gather(rows, order, batch_dims=1), columns], axis=-1)
        )
        leaves = " (" + tags + " " + tf.gather(dense, order, batch_dims=1) + ")"
        leaves = tf.where(kinds == TAG, leaves, "")
        return leaves, tf.strings.reduce_join(rest, axis=1)


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits sentences into words like `treebank.words_of`: strings [B] -> [B, None]."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    for pattern, replacement in ((r"\(", "-LRB-"), (r"\)", "-RRB-"), (_BLANKS, " ")):
        text = tf.strings.regex_replace(text, pattern, replacement)
    return tf.strings.split(text)


def _count(where: tf.Tensor) -> tf.Tensor:
    return tf.math.count_nonzero(where, axis=1, dtype=tf.int32)


def _closing(counts: tf.Tensor) -> tf.Tensor:
    """Returns `counts` closing brackets: int32 [B] -> strings [B]."""
    return tf.strings.reduce_join(tf.where(tf.sequence_mask(counts), ")", ""), axis=1)
