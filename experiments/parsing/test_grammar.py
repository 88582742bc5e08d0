"""The grammar admits trees over exactly the words, with tags of the lexicon: all of them."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers import lines_of, shared_data

from experiments.parsing.conftest import toy_trees
from experiments.parsing.grammar import (
    EOS_ID,
    LONGEST_CHAIN,
    MIN_COUNT,
    Lexicon,
    TreeGrammar,
)
from experiments.parsing.parser import train_tokenizer
from experiments.parsing.trees import delinearise, linearise, linearised, read_line
from tf_transformer import Tokenizer, UserError

PAIRS = [linearised(read_line(tree)[0]) for tree in toy_trees(60, 3)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train_tokenizer(PAIRS, path, 292)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def grammar(tokenizer) -> TreeGrammar:
    return TreeGrammar(tokenizer, Lexicon.of_sequences(PAIRS))


def allowed(grammar: TreeGrammar, sentence: str, ids: list[int]) -> set[int]:
    """The ids that may follow `ids`."""
    tokens = tf.constant([[ids]], tf.int32, shape=[1, 1, len(ids)])
    return ids_where(grammar.allowed(tokens, grammar.context([sentence]))[0, 0])


def ids_where(allowed: tf.Tensor) -> set[int]:
    return set(np.flatnonzero(allowed).tolist())


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
    together = grammar.allowed(tf.constant(beams), grammar.context(sentences))
    for row, sentence in enumerate(sentences):
        for beam, ids in enumerate(beams[row]):
            alone = allowed(grammar, sentence, ids)
            assert ids_where(together[row, beam]) == alone


def walk(grammar: TreeGrammar, sentence: str, chance: random.Random) -> list[int]:
    """A random sequence that the grammar accepts; brackets open rarely, so that it ends."""
    ids: list[int] = []
    while EOS_ID not in ids:
        choices = sorted(allowed(grammar, sentence, ids))
        assert choices and min(choices) > 2  # neither PAD nor BOS
        opening = [one for one in choices if grammar.kinds[one] == 1]
        others = [one for one in choices if one not in opening]
        ids.append(
            chance.choice(others if others and chance.random() < 0.6 else opening or others)
        )
    return ids


@pytest.mark.parametrize("any_tag", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2, 3, -2, -1])
def test_every_accepted_sequence_is_a_tree_over_the_words(tokenizer, number, any_tag):
    sentence = [*(pair[0] for pair in PAIRS), "unseen words too ?", "."][number]
    grammar = TreeGrammar(tokenizer, Lexicon.of_sequences(PAIRS), any_tag=any_tag)
    assert grammar.context([sentence]).all() or not any_tag
    ids = walk(grammar, sentence, random.Random(number))
    text = tokenizer.detokenize(tf.constant([ids])).numpy()[0].decode()
    parse = delinearise(text.split(), sentence.split())
    assert parse.repairs == 0
    # With any tag a word may get that of a punctuation mark, which is written otherwise.
    assert any_tag or " ".join(linearise(parse.tree)) == text


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


# --- Lexicon -----------------------------------------------------------------------------

SAW = ("the saw saw .", "(S (NP DT NN )NP (VP VBD )VP . )S")


def lexicon(*pairs: tuple[str, str]) -> Lexicon:
    return Lexicon.of_sequences(pairs)


def test_a_frequent_word_has_the_tags_it_was_seen_with():
    learned = lexicon(*[SAW] * MIN_COUNT)
    assert learned.tags == (".", "DT", "NN", "VBD")
    assert learned.words == {"the": ("DT",), "saw": ("NN", "VBD"), ".": (".",)}
    assert learned.tags_of("saw") == ["NN", "VBD"]


def test_a_rare_word_may_have_any_tag_except_those_of_punctuation():
    learned = lexicon(*[SAW] * (MIN_COUNT - 1))  # "saw" occurs twice in each
    assert set(learned.words) == {"saw"}
    assert learned.tags_of("the") == learned.tags_of("unseen") == ["DT", "NN", "VBD"]


@pytest.mark.parametrize(("word", "tags"), [("?", ["."]), ("-", [".", "DT", "NN", "VBD"])])
def test_a_punctuation_mark_may_have_any_tag_unless_it_determines_its_own(word, tags):
    assert lexicon(SAW).tags_of(word) == tags


def test_a_word_may_fit_no_tag_of_the_lexicon():
    assert lexicon(SAW).tags_of(",") == []


def test_a_saved_lexicon_is_loaded_unchanged(tmp_path):
    learned = lexicon(*[SAW] * MIN_COUNT, ('«é» "', "(X FW `` )X"))
    (tmp_path / "lexicon.json").write_text(learned.text(), "utf-8")
    assert Lexicon.load(tmp_path / "lexicon.json") == learned


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tags": "A", "words": []}', "\xff"])
def test_a_damaged_file_is_a_user_error(tmp_path, content):
    path = tmp_path / "lexicon.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match="lexicon.json is damaged"):
        Lexicon.load(path)
