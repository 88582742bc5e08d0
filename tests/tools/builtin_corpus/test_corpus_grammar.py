"""Declension and word order of the built-in corpus against hand-written German."""

import pytest

from tools.builtin_corpus import lexicon
from tools.builtin_corpus.grammar import (
    NO,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Clause,
    Complement,
    FixedPhrase,
    NounPhrase,
    copula,
    numeral,
    past,
    present,
    was_born,
    with_modal,
)
from tools.builtin_corpus.lexicon import Phrase
from tools.builtin_corpus.numbers import cardinal

MY, _, _, OUR = POSSESSIVES
THREE = numeral(cardinal(3))

NOUNS = {noun.english: noun for nouns in lexicon.NOUNS.values() for noun in nouns}
ADJECTIVES = {word.english: word for words in lexicon.ADJECTIVES.values() for word in words}
TRANSITIVE = {verb.english: verb for verb, _ in lexicon.TRANSITIVE}
MODALS = {modal.english: modal for modal in lexicon.MODALS}

HE = FixedPhrase("he", {"nom": "er"}, "third")
THE_MAN = NounPhrase(THE, NOUNS["man"])


@pytest.mark.parametrize(
    ("determiner", "adjective", "noun", "plural", "english", "nominative", "accusative",
     "dative"),
    [
        (THE, "old", "dog", False, "the old dog",
         "der alte Hund", "den alten Hund", "dem alten Hund"),
        (THE, None, "cat", False, "the cat", "die Katze", "die Katze", "der Katze"),
        (THE, "small", "child", True, "the small children",
         "die kleinen Kinder", "die kleinen Kinder", "den kleinen Kindern"),
        (A, "old", "apple", False, "an old apple",
         "ein alter Apfel", "einen alten Apfel", "einem alten Apfel"),
        (A, None, "apple", False, "an apple", "ein Apfel", "einen Apfel", "einem Apfel"),
        (A, "young", "girl", False, "a young girl",
         "ein junges Mädchen", "ein junges Mädchen", "einem jungen Mädchen"),
        (A, "tired", "woman", False, "a tired woman",
         "eine müde Frau", "eine müde Frau", "einer müden Frau"),
        (NO, "new", "car", False, "a new car",
         "kein neues Auto", "kein neues Auto", "keinem neuen Auto"),
        (THIS, "friendly", "boy", False, "this friendly boy",
         "dieser freundliche Junge", "diesen freundlichen Jungen",
         "diesem freundlichen Jungen"),
        (THIS, None, "house", False, "this house", "dieses Haus", "dieses Haus", "diesem Haus"),
        (THIS, "red", "lamp", True, "these red lamps",
         "diese roten Lampen", "diese roten Lampen", "diesen roten Lampen"),
        (MY, "old", "neighbour", False, "my old neighbour",
         "mein alter Nachbar", "meinen alten Nachbarn", "meinem alten Nachbarn"),
        (OUR, "expensive", "coat", False, "our expensive coat",
         "unser teurer Mantel", "unseren teuren Mantel", "unserem teuren Mantel"),
        (OUR, "black", "bird", True, "our black birds",
         "unsere schwarzen Vögel", "unsere schwarzen Vögel", "unseren schwarzen Vögeln"),
        (THREE, "good", "friend", True, "three good friends",
         "drei gute Freunde", "drei gute Freunde", "drei guten Freunden"),
        (THREE, None, "egg", True, "three eggs", "drei Eier", "drei Eier", "drei Eiern"),
    ],
)  # fmt: skip
def test_noun_phrases_agree_in_gender_number_and_case(
    determiner, adjective, noun, plural, english, nominative, accusative, dative
):
    adjectives = ADJECTIVES | {None: None}
    phrase = NounPhrase(determiner, NOUNS[noun], adjectives[adjective], plural)
    assert phrase.english == english
    forms = [phrase.german(case) for case in ("nom", "acc", "dat")]
    assert forms == [nominative, accusative, dative]


@pytest.mark.parametrize(
    ("noun", "plural", "nominative", "accusative"),
    [("man", False, "der", "den"), ("woman", False, "die", "die"),
     ("child", False, "das", "das"), ("man", True, "die", "die")],
)  # fmt: skip
def test_relative_pronouns_agree_with_their_noun(noun, plural, nominative, accusative):
    phrase = NounPhrase(THE, NOUNS[noun], plural=plural)
    assert phrase.german_relative("nom") == nominative
    assert phrase.german_relative("acc") == accusative


CALLS_HIM = Complement("him", pronoun="ihn")
THE_DOG = Complement("the dog", objects="den Hund")
A_DOG = Complement("a dog", objects="keinen Hund", has_no=True)
TIRED = Complement("tired", predicate="müde")
TODAY, YESTERDAY = Phrase("today", "heute"), Phrase("yesterday", "gestern")
SEE, CALL = TRANSITIVE["see"], TRANSITIVE["call"]

CLAUSES = {
    "present, separable": (
        Clause(THE_MAN, present(CALL, "third"), THE_DOG, TODAY),
        ("the man calls the dog today", "today the man calls the dog",
         "does the man call the dog today"),
        ("der Mann ruft heute den Hund an", "heute ruft der Mann den Hund an",
         "ruft der Mann heute den Hund an", "der Mann heute den Hund anruft"),
    ),
    "perfect with haben": (
        Clause(HE, past(SEE, "third"), THE_DOG, YESTERDAY),
        ("he saw the dog yesterday", "yesterday he saw the dog",
         "did he see the dog yesterday"),
        ("er hat gestern den Hund gesehen", "gestern hat er den Hund gesehen",
         "hat er gestern den Hund gesehen", "er gestern den Hund gesehen hat"),
    ),
    "perfect with sein": (
        Clause(HE, past(lexicon.LEAVE, "third"), time=YESTERDAY),
        ("he left yesterday", "yesterday he left", "did he leave yesterday"),
        ("er ist gestern abgefahren", "gestern ist er abgefahren",
         "ist er gestern abgefahren", "er gestern abgefahren ist"),
    ),
    "modal, pronoun before the time": (
        Clause(HE, with_modal(CALL, MODALS["want to"], "third"), CALLS_HIM, TODAY),
        ("he wants to call him today", "today he wants to call him",
         "does he want to call him today"),
        ("er will ihn heute anrufen", "heute will er ihn anrufen",
         "will er ihn heute anrufen", "er ihn heute anrufen will"),
    ),
    "predicate": (
        Clause(THE_MAN, copula("third", in_past=True), TIRED, YESTERDAY),
        ("the man was tired yesterday", "yesterday the man was tired",
         "was the man tired yesterday"),
        ("der Mann war gestern müde", "gestern war der Mann müde",
         "war der Mann gestern müde", "der Mann gestern müde war"),
    ),
    "birth": (
        Clause(HE, was_born("third"), time=Phrase("on May 3, 1994", "am 3. Mai 1994")),
        ("he was born on May 3, 1994", "on May 3, 1994 he was born",
         "was he born on May 3, 1994"),
        ("er wurde am 3. Mai 1994 geboren", "am 3. Mai 1994 wurde er geboren",
         "wurde er am 3. Mai 1994 geboren", "er am 3. Mai 1994 geboren wurde"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("clause", "english", "german"), CLAUSES.values(), ids=CLAUSES.keys())
def test_word_order_follows_the_kind_of_clause(clause, english, german):
    assert (clause.english, clause.english_fronted, clause.english_question) == english
    assert (
        clause.german,
        clause.german_fronted,
        clause.german_question,
        clause.german_subordinate,
    ) == german


@pytest.mark.parametrize(
    ("verb", "complement", "english", "german"),
    [
        (present(SEE, "third"), THE_DOG,
         "he does not see the dog", "er sieht den Hund nicht"),
        (present(SEE, "third"), A_DOG,
         "he does not see a dog", "er sieht keinen Hund"),
        (past(CALL, "third"), CALLS_HIM,
         "he did not call him", "er hat ihn nicht angerufen"),
        (with_modal(SEE, MODALS["can"], "third"), THE_DOG,
         "he cannot see the dog", "er kann den Hund nicht sehen"),
        (with_modal(SEE, MODALS["want to"], "third"), THE_DOG,
         "he does not want to see the dog", "er will den Hund nicht sehen"),
        (copula("third", in_past=False), TIRED, "he is not tired", "er ist nicht müde"),
    ],
)  # fmt: skip
def test_negation_is_nicht_before_the_predicate_or_kein(verb, complement, english, german):
    clause = Clause(HE, verb, complement, negated=True)
    assert (clause.english, clause.german) == (english, german)
