"""The graph of an exported parser gives the same results as Python on any sequence."""

import random
import unicodedata

import pytest
import tensorflow as tf
from test_tree_grammar import PAIRS, train

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.tasks.parsing.lexicon import Lexicon
from tf_transformer.tasks.parsing.linearisation import PUNCTUATION, SELF_TAGGED, delinearise
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.tree_graph import TreeGraph, split_words
from tf_transformer.tasks.parsing.treebank import words_of


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model", 297, PUNCTUATION)


@pytest.fixture(scope="module")
def grammar(tokenizer) -> TreeGrammar:
    """With all tags of punctuation, and ";" listed only with a tag that does not fit it."""
    lexicon = Lexicon.of_sequences(PAIRS)
    tags = tuple(sorted({*lexicon.tags, *PUNCTUATION}))
    return TreeGrammar(tokenizer, Lexicon(tags, lexicon.words | {";": ("NN",)}))


ODD = [*'()";', "...", "--", "3.5", "x", "\u4e2d", "\u00b2", "!?", "a\u0301", "\u200b"]


def sentences(number: int) -> list[str]:
    rng = random.Random(5)
    words = [*ODD, *(word for sentence, _ in PAIRS[:9] for word in sentence.split())]
    return [" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(number)]


def test_the_context_equals_that_of_the_grammar(grammar):
    texts = [" ".join(words_of(text)) for text in sentences(40)]
    context = TreeGraph(grammar).context(tf.strings.split(tf.constant(texts)))
    assert (context.numpy() == grammar.context(texts)).all()


def grown(grammar: TreeGrammar, sentence: str, rng: random.Random) -> list[int]:
    """A random sequence that the grammar accepts: a tree, or the beginning of one."""
    ids: list[int] = []
    context = grammar.context([sentence])
    while len(ids) < rng.randrange(1, 60) and EOS_ID not in ids:
        tokens = tf.constant([[ids]], tf.int32, shape=[1, 1, len(ids)])
        (allowed,) = tf.where(grammar(tokens, context)[0, 0]).numpy().T
        ids.append(int(rng.choice(allowed)))
    return ids


def test_trees_and_repairs_equal_those_of_python(grammar, tokenizer):
    rng = random.Random(3)
    texts = [" ".join(words_of(text)) for text in sentences(120)]
    rows = [grown(grammar, text, rng) for text in texts]
    tokens = tf.ragged.constant(rows, dtype=tf.int32)
    trees, repairs = TreeGraph(grammar).trees(
        tokens.to_tensor(PAD_ID), tf.strings.split(tf.constant(texts))
    )
    sequences = [text.decode().split() for text in tokenizer.detokenize(tokens).numpy()]
    pairs = zip(sequences, texts, strict=True)
    expected = [delinearise(sequence, text.split()) for sequence, text in pairs]
    assert [text.decode() for text in trees.numpy()] == [str(parse) for parse in expected]
    assert repairs.numpy().tolist() == [parse.repairs for parse in expected]
    assert {parse.repairs > 0 for parse in expected} == {True, False}
    assert [] in sequences or any(len(sequence) == 1 for sequence in sequences)


def test_words_are_split_as_in_python():
    blanks = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    texts = ["", " ", *(f"{blank}a{blank}{blank}(b) c\x00d" for blank in blanks)]
    rows = split_words(tf.constant(texts)).to_list()
    assert [[word.decode() for word in row] for row in rows] == list(map(words_of, texts))
    no_blanks = "".join(chr(code) for code in range(33, 0x3000) if chr(code) not in blanks)
    no_blanks = no_blanks.replace("(", "").replace(")", "")
    assert [len(row) for row in split_words(tf.constant([no_blanks])).to_list()] == [1]


def test_letters_and_digits_are_those_of_python(grammar):
    """For all characters that both know: TensorFlow may have another version of Unicode."""
    every = [chr(code) for code in range(33, 0x2FFF) if not chr(code).isspace()]
    known = [c for c in every if unicodedata.category(c) not in ("Cn", "Cs") and c not in "()"]
    known = [c for c in known if c not in SELF_TAGGED]
    rows = TreeGraph(grammar).tables[1].rows(tf.constant(known)).numpy()
    assert [c for c, row in zip(known, rows, strict=True) if bool(row) != c.isalnum()] == []
