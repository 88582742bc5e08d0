"""The graph of an exported parser gives what Python gives, on sequences of any kind."""

import random
import unicodedata

import pytest
import tensorflow as tf
from test_tree_grammar import PAIRS

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.tokenizer_training import train_tokenizer
from tf_transformer.tasks.parsing.lexicon import Lexicon
from tf_transformer.tasks.parsing.linearisation import PUNCTUATION, SELF_TAGGED, delinearise
from tf_transformer.tasks.parsing.tree_grammar import TreeGrammar
from tf_transformer.tasks.parsing.tree_graph import TreeGraph, split_words
from tf_transformer.tasks.parsing.treebank import words_of


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    tokens = {token for _, sequence in PAIRS for token in sequence.split()} | PUNCTUATION
    symbols = {f"▁{token}" for token in tokens}
    sentences = [sentence for sentence, _ in PAIRS]
    train_tokenizer(sentences, path, vocab_size=297, kind="unigram", symbols=symbols)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def grammar(tokenizer) -> TreeGrammar:
    """With all tags of punctuation, and a word that no tag fits: its own is not among its."""
    lexicon = Lexicon.of_sequences(PAIRS)
    tags = tuple(sorted({*lexicon.tags, *PUNCTUATION}))
    return TreeGrammar(tokenizer, Lexicon(tags, lexicon.words | {";": ("NN",)}))


ODD = [*'()";', "...", "--", "3.5", "x", "\u4e2d", "\u00b2", "!?", "a\u0301", "\u200b"]


def sentences(number: int) -> list[str]:
    rng = random.Random(5)
    words = [*ODD, *(word for sentence, _ in PAIRS[:9] for word in sentence.split())]
    return [" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(number)]


def test_the_context_is_the_grammars(grammar):
    texts = [" ".join(words_of(text)) for text in sentences(40)]
    found = TreeGraph(grammar).context(tf.strings.split(tf.constant(texts)))
    assert (found.numpy() == grammar.context(texts)).all()


def grown(grammar: TreeGrammar, sentence: str, rng: random.Random) -> list[int]:
    """A sequence that the grammar allows, of random length: a tree, or the beginning of one."""
    ids: list[int] = []
    context = grammar.context([sentence])
    while len(ids) < rng.randrange(1, 60) and EOS_ID not in ids:
        tokens = tf.constant([[ids]], tf.int32, shape=[1, 1, len(ids)])
        (allowed,) = tf.where(grammar(tokens, context)[0, 0]).numpy().T
        ids.append(int(rng.choice(allowed)))
    return ids


def test_trees_and_repairs_are_those_of_python(grammar, tokenizer):
    rng = random.Random(3)
    texts = [" ".join(words_of(text)) for text in sentences(120)]
    rows = [grown(grammar, text, rng) for text in texts]
    tokens = tf.ragged.constant(rows, dtype=tf.int32)
    found, repairs = TreeGraph(grammar).trees(
        tokens.to_tensor(PAD_ID), tf.strings.split(tf.constant(texts))
    )
    sequences = [text.decode().split() for text in tokenizer.detokenize(tokens).numpy()]
    pairs = zip(sequences, texts, strict=True)
    expected = [delinearise(sequence, text.split()) for sequence, text in pairs]
    assert [text.decode() for text in found.numpy()] == [str(parse) for parse in expected]
    assert repairs.numpy().tolist() == [parse.repairs for parse in expected]
    assert {parse.repairs > 0 for parse in expected} == {True, False}
    assert [] in sequences or any(len(sequence) == 1 for sequence in sequences)


def test_words_are_divided_as_python_does():
    blanks = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    texts = ["", " ", *(f"{blank}a{blank}{blank}(b) c\x00d" for blank in blanks)]
    found = split_words(tf.constant(texts)).to_list()
    assert [[word.decode() for word in row] for row in found] == list(map(words_of, texts))
    no_blanks = "".join(chr(code) for code in range(33, 0x3000) if chr(code) not in blanks)
    no_blanks = no_blanks.replace("(", "").replace(")", "")
    assert [len(row) for row in split_words(tf.constant([no_blanks])).to_list()] == [1]


def test_letters_and_digits_are_pythons(grammar):
    """Of all characters that both know: a library may have another version of Unicode."""
    every = [chr(code) for code in range(33, 0x2FFF) if not chr(code).isspace()]
    known = [c for c in every if unicodedata.category(c) not in ("Cn", "Cs") and c not in "()"]
    known = [c for c in known if c not in SELF_TAGGED]
    rows = TreeGraph(grammar).tables[1].rows(tf.constant(known)).numpy()
    assert [c for c, row in zip(known, rows, strict=True) if bool(row) != c.isalnum()] == []
