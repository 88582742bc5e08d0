"""Rules for the lexicon of the built-in corpus, so that every sentence has one translation."""

from collections import Counter

import pytest

from tools.builtin_corpus import lexicon

VERBS = (
    *(verb for verb, _ in lexicon.TRANSITIVE),
    *lexicon.DATIVE,
    *lexicon.DITRANSITIVE,
    *lexicon.LOCAL,
    *lexicon.MOTION,
    lexicon.LEAVE,
    lexicon.ARRIVE,
    lexicon.BEGIN,
    lexicon.END,
    lexicon.PAY,
)
NOUNS = (*(noun for nouns in lexicon.NOUNS.values() for noun in nouns), *lexicon.EVENTS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.english)
def test_no_verb_has_a_past_like_its_present(verb):
    assert verb.english_past not in (verb.english, verb.english_third)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.english)
def test_separable_participles_begin_with_their_prefix(verb):
    assert verb.participle.startswith(verb.prefix)
    assert verb.perfect in ("haben", "sein")


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.english)
def test_nouns_are_capitalised_and_show_their_number(noun):
    assert noun.gender in ("m", "f", "n")
    assert noun.german[0].isupper() and noun.german_plural[0].isupper()
    assert noun.english != noun.english_plural
    # If the plural equals the singular, the article has to differ.
    assert noun.german != noun.german_plural or noun.gender != "f"


def test_no_noun_and_no_verb_is_listed_twice():
    english = Counter([noun.english for noun in NOUNS] + [verb.english for verb in VERBS])
    assert english.most_common(1)[0][1] == 1
    german = Counter(noun.german for noun in NOUNS)
    assert german.most_common(1)[0][1] == 1
