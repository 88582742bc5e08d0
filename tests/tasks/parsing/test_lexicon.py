"""The tags of words: counted, kept, read again."""

import pytest

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.lexicon import MIN_COUNT, Lexicon

SAW = ("the saw saw .", "(S (NP DT NN )NP (VP VBD )VP . )S")


def lexicon(*pairs: tuple[str, str]) -> Lexicon:
    return Lexicon.of_sequences(pairs)


def test_a_word_seen_often_has_the_tags_it_was_seen_with():
    found = lexicon(*[SAW] * MIN_COUNT)
    assert found.tags == (".", "DT", "NN", "VBD")
    assert found.words == {"the": ("DT",), "saw": ("NN", "VBD"), ".": (".",)}
    assert found.tags_of("saw") == ["NN", "VBD"]


def test_a_word_seen_less_often_may_have_all_but_those_of_punctuation():
    found = lexicon(*[SAW] * (MIN_COUNT - 1))  # "saw" is in it twice as often as that
    assert set(found.words) == {"saw"}
    assert found.tags_of("the") == found.tags_of("unseen") == ["DT", "NN", "VBD"]


@pytest.mark.parametrize(("word", "tags"), [("?", ["."]), ("-", [".", "DT", "NN", "VBD"])])
def test_punctuation_has_the_tag_that_the_word_says_or_any(word, tags):
    assert lexicon(SAW).tags_of(word) == tags


def test_no_tag_in_the_lexicon_may_fit_a_word():
    assert lexicon(SAW).tags_of(",") == []


def test_what_is_saved_is_what_is_loaded(tmp_path):
    found = lexicon(*[SAW] * MIN_COUNT, ('«é» "', "(X FW `` )X"))
    found.save(tmp_path / "lexicon.json")
    assert Lexicon.load(tmp_path / "lexicon.json") == found


def test_a_sequence_of_other_words_is_an_error():
    with pytest.raises(ValueError, match="shorter|longer"):
        lexicon(("the saw", "(NP DT )NP"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tags": "A", "words": []}', "\xff"])
def test_a_damaged_file_is_a_user_error(tmp_path, content):
    path = tmp_path / "lexicon.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match="lexicon.json is damaged"):
        Lexicon.load(path)


def test_a_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="lexicon.json cannot be read: No such file"):
        Lexicon.load(tmp_path / "lexicon.json")
