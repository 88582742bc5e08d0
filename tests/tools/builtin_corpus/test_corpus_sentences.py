"""The sentences of the grammar: German word order, and a single translation."""

import re

import pytest

from tf_transformer.data import builtin
from tools.builtin_corpus import __main__ as program
from tools.builtin_corpus import lexicon
from tools.builtin_corpus.sentences import generate

AUXILIARIES = {
    "habe", "hat", "haben", "bin", "ist", "sind", "war", "waren", "wurde", "wurden", "werde",
    "wird", "werden", "kann", "können", "sollte", "sollten", "will", "wollen", "muss", "müssen",
}  # fmt: skip


def _finite_forms() -> set[str]:
    verbs = [verb for verb, _ in lexicon.TRANSITIVE]
    verbs += [*lexicon.DATIVE, *lexicon.DITRANSITIVE, *lexicon.LOCAL, *lexicon.MOTION]
    verbs += [
        lexicon.LEAVE,
        lexicon.ARRIVE,
        lexicon.BEGIN,
        lexicon.END,
        lexicon.PAY,
        lexicon.COST,
    ]
    present = {
        verb.prefix + form for verb in verbs for form in (verb.first, verb.third, verb.german)
    }
    return present | AUXILIARIES


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return generate(program.NUM_PAIRS, program.SEED)


def test_the_package_contains_the_sentences_of_the_grammar(pairs):
    assert builtin.pairs() == pairs


def test_the_seed_determines_the_pairs(pairs):
    assert generate(500) == pairs[:500]
    assert generate(500, seed=1) != pairs[:500]


def test_no_english_sentence_has_two_translations():
    translations: dict[str, str] = {}
    for seed in range(3):
        for english, german in generate(15_000, seed):
            assert translations.setdefault(english, german) == german
    assert len(translations) < 3 * 15_000  # so some sentences came up under several seeds


@pytest.mark.parametrize(
    "clause",
    [
        r", (?:dass|ob|weil) (.*)\.$",
        r"^Wenn ([^,]*),",
        r", (?:der|die|das|den) (.*), (?:ist|sind|w)",
    ],
    ids=["conjunction", "condition", "relative"],
)
def test_subordinate_clauses_end_with_the_finite_verb(pairs, clause):
    matches = [re.search(clause, german) for _, german in pairs]
    last_words = [match[1].split()[-1] for match in matches if match]
    assert len(last_words) > 500
    assert set(last_words) <= _finite_forms()


def test_main_clauses_with_two_verbs_end_with_the_infinitive_or_participle(pairs):
    second = re.compile(r"^\w+ (?:hat|habe|haben|wird|kann|muss|will) ([^,]*)\.$")
    last_words = [
        match[1].split()[-1] for _, german in pairs if (match := second.search(german))
    ]
    assert len(last_words) > 500
    assert all(re.search(r"(en|ern|t)$", word) and word[0].islower() for word in last_words)


def test_negative_number_of_pairs_is_refused():
    with pytest.raises(ValueError, match="num_pairs=-1"):
        generate(-1)
