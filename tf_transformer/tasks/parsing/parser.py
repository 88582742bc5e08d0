"""Parser that finds well-formed trees over exactly a sentence's words, and its export."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import overload

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID, DecodingConfig
from tf_transformer.decoding.alignment import Attention
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.ensemble import models_of
from tf_transformer.decoding.hypotheses import Hypothesis
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError, quoted
from tf_transformer.serving.functions import Outputs, in_groups, of_vectors
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.publish import Comparison, Expected, Exportable, compare, publish
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.warmup import TEXTS, Request
from tf_transformer.strings import Strings, one_or_more, pairs
from tf_transformer.tasks.models import Card
from tf_transformer.tasks.parsing.base import BaseParser
from tf_transformer.tasks.parsing.linearisation import Parse, delinearise
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.tree_graph import TreeGraph, split_words
from tf_transformer.tasks.parsing.treebank import pair_of, words_of
from tf_transformer.tasks.parsing.trees import read_line

SIGNATURE = "serving_default"


def check_rules(decoding: DecodingConfig) -> None:
    """Refuses search rules that can forbid every continuation of a tree."""
    if decoding.no_repeat_ngram or decoding.min_length > 1:
        raise UserError(
            "`decoding.no_repeat_ngram` must be 0 and `decoding.min_length` at most 1 when the "
            f"search is constrained to trees. Received: {decoding.no_repeat_ngram} and "
            f"{decoding.min_length}. `parse --constraint none` accepts other values."
        )


class Parser(BaseParser):
    """Parses with a translator from sentences to linearised trees.

    Args:
        translator: the trained model.
        grammar: constrains its search to trees over the words; None for no constraint.
        card: creates the model card of its exports.

    Raises:
        UserError: if the search rules of the translator conflict with the grammar.
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
        results = self.translator.translate(texts, progress, grammar=self.grammar)
        limits = self.translator.codec.length_limits(texts)
        parses = []
        for words, (best, *_), limit in zip(sentences, results, limits, strict=True):
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
        """Returns the log-probabilities of given trees, scored as linearised sequences.

        Args:
            sentences: a sentence, or a list of them.
            trees: its tree in Penn brackets, whose function tags are ignored; a list for a list
                of sentences.

        Raises:
            UserError: if a tree is not well-formed, or not over the words of its sentence.
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
            trees: its tree in Penn brackets; a list for a list of sentences; None for the
                model's own parse.

        Raises:
            UserError: as `score` does.
        """
        if trees is None:
            one, texts = one_or_more("sentences", sentences)
            trees = [str(parse) for parse in self.parse(texts)]
        else:
            one, texts, trees = pairs(sentences=sentences, trees=trees)
        weights = self.translator.attention(*self._sequences(texts, trees))
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

    def export(
        self, output: str | Path, *, version: int | None = None, gate: Gate | None = None
    ) -> Path:
        """Writes a SavedModel for TF Serving, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.
            gate: refuses an export that is worse than the published model; see `serving.gate`.

        Raises:
            ValueError: if there is no grammar, which an export has in its graph.
            UserError: if the export cannot be written, or fails its test.
        """
        if self.grammar is None:
            raise ValueError("An export needs a parser with a `grammar`. Received: None.")
        card = self._card() | {"decoding": dataclasses.asdict(self.translator.decoding)}
        return publish(_exportable(self, self.grammar), Path(output), version, card, gate=gate)


def _exportable(parser: Parser, grammar: TreeGrammar) -> Exportable:
    """Returns the description of a parser that an export needs."""
    translator, text = parser.translator, {"text": np.array(TEXTS[:2], object)}
    graph = TreeGraph(grammar)
    return Exportable(
        models=models_of(translator.model),
        tokenizer=translator.tokenizer,
        functions={SIGNATURE: of_vectors(_parse(translator, grammar, graph), text=tf.string)},
        requests=[Request(SIGNATURE, text), Request(SIGNATURE, text, ("tree",))],
        compare=lambda session: _comparisons(session, parser),
        sizes={
            "max_source_tokens": translator.codec.source_limit,  # with EOS
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
        # No sequence is long enough to tag words beyond its length limit.
        beams = search(ids, graph.context(words[:, : codec.target_limit + 1]))
        is_empty = source.row_lengths() == 1  # EOS only: the result of the search is ignored
        tokens = tf.where(is_empty[:, tf.newaxis], PAD_ID, beams.tokens[:, 0])
        tree, repairs = graph.trees(tokens, words)
        blank = words.row_lengths() == 0
        return {
            "tree": tf.where(blank, "", tree),
            "score": tf.where(is_empty, 0.0, beams.scores[:, 0]),
            "repairs": tf.where(blank, 0, repairs),
            "cut": (beams.lengths[:, 0] >= codec.max_lengths(ids)) & ~is_empty,
            "source_cut": source_cut,
        }

    return parse


def _comparisons(session: SavedModelSession, parser: Parser) -> Iterator[Comparison]:
    """Compares all outputs with those of Python."""
    texts = [text for text in (*TEXTS, '" ( a-b ) ... ! 3') if isinstance(text, str)]
    parses, words = parser.parse(texts), [" ".join(words_of(text)) for text in texts]
    hypotheses = parser.translator.translate(words, grammar=parser.grammar)
    _, cut = parser.translator.codec.encode(tf.constant(words))
    expected: Expected = {
        "tree": [str(parse) for parse in parses],
        "score": [best.score for best, *_ in hypotheses],
        "repairs": [parse.repairs for parse in parses],
        "cut": [parse.cut for parse in parses],
        "source_cut": cut.numpy().tolist(),
    }
    answer = session.run(SIGNATURE, {"text": np.array(texts, object)})
    yield from compare(SIGNATURE, texts, expected, answer)
