"""Random clauses of the built-in corpus: actions, states, times and prices."""

import random
from collections.abc import Callable, Sequence

from tools.builtin_corpus import lexicon, numbers
from tools.builtin_corpus.grammar import (
    NO,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Clause,
    Complement,
    Determiner,
    FixedPhrase,
    NounPhrase,
    VerbGroup,
    copula,
    numeral,
    past,
    present,
    was_born,
    with_modal,
)
from tools.builtin_corpus.lexicon import Modal, Verb

Subject = NounPhrase | FixedPhrase

TENSES = ("present", "past", "future")

_PRONOUNS = (
    FixedPhrase("I", {"nom": "ich"}, "first"),
    FixedPhrase("he", {"nom": "er"}, "third"),
    FixedPhrase("she", {"nom": "sie"}, "third"),
    FixedPhrase("we", {"nom": "wir"}, "plural"),
    FixedPhrase("they", {"nom": "sie"}, "plural"),
)
_HIM = FixedPhrase("him", {"acc": "ihn", "dat": "ihm"}, "third")
_ME = FixedPhrase("me", {"acc": "mich", "dat": "mir"}, "first")
_US = FixedPhrase("us", {"acc": "uns", "dat": "uns"}, "plural")

_NUMERALS = tuple(numeral(numbers.cardinal(number)) for number in range(2, 13))


def definite(rng: random.Random) -> Determiner:
    """Draws a determiner of known things: the, this or a possessive."""
    return rng.choice((THE, THE, THIS, rng.choice(POSSESSIVES)))


def noun_phrase(
    rng: random.Random, kind: str, determiner: Determiner, adjectives: float = 0.4
) -> NounPhrase:
    """Draws a noun of `kind`; a share `adjectives` of them has an adjective."""
    noun, adjective = rng.choice(lexicon.NOUNS[kind]), rng.choice(lexicon.ADJECTIVES[kind])
    plural = not determiner.english or bool(determiner.english_plural) and rng.random() < 0.3
    return NounPhrase(
        determiner, noun, adjective if rng.random() < adjectives else None, plural
    )


def any_subject(rng: random.Random) -> Subject:
    """Draws a pronoun or a person."""
    if rng.random() < 0.4:
        return rng.choice(_PRONOUNS)
    return noun_phrase(rng, "person", definite(rng), adjectives=0.25)


def conjugate(
    rng: random.Random,
    verb: Verb,
    person: str,
    tense: str,
    modals: Sequence[Modal] = lexicon.MODALS,
) -> VerbGroup:
    """Puts `verb` in one of TENSES, where "future" means any of `modals`."""
    if tense == "present":
        return present(verb, person)
    if tense == "past":
        return past(verb, person)
    return with_modal(verb, rng.choice(modals), person)


def _any_object(rng: random.Random, kind: str, negated: bool) -> NounPhrase:
    if rng.random() < 0.35:
        return noun_phrase(rng, kind, NO if negated else A)
    if rng.random() < 0.2 and not negated:
        return noun_phrase(rng, kind, rng.choice(_NUMERALS))
    return noun_phrase(rng, kind, definite(rng))


def _any_pronoun(rng: random.Random, subject: Subject) -> FixedPhrase:
    """Draws an object that cannot be the subject itself: no "we see me"."""
    speaker = subject.english in ("I", "we")
    return _HIM if speaker else rng.choice((_HIM, _ME, _US))


def _transitive(
    rng: random.Random, subject: Subject, kinds: Sequence[str], case: str, negated: bool
) -> Complement:
    kind = rng.choice(kinds)
    if kind == "person" and rng.random() < 0.35:
        pronoun = _any_pronoun(rng, subject)
        return Complement(pronoun.english, pronoun=pronoun.german(case))
    thing = _any_object(rng, kind, negated)
    return Complement(thing.english, objects=thing.german(case), has_no=thing.determiner is NO)


def _ditransitive(rng: random.Random, subject: Subject, negated: bool) -> Complement:
    """Builds "gives a book to the man"; German has the person first: "dem Mann ein Buch"."""
    thing = _any_object(rng, rng.choice(("text", "thing", "food")), negated)
    has_no, gift = thing.determiner is NO, thing.german("acc")
    if rng.random() < 0.35:
        pronoun = _any_pronoun(rng, subject)
        english = f"{thing.english} to {pronoun.english}"
        return Complement(english, pronoun.german("dat"), gift, has_no=has_no)
    person = noun_phrase(rng, "person", definite(rng), adjectives=0.2)
    english = f"{thing.english} to {person.english}"
    return Complement(english, objects=f"{person.german('dat')} {gift}", has_no=has_no)


def _verb_and_complement(
    rng: random.Random, subject: Subject, negated: bool
) -> tuple[Verb, Complement]:
    frame = rng.choices(("accusative", "dative", "both", "place", "motion"), (9, 3, 3, 2, 2))[0]
    if frame == "accusative":
        verb, kinds = rng.choice(lexicon.TRANSITIVE)
        return verb, _transitive(rng, subject, kinds, "acc", negated)
    if frame == "dative":
        verb = rng.choice(lexicon.DATIVE)
        return verb, _transitive(rng, subject, ("person",), "dat", negated)
    if frame == "both":
        return rng.choice(lexicon.DITRANSITIVE), _ditransitive(rng, subject, negated)
    if frame == "place":
        verb, place = rng.choice(lexicon.LOCAL), rng.choice(lexicon.PLACES)
    else:
        verb, place = rng.choice(lexicon.MOTION), rng.choice(lexicon.DESTINATIONS)
    return verb, Complement(place.english, predicate=place.german)


def action(
    rng: random.Random,
    subject: Subject | None = None,
    tenses: Sequence[str] = TENSES,
    timed: float = 0.5,
) -> Clause:
    """Builds somebody's action; a share `timed` of them states a time."""
    subject = subject or any_subject(rng)
    tense, negated = rng.choice(tenses), rng.random() < 0.2
    verb, complement = _verb_and_complement(rng, subject, negated)
    modals = [modal for modal in lexicon.MODALS if modal.negatable or not negated]
    group = conjugate(rng, verb, subject.person, tense, modals)
    if rng.random() >= timed:
        return Clause(subject, group, complement, negated=negated)
    time = numbers.any_time(rng, tense, negated)
    return Clause(subject, group, complement, time, negated)


def short_action(rng: random.Random) -> Clause:
    """Builds an action of a pronoun without a time, short enough to be joined to another."""
    return action(rng, rng.choice(_PRONOUNS), timed=0.0)


def state(rng: random.Random) -> Clause:
    """Builds a state: somebody or something is old, is somewhere, or is of some age."""
    kind = rng.choice(("person", "person", "thing", "food", "animal"))
    if rng.random() < 0.4:
        # With an adjective in the subject, another in the predicate could contradict it.
        subject = noun_phrase(rng, kind, definite(rng), adjectives=1.0)
        return _be(rng, subject, _place(rng))
    if kind == "person" and rng.random() < 0.5:
        return predication(rng, rng.choice(_PRONOUNS), kind)
    return predication(rng, noun_phrase(rng, kind, definite(rng), adjectives=0.0), kind)


def predication(rng: random.Random, subject: Subject, kind: str) -> Clause:
    """Builds a statement about `subject` that fits nouns of `kind`."""
    choice = rng.random()
    if choice < 0.7:
        adjective = rng.choice(lexicon.ADJECTIVES[kind])
        return _be(rng, subject, Complement(adjective.english, predicate=adjective.german))
    if choice < 0.85 and kind == "person":
        age = numbers.cardinal(rng.randint(2, 99))
        english, german = f"{age.english} years old", f"{age.german} Jahre alt"
        return _be(rng, subject, Complement(english, predicate=german))
    return _be(rng, subject, _place(rng))


def _place(rng: random.Random) -> Complement:
    place = rng.choice(lexicon.PLACES)
    return Complement(place.english, predicate=place.german)


def _be(rng: random.Random, subject: Subject, complement: Complement) -> Clause:
    group = copula(subject.person, in_past=rng.random() < 0.4)
    return Clause(subject, group, complement, negated=rng.random() < 0.25)


def birth(rng: random.Random) -> Clause:
    """Builds somebody's date of birth."""
    subject, date, year = any_subject(rng), numbers.any_date(rng), numbers.any_year(rng)
    time = lexicon.Phrase(f"on {date.english}, {year}", f"am {date.german} {year}")
    return Clause(subject, was_born(subject.person), time=time)


def price(rng: random.Random) -> Clause:
    """Builds a price in the present: the past of "cost" looks like its present."""
    subject = noun_phrase(rng, rng.choice(("text", "thing", "food")), definite(rng), 0.6)
    amount, tense = numbers.any_price(rng), rng.choice(("present", "future"))
    group = conjugate(rng, lexicon.COST, subject.person, tense, lexicon.IMPERSONAL_MODALS)
    return Clause(subject, group, Complement(amount.english, objects=amount.german))


def payment(rng: random.Random) -> Clause:
    """Builds a clause about somebody paying for something."""
    subject, tense = any_subject(rng), rng.choice(TENSES)
    amount = numbers.any_price(rng)
    thing = _any_object(rng, rng.choice(("text", "thing", "food")), negated=False)
    complement = Complement(
        f"{amount.english} for {thing.english}",
        objects=f"{amount.german} für {thing.german('acc')}",
    )
    return Clause(subject, conjugate(rng, lexicon.PAY, subject.person, tense), complement)


def schedule(rng: random.Random) -> Clause:
    """Builds the departure or arrival of a train, or the beginning or end of a concert."""
    if rng.random() < 0.5:
        subject, verb = _train(rng)
    else:
        subject = NounPhrase(definite(rng), rng.choice(lexicon.EVENTS))
        verb = rng.choice((lexicon.BEGIN, lexicon.END))
    time, tense = numbers.any_clock(rng), rng.choice(TENSES)
    if rng.random() < 0.6:
        day = numbers.any_day(rng)
        english, german = f"{time.english} {day.english}", f"{day.german} {time.german}"
        time = rng.choice((lexicon.Phrase(english, german), day))
    group = conjugate(rng, verb, subject.person, tense, lexicon.IMPERSONAL_MODALS)
    return Clause(subject, group, time=time)


def _train(rng: random.Random) -> tuple[FixedPhrase, Verb]:
    english, german = rng.choice((("train", "der Zug"), ("bus", "der Bus")))
    city = rng.choice(lexicon.CITIES)
    if rng.random() < 0.5:
        verb, prepositions = lexicon.LEAVE, ("to", "nach")
    else:
        verb, prepositions = lexicon.ARRIVE, ("from", "aus")
    forms = {"nom": f"{german} {prepositions[1]} {city.german}"}
    return FixedPhrase(f"the {english} {prepositions[0]} {city.english}", forms, "third"), verb


CLAUSES: tuple[tuple[Callable[[random.Random], Clause], int], ...] = (
    (action, 12),
    (state, 4),
    (schedule, 3),
    (price, 2),
    (payment, 2),
    (birth, 2),
)


def any_clause(rng: random.Random) -> Clause:
    """Draws a clause from one of CLAUSES, in proportion to its weight."""
    sources, weights = zip(*CLAUSES, strict=True)
    return rng.choices(sources, weights)[0](rng)
