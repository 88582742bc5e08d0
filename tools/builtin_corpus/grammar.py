"""The grammar of the built-in corpus: English and German noun phrases, verbs and clauses.

Both languages are built from one structure. German declines determiner, adjective and noun for
gender, number and case, and the kind of clause determines the position of the verb.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tools.builtin_corpus.lexicon import Adjective, Modal, Noun, Phrase, Verb

Paradigm = Mapping[str, Mapping[str, str]]


def _paradigm(nominative: str, accusative: str, dative: str) -> Paradigm:
    """Reads rows of four endings, masculine feminine neuter plural; "-" is no ending."""
    rows = {"nom": nominative, "acc": accusative, "dat": dative}
    return {
        case: dict(zip("mfnp", (ending.strip("-") for ending in row.split()), strict=True))
        for case, row in rows.items()
    }


_ARTICLE = _paradigm("der die das die", "den die das die", "dem der dem den")
_DER_WORD = _paradigm("er e es e", "en e es e", "em er em en")
_EIN_WORD = _paradigm("- e - e", "en e - e", "em er em en")
_UNINFLECTED = _paradigm("- - - -", "- - - -", "- - - -")
_WEAK = _paradigm("e e e en", "en e e en", "en en en en")
_MIXED = _paradigm("er e es en", "en e es en", "en en en en")

_HABEN = {"first": "habe", "third": "hat", "plural": "haben"}
_SEIN = {"first": "bin", "third": "ist", "plural": "sind"}
_WAR = {"first": "war", "third": "war", "plural": "waren"}
_WURDE = {"first": "wurde", "third": "wurde", "plural": "wurden"}
_DO = {"first": "do", "third": "does", "plural": "do"}
_BE = {"first": "am", "third": "is", "plural": "are"}
_WAS = {"first": "was", "third": "was", "plural": "were"}


def join(*words: str) -> str:
    """Joins the words that are not empty with spaces."""
    return " ".join(filter(None, words))


@dataclass(frozen=True)
class Determiner:
    """A determiner with its `endings`, and those of a following `adjective`."""

    english: str
    english_plural: str
    stem: str
    endings: Paradigm
    adjective: Paradigm


A = Determiner("a", "", "ein", _EIN_WORD, _MIXED)
# The German of "a" in a negated clause: "does not see a dog", "sieht keinen Hund".
NO = Determiner("a", "", "kein", _EIN_WORD, _MIXED)
THE = Determiner("the", "the", "", _ARTICLE, _WEAK)
THIS = Determiner("this", "these", "dies", _DER_WORD, _WEAK)
POSSESSIVES = (
    Determiner("my", "my", "mein", _EIN_WORD, _MIXED),
    Determiner("his", "his", "sein", _EIN_WORD, _MIXED),
    Determiner("her", "her", "ihr", _EIN_WORD, _MIXED),
    Determiner("our", "our", "unser", _EIN_WORD, _MIXED),
)


def numeral(number: Phrase) -> Determiner:
    """Returns a number above one, in words, as the determiner of a plural noun."""
    # In the plural, a word that follows no article is declined like an article.
    return Determiner("", number.english, number.german, _UNINFLECTED, _DER_WORD)


@dataclass(frozen=True)
class NounPhrase:
    """A determiner, perhaps an adjective, and a noun, in the singular or the plural."""

    determiner: Determiner
    noun: Noun
    adjective: Adjective | None = None
    plural: bool = False

    @property
    def person(self) -> str:
        return "plural" if self.plural else "third"

    @property
    def english(self) -> str:
        adjective = self.adjective.english if self.adjective else ""
        if self.plural:
            return join(self.determiner.english_plural, adjective, self.noun.english_plural)
        rest = join(adjective, self.noun.english)
        article = self.determiner.english
        return join("an" if article == "a" and rest[0] in "aeiou" else article, rest)

    def german(self, case: str) -> str:
        """Declines the phrase for `case`: "nom", "acc" or "dat"."""
        gender = "p" if self.plural else self.noun.gender
        determiner = self.determiner.stem + self.determiner.endings[case][gender]
        adjective = ""
        if self.adjective:
            stem = self.adjective.stem or self.adjective.german
            adjective = stem + self.determiner.adjective[case][gender]
        return join(determiner, adjective, self._german_noun(case))

    def german_relative(self, case: str) -> str:
        """Returns the relative pronoun of this phrase, for `case` "nom" or "acc"."""
        return _ARTICLE[case]["p" if self.plural else self.noun.gender]

    def _german_noun(self, case: str) -> str:
        if not self.plural:
            return self.noun.german if case == "nom" else self.noun.oblique or self.noun.german
        plural = self.noun.german_plural
        return plural + "n" if case == "dat" and plural[-1] not in "ns" else plural


@dataclass(frozen=True)
class FixedPhrase:
    """A pronoun, or a phrase that only needs some cases, with its forms by case."""

    english: str
    forms: Mapping[str, str]
    person: str

    def german(self, case: str) -> str:
        return self.forms[case]


@dataclass(frozen=True)
class VerbGroup:
    """The verb of a clause, for one person and tense.

    English has the form of a statement ("saw") and the pair for questions and negations
    ("did", "see"). German has the finite verb and what closes the bracket of a main clause
    ("hat", "gesehen"), and both together at the end of a subordinate clause ("gesehen hat").
    """

    english: str
    auxiliary: str
    base: str
    finite: str
    bracket: str
    final: str


def present(verb: Verb, person: str) -> VerbGroup:
    """Returns the simple present; in German a separable prefix closes the bracket."""
    third = person == "third"
    finite = {"first": verb.first, "third": verb.third, "plural": verb.german}[person]
    return VerbGroup(
        english=verb.english_third if third else verb.english,
        auxiliary=_DO[person],
        base=verb.english,
        finite=finite,
        bracket=verb.prefix,
        final=verb.prefix + finite,
    )


def past(verb: Verb, person: str) -> VerbGroup:
    """Returns the English past; in German the perfect, with haben or sein."""
    finite = (_SEIN if verb.perfect == "sein" else _HABEN)[person]
    final = join(verb.participle, finite)
    return VerbGroup(verb.english_past, "did", verb.english, finite, verb.participle, final)


def with_modal(verb: Verb, modal: Modal, person: str) -> VerbGroup:
    """Returns the modal in the present, with the infinitive."""
    finite = {"first": modal.first, "third": modal.third, "plural": modal.plural}[person]
    infinitive = verb.prefix + verb.german
    german = (finite, infinitive, join(infinitive, finite))
    base = join(modal.english, verb.english)
    if not modal.english_third:
        return VerbGroup(base, modal.english, verb.english, *german)
    third = join(modal.english_third, verb.english)
    return VerbGroup(third if person == "third" else base, _DO[person], base, *german)


def copula(person: str, in_past: bool) -> VerbGroup:
    """Returns "to be" in the present or the past; the predicate is a complement."""
    english, finite = (_WAS, _WAR) if in_past else (_BE, _SEIN)
    return VerbGroup(english[person], english[person], "", finite[person], "", finite[person])


def was_born(person: str) -> VerbGroup:
    """Returns the passive "was born", "wurde geboren"."""
    was, wurde = _WAS[person], _WURDE[person]
    return VerbGroup(f"{was} born", was, "born", wurde, "geboren", f"geboren {wurde}")


@dataclass(frozen=True)
class Complement:
    """The complements of the verb: one piece in English, by position in German.

    German puts a pronoun before the time, other objects after it, then "nicht", then places
    and predicates. `has_no`: an object has "kein", so that the clause needs no "nicht".
    """

    english: str = ""
    pronoun: str = ""
    objects: str = ""
    predicate: str = ""
    has_no: bool = False


_NO_TIME = Phrase("", "")


@dataclass(frozen=True)
class Clause:
    """A clause without punctuation, in several word orders of both languages."""

    subject: NounPhrase | FixedPhrase
    verb: VerbGroup
    complement: Complement = Complement()
    time: Phrase = _NO_TIME
    negated: bool = False

    @property
    def _english_core(self) -> str:
        if not self.negated:
            return join(self.subject.english, self.verb.english, self.complement.english)
        auxiliary = f"{self.verb.auxiliary} not".replace("can not", "cannot")
        return join(self.subject.english, auxiliary, self.verb.base, self.complement.english)

    @property
    def english(self) -> str:
        """Returns a statement, alone or after a conjunction: "the man saw it yesterday"."""
        return join(self._english_core, self.time.english)

    @property
    def english_fronted(self) -> str:
        """Returns the clause with the time first: "yesterday the man saw it"."""
        return join(self.time.english, self._english_core)

    @property
    def english_question(self) -> str:
        verb, subject = self.verb, self.subject.english
        rest = join(verb.base, self.complement.english, self.time.english)
        return join(verb.auxiliary, subject, rest)

    def _middle(self, time: str) -> str:
        no = "nicht" if self.negated and not self.complement.has_no else ""
        parts = self.complement
        return join(parts.pronoun, time, parts.objects, no, parts.predicate)

    @property
    def german(self) -> str:
        """Returns a main clause: the finite verb second, the rest of the verb last."""
        middle, verb = self._middle(self.time.german), self.verb
        return join(self.subject.german("nom"), verb.finite, middle, verb.bracket)

    @property
    def german_fronted(self) -> str:
        """Returns the clause with the time first: the subject follows the finite verb."""
        subject, verb = self.subject.german("nom"), self.verb
        return join(self.time.german, verb.finite, subject, self._middle(""), verb.bracket)

    @property
    def german_question(self) -> str:
        """Returns a yes-no question, or a main clause after "wenn": the finite verb first."""
        middle, verb = self._middle(self.time.german), self.verb
        return join(verb.finite, self.subject.german("nom"), middle, verb.bracket)

    @property
    def german_subordinate(self) -> str:
        """Returns a subordinate clause, as after "dass": the whole verb last."""
        middle = self._middle(self.time.german)
        return join(self.subject.german("nom"), middle, self.verb.final)
