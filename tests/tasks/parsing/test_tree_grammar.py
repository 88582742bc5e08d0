"""The grammar accepts every tree over the words, and nothing else."""

import random
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import lines_of, shared_data, toy_trees

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.lexicon import Lexicon
from tf_transformer.tasks.parsing.linearisation import delinearise, linearise, normalise
from tf_transformer.tasks.parsing.tree_grammar import LONGEST_CHAIN, TreeGrammar
from tf_transformer.tasks.parsing.trees import read_line

TREES = [normalise(read_line(tree)[0]) for tree in toy_trees(60, 3)]
PAIRS = [(" ".join(tree.words()), " ".join(linearise(tree))) for tree in TREES]


def train(path: Path, vocab_size: int, tags: Iterable[str] = ()) -> Tokenizer:
    """Trains a tokenizer with all tokens of `PAIRS` and more tags as single pieces."""
    tokens = {token for _, sequence in PAIRS for token in sequence.split()}.union(tags)
    sentences, symbols = (sentence for sentence, _ in PAIRS), {f"▁{one}" for one in tokens}
    train_tokenizer(sentences, path, vocab_size=vocab_size, kind="unigram", symbols=symbols)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model", 292)


@pytest.fixture(scope="module")
def grammar(tokenizer) -> TreeGrammar:
    return TreeGrammar(tokenizer, Lexicon.of_sequences(PAIRS))


def allowed(grammar: TreeGrammar, sentence: str, ids: list[int]) -> set[int]:
    """The ids that may follow `ids`."""
    tokens = tf.constant([[ids]], tf.int32, shape=[1, 1, len(ids)])
    return set(np.flatnonzero(grammar(tokens, grammar.context([sentence]))[0, 0]).tolist())


def ids_of(tokenizer: Tokenizer, sequence: str) -> list[int]:
    return [*tokenizer.tokenize([sequence])[0].numpy().tolist(), EOS_ID]


def test_every_training_tree_is_accepted(grammar, tokenizer):
    for sentence, sequence in PAIRS[:20]:
        ids = ids_of(tokenizer, sequence)
        for index, following in enumerate(ids):
            assert following in allowed(grammar, sentence, ids[:index])


def test_a_beam_is_constrained_in_a_batch_as_alone(grammar, tokenizer):
    sentences = [PAIRS[0][0], PAIRS[1][0]]
    beams = [
        [ids_of(tokenizer, sequence)[:4] for _, sequence in PAIRS[n : n + 3]] for n in (0, 1)
    ]
    together = grammar(tf.constant(beams), grammar.context(sentences)).numpy()
    for row, sentence in enumerate(sentences):
        for beam, ids in enumerate(beams[row]):
            alone = allowed(grammar, sentence, ids)
            assert set(np.flatnonzero(together[row, beam]).tolist()) == alone


def walk(grammar: TreeGrammar, sentence: str, chance: random.Random) -> list[int]:
    """A random sequence that the grammar accepts; brackets open rarely, so that it ends."""
    ids: list[int] = []
    while EOS_ID not in ids:
        choices = sorted(allowed(grammar, sentence, ids))
        assert choices and not {PAD_ID, BOS_ID} & {*choices}
        opening = [one for one in choices if grammar.kinds[one] == 1]
        others = [one for one in choices if one not in opening]
        ids.append(
            chance.choice(others if others and chance.random() < 0.6 else opening or others)
        )
    return ids


@pytest.mark.parametrize("seed", range(12))
def test_every_accepted_sequence_is_a_tree_over_the_words(grammar, tokenizer, seed):
    sentence = [*(pair[0] for pair in PAIRS[:10]), "unseen words too ?", "."][seed]
    ids = walk(grammar, sentence, random.Random(seed))
    text = tokenizer.detokenize(tf.constant([ids])).numpy()[0].decode()
    parse = delinearise(text.split(), sentence.split())
    assert parse.repairs == 0
    assert " ".join(linearise(parse.tree)) == text


def test_a_word_may_have_only_its_tags_in_the_lexicon(grammar, tokenizer):
    lexicon = Lexicon.of_sequences(PAIRS)
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    for word in ("the", "unseen"):
        texts = {pieces[one].decode()[1:] for one in allowed(grammar, word, [])}
        tags = {text for text in texts if not text.startswith("(")}
        assert tags == set(lexicon.tags_of(word)) and tags
    assert lexicon.tags_of("the") == ["DT"]


def test_a_word_that_no_tag_fits_may_have_any(tokenizer):
    grammar = TreeGrammar(tokenizer, Lexicon(("DT", "NN"), {}))
    assert grammar.context([";", "a"]).tolist() == [[[True, True]], [[True, True]]]


@pytest.mark.parametrize("seed", range(4))
def test_with_any_tag_accepted_sequences_are_still_trees_over_the_words(tokenizer, seed):
    lexicon = Lexicon.of_sequences(PAIRS)
    grammar = TreeGrammar(tokenizer, lexicon, any_tag=True)
    sentence = PAIRS[seed][0]
    assert grammar.context([sentence]).shape[1:] == (len(sentence.split()), len(lexicon.tags))
    assert grammar.context([sentence]).all()
    ids = walk(grammar, sentence, random.Random(seed))
    text = tokenizer.detokenize(tf.constant([ids])).numpy()[0].decode()
    assert delinearise(text.split(), sentence.split()).repairs == 0


def test_brackets_do_not_open_endlessly(grammar, tokenizer):
    bracket = ids_of(tokenizer, "(NP")[0]
    assert bracket in allowed(grammar, "the", [bracket] * (LONGEST_CHAIN - 1))
    assert bracket not in allowed(grammar, "the", [bracket] * LONGEST_CHAIN)


def test_an_impossible_beam_may_have_more_tags_than_there_are_words(grammar, tokenizer):
    tag = ids_of(tokenizer, "DT")[0]
    assert allowed(grammar, "the the", [tag] * 2) == {EOS_ID}
    assert allowed(grammar, "the the", [tag] * 5) == {EOS_ID}


@pytest.mark.parametrize(("tags", "received"), [(("NN", "NIX"), "1 of 2"), ((), "0 of 0")])
def test_a_tokenizer_without_a_tag_is_refused(tokenizer, tags, received):
    with pytest.raises(
        UserError, match=f"each tag .* as a single piece. Received: {received} tags"
    ):
        TreeGrammar(tokenizer, Lexicon(tags, {}))


@pytest.mark.parametrize("name", ["gum-const", "craft-treebank"])
def test_no_tree_of_the_free_treebanks_opens_more_brackets_in_a_row(name):
    longest = 0
    for line in lines_of(shared_data(name) / "train.ptb.gz")[::4]:
        for part in " ".join(linearise(read_line(line)[0])).split(" )"):
            runs = re.findall(r"(?:\([^ ]+ )+", part)
            longest = max(longest, *(run.count("(") for run in runs), 0)
    assert 1 < longest <= LONGEST_CHAIN
