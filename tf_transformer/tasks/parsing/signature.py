"""The export of a parser: its signature from sentences to trees, and its self-test."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID
from tf_transformer.decoding.ensemble import models_of
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.serving.exportable import Exportable
from tf_transformer.serving.groups import in_groups
from tf_transformer.serving.selftest import Comparison, Expected, compare
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.token_signature import Outputs, of_vectors
from tf_transformer.serving.warmup import TEXTS, Request
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.tree_graph import TreeGraph, split_words
from tf_transformer.tasks.parsing.treebank import words_of

if TYPE_CHECKING:
    from tf_transformer.tasks.parsing.parser import Parser

NAME = "serving_default"


def exportable(parser: "Parser", grammar: TreeGrammar) -> Exportable:
    """Returns what an export needs to know of a parser with its grammar."""
    translator, text = parser.translator, {"text": np.array(TEXTS[:2], object)}
    graph = TreeGraph(grammar)
    return Exportable(
        models=models_of(translator.model),
        tokenizer=translator.tokenizer,
        functions={NAME: of_vectors(_parse(translator, grammar, graph), text=tf.string)},
        requests=[Request(NAME, text), Request(NAME, text, ("tree",))],
        compare=lambda session: _comparisons(session, parser),
        sizes={
            "max_source_tokens": translator.codec.source_limit,  # EOS counted
            "max_target_tokens": translator.codec.target_limit,
            "words_in_lexicon": len(grammar.lexicon.words),
        },
        resources=graph.tables,
    )


def _parse(
    translator: BatchTranslator, grammar: TreeGrammar, graph: TreeGraph
) -> Callable[[tf.Tensor], Outputs]:
    codec, decoding = translator.codec, translator.decoding
    search = in_groups(
        lambda source, context: translator.searcher.search(
            source, grammar=grammar, context=context
        ),
        [IDS, tf.TensorSpec([None, None, None], tf.bool)],
        decoding.batch_tokens // decoding.beam_size,
    )

    def parse(text: tf.Tensor) -> Outputs:
        words = split_words(text)
        joined = tf.strings.reduce_join(words, axis=-1, separator=" ")
        source, source_cut = codec.encode(joined)
        ids = source.to_tensor(PAD_ID)
        # More words than a sequence has tokens get no tag.
        found = search(ids, graph.context(words[:, : codec.target_limit + 1]))
        silent = source.row_lengths() == 1  # nothing visible: what is found does not count
        tokens = tf.where(silent[:, tf.newaxis], PAD_ID, found.tokens[:, 0])
        tree, repairs = graph.trees(tokens, words)
        blank = words.row_lengths() == 0
        return {
            "tree": tf.where(blank, "", tree),
            "score": tf.where(silent, 0.0, found.scores[:, 0]),
            "repairs": tf.where(blank, 0, repairs),
            "cut": (found.lengths[:, 0] >= codec.max_lengths(ids)) & ~silent,
            "source_cut": source_cut,
        }

    return parse


def _comparisons(session: SavedModelSession, parser: "Parser") -> Iterator[Comparison]:
    """Yields all outputs beside Python's."""
    texts = [text for text in (*TEXTS, '" ( a-b ) ... ! 3') if isinstance(text, str)]
    parses, words = parser.parse(texts), [" ".join(words_of(text)) for text in texts]
    found = parser.translator.translate(words, grammar=parser.grammar)
    _, cut = parser.translator.codec.encode(tf.constant(words))
    expected: Expected = {
        "tree": [str(parse) for parse in parses],
        "score": [best.score for best, *_ in found],
        "repairs": [parse.repairs for parse in parses],
        "cut": [parse.cut for parse in parses],
        "source_cut": cut.numpy().tolist(),
    }
    answer = session.run(NAME, {"text": np.array(texts, object)})
    yield from compare(NAME, texts, expected, answer)
