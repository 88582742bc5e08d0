"""A lexicon is learned from sequences, saved and loaded."""

import pytest

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.lexicon import MIN_COUNT, Lexicon

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
    learned.save(tmp_path / "lexicon.json")
    assert Lexicon.load(tmp_path / "lexicon.json") == learned


def test_a_sequence_with_fewer_tags_than_words_is_an_error():
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
