"""English-German sentence pairs from a small grammar.

Every English sentence has exactly one German translation, and every word, number and
construction is frequent, so that a tiny model can learn to translate unseen sentences without
errors. German has what makes translation difficult: gender and case, separable verbs, and verbs
at the end of subordinate clauses.
"""

import random
from collections.abc import Callable, Mapping

from tools.builtin_corpus import clauses, lexicon, numbers
from tools.builtin_corpus.clauses import any_clause
from tools.builtin_corpus.grammar import THE, Clause, FixedPhrase, NounPhrase
from tools.builtin_corpus.lexicon import Phrase

_MIN_WORDS, _MAX_WORDS = 4, 16


def _statement(rng: random.Random) -> Phrase:
    clause = any_clause(rng)
    return Phrase(f"{clause.english}.", f"{clause.german}.")


def _fronted(rng: random.Random) -> Phrase:
    clause = clauses.action(rng, timed=1.0)
    return Phrase(f"{clause.english_fronted}.", f"{clause.german_fronted}.")


def _question(rng: random.Random) -> Phrase:
    clause = _affirmative(rng)
    # Nobody asks "Do I buy a book?", and such verb forms would rarely begin other sentences.
    if clause.subject.english == "I":
        return _question(rng)
    return Phrase(f"{clause.english_question}?", f"{clause.german_question}?")


def _affirmative(rng: random.Random) -> Clause:
    clause = any_clause(rng)
    return _affirmative(rng) if clause.negated else clause


def _that(rng: random.Random) -> Phrase:
    clause = any_clause(rng)
    says = _governing(rng, rng.choice(lexicon.SAYING), negated=False)
    return Phrase(
        f"{says.english} that {clause.english}.",
        f"{says.german}, dass {clause.german_subordinate}.",
    )


def _whether(rng: random.Random) -> Phrase:
    clause = _affirmative(rng)
    knows = _governing(rng, lexicon.KNOW, negated=True)
    return Phrase(
        f"{knows.english} whether {clause.english}.",
        f"{knows.german}, ob {clause.german_subordinate}.",
    )


def _governing(rng: random.Random, verb: lexicon.Verb, negated: bool) -> Clause:
    subject = clauses.any_subject(rng)
    return Clause(
        subject, clauses.conjugate(rng, verb, subject.person, "present"), negated=negated
    )


def _because(rng: random.Random) -> Phrase:
    effect = clauses.action(rng, timed=0.2)
    cause = rng.choice((clauses.short_action, clauses.state))(rng)
    return Phrase(
        f"{effect.english} because {cause.english}.",
        f"{effect.german}, weil {cause.german_subordinate}.",
    )


def _if(rng: random.Random) -> Phrase:
    condition = clauses.action(rng, tenses=("present",), timed=0.0)
    result = clauses.action(rng, tenses=("present", "future"), timed=0.2)
    return Phrase(
        f"if {condition.english}, {result.english}.",
        f"wenn {condition.german_subordinate}, {result.german_question}.",
    )


def _relative_subject(rng: random.Random) -> Phrase:
    """Builds sentences such as "The man who bought the book is tired."."""
    head = clauses.noun_phrase(rng, "person", THE, adjectives=0.0)
    who = FixedPhrase("who", {"nom": head.german_relative("nom")}, head.person)
    clause = clauses.action(rng, who, timed=0.3)
    return _about(rng, head, "person", Phrase(clause.english, clause.german_subordinate))


def _relative_object(rng: random.Random) -> Phrase:
    """Builds sentences such as "The book that the man bought is new."."""
    verb, kinds = rng.choice(lexicon.TRANSITIVE)
    kind, subject = rng.choice(kinds), clauses.any_subject(rng)
    head = clauses.noun_phrase(rng, kind, THE, adjectives=0.0)
    tense = rng.choice(clauses.TENSES)
    clause = Clause(subject, clauses.conjugate(rng, verb, subject.person, tense))
    german = f"{head.german_relative('acc')} {clause.german_subordinate}"
    return _about(rng, head, kind, Phrase(f"that {clause.english}", german))


def _about(rng: random.Random, head: NounPhrase, kind: str, relative: Phrase) -> Phrase:
    subject = FixedPhrase(
        f"{head.english} {relative.english}",
        {"nom": f"{head.german('nom')}, {relative.german},"},
        head.person,
    )
    clause = clauses.predication(rng, subject, kind)
    return Phrase(f"{clause.english}.", f"{clause.german}.")


def _today(rng: random.Random) -> Phrase:
    day, date, year = rng.choice(numbers.WEEKDAYS), numbers.any_date(rng), numbers.any_year(rng)
    german = date.german
    if rng.random() < 0.5:
        return Phrase(
            f"today is {day.english}, {date.english}.", f"heute ist {day.german}, der {german}."
        )
    return Phrase(f"today is {date.english}, {year}.", f"heute ist der {german} {year}.")


_SENTENCES: Mapping[Callable[[random.Random], Phrase], int] = {
    _statement: 6,
    _fronted: 4,
    _question: 3,
    _that: 4,
    _whether: 2,
    _because: 2,
    _if: 2,
    _relative_subject: 2,
    _relative_object: 2,
    _today: 1,
}


def _sentence(rng: random.Random) -> tuple[str, str]:
    families, weights = list(_SENTENCES), list(_SENTENCES.values())
    english, german = rng.choices(families, weights)[0](rng)
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def generate(num_pairs: int, seed: int = 0) -> list[tuple[str, str]]:
    """Generates `num_pairs` (English, German) pairs, of 4 to 16 English words each.

    No sentence occurs twice, in either language. The same `seed` gives the same pairs, and a
    smaller number gives the first of them.

    Raises:
        ValueError: if `num_pairs` is negative.
    """
    if num_pairs < 0:
        raise ValueError(f"`num_pairs` must be 0 or more. Received: num_pairs={num_pairs}.")
    rng = random.Random(seed)
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    while len(pairs) < num_pairs:
        pair = _sentence(rng)
        if seen.isdisjoint(pair) and _MIN_WORDS <= len(pair[0].split()) <= _MAX_WORDS:
            pairs.append(pair)
            seen.update(pair)
    return pairs
