"""The words of the built-in English-German corpus, with the forms that German grammar needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Phrase(NamedTuple):
    """An expression with one form in each language."""

    english: str
    german: str


@dataclass(frozen=True)
class Noun:
    """A noun; `gender` is m, f or n, and `oblique` the weak accusative and dative singular."""

    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str
    oblique: str = ""


@dataclass(frozen=True)
class Adjective:
    """An adjective; `stem` takes the endings if it differs from the predicative (teur-e)."""

    english: str
    german: str
    stem: str = ""


@dataclass(frozen=True)
class Verb:
    """A verb: English base, third person, past; German infinitive, ich, er, past participle.

    `german`, `first` and `third` lack the separable `prefix`; the participle has it.
    """

    english: str
    english_third: str
    english_past: str
    german: str
    first: str
    third: str
    participle: str
    prefix: str = ""
    perfect: str = "haben"


@dataclass(frozen=True)
class Modal:
    """A modal verb, with its German present for ich, er and wir.

    `english_third` is empty where English has no do-support ("can", but "wants to").
    """

    english: str
    english_third: str
    first: str
    third: str
    plural: str
    negatable: bool = True


_TEXTS = (
    Noun("book", "books", "n", "Buch", "Bücher"),
    Noun("letter", "letters", "m", "Brief", "Briefe"),
    Noun("story", "stories", "f", "Geschichte", "Geschichten"),
)
_THINGS = (
    Noun("bag", "bags", "f", "Tasche", "Taschen"),
    Noun("bicycle", "bicycles", "n", "Fahrrad", "Fahrräder"),
    Noun("car", "cars", "n", "Auto", "Autos"),
    Noun("chair", "chairs", "m", "Stuhl", "Stühle"),
    Noun("coat", "coats", "m", "Mantel", "Mäntel"),
    Noun("house", "houses", "n", "Haus", "Häuser"),
    Noun("key", "keys", "m", "Schlüssel", "Schlüssel"),
    Noun("lamp", "lamps", "f", "Lampe", "Lampen"),
    Noun("picture", "pictures", "n", "Bild", "Bilder"),
    Noun("table", "tables", "m", "Tisch", "Tische"),
)
_FOODS = (
    Noun("apple", "apples", "m", "Apfel", "Äpfel"),
    Noun("cake", "cakes", "m", "Kuchen", "Kuchen"),
    Noun("egg", "eggs", "n", "Ei", "Eier"),
    Noun("potato", "potatoes", "f", "Kartoffel", "Kartoffeln"),
    Noun("soup", "soups", "f", "Suppe", "Suppen"),
)
_ANIMALS = (
    Noun("bird", "birds", "m", "Vogel", "Vögel"),
    Noun("cat", "cats", "f", "Katze", "Katzen"),
    Noun("dog", "dogs", "m", "Hund", "Hunde"),
    Noun("horse", "horses", "n", "Pferd", "Pferde"),
)
_DOORS = (
    Noun("door", "doors", "f", "Tür", "Türen"),
    Noun("window", "windows", "n", "Fenster", "Fenster"),
)
_PERSONS = (
    Noun("boy", "boys", "m", "Junge", "Jungen", "Jungen"),
    Noun("brother", "brothers", "m", "Bruder", "Brüder"),
    Noun("child", "children", "n", "Kind", "Kinder"),
    Noun("daughter", "daughters", "f", "Tochter", "Töchter"),
    Noun("doctor", "doctors", "m", "Arzt", "Ärzte"),
    Noun("friend", "friends", "m", "Freund", "Freunde"),
    Noun("girl", "girls", "n", "Mädchen", "Mädchen"),
    Noun("man", "men", "m", "Mann", "Männer"),
    Noun("neighbour", "neighbours", "m", "Nachbar", "Nachbarn", "Nachbarn"),
    Noun("sister", "sisters", "f", "Schwester", "Schwestern"),
    Noun("teacher", "teachers", "m", "Lehrer", "Lehrer"),
    Noun("woman", "women", "f", "Frau", "Frauen"),
)
NOUNS: Mapping[str, tuple[Noun, ...]] = {
    "text": _TEXTS,
    "thing": _THINGS,
    "food": _FOODS,
    "animal": _ANIMALS,
    "door": _DOORS,
    "person": _PERSONS,
}
EVENTS = (
    Noun("concert", "concerts", "n", "Konzert", "Konzerte"),
    Noun("exam", "exams", "f", "Prüfung", "Prüfungen"),
    Noun("film", "films", "m", "Film", "Filme"),
    Noun("lesson", "lessons", "f", "Stunde", "Stunden"),
)

_OLD, _YOUNG = Adjective("old", "alt"), Adjective("young", "jung")
_SMALL, _BIG = Adjective("small", "klein"), Adjective("big", "groß")
_TIRED, _SICK = Adjective("tired", "müde", "müd"), Adjective("sick", "krank")
_RED, _GREEN = Adjective("red", "rot"), Adjective("green", "grün")
_BLACK, _WHITE = Adjective("black", "schwarz"), Adjective("white", "weiß")
_NEW, _EXPENSIVE = Adjective("new", "neu"), Adjective("expensive", "teuer", "teur")
_GOOD, _FRESH = Adjective("good", "gut"), Adjective("fresh", "frisch")
_FRIENDLY, _CLEVER = Adjective("friendly", "freundlich"), Adjective("clever", "klug")
_HAPPY, _CHEAP = Adjective("happy", "glücklich"), Adjective("cheap", "billig")
_BEAUTIFUL = Adjective("beautiful", "schön")
ADJECTIVES: Mapping[str, tuple[Adjective, ...]] = {
    "text": (_OLD, _NEW, _BEAUTIFUL, _GOOD),
    "thing": (_OLD, _NEW, _SMALL, _BIG, _RED, _GREEN, _BLACK, _WHITE, _EXPENSIVE, _CHEAP,
              _BEAUTIFUL),
    "food": (_FRESH, _GOOD, _BIG, _SMALL, _CHEAP, _EXPENSIVE),
    "animal": (_OLD, _YOUNG, _SMALL, _BIG, _BLACK, _WHITE, _TIRED),
    "door": (_OLD, _NEW, _SMALL, _BIG, _RED, _GREEN, _WHITE),
    "person": (_OLD, _YOUNG, _TIRED, _FRIENDLY, _CLEVER, _HAPPY, _SICK),
}  # fmt: skip

_ANYTHING = ("text", "thing", "food", "animal", "person")
_GOODS = ("text", "thing", "food")
# Verbs with an accusative object, and the kinds of noun that the object can be. No past equals
# the base ("read"), since with "they" the tense, and so the German, would be ambiguous.
TRANSITIVE: tuple[tuple[Verb, tuple[str, ...]], ...] = (
    (Verb("see", "sees", "saw", "sehen", "sehe", "sieht", "gesehen"), _ANYTHING),
    (Verb("find", "finds", "found", "finden", "finde", "findet", "gefunden"), _ANYTHING),
    (Verb("look for", "looks for", "looked for", "suchen", "suche", "sucht", "gesucht"),
     _ANYTHING),
    (Verb("buy", "buys", "bought", "kaufen", "kaufe", "kauft", "gekauft"), _GOODS),
    (Verb("sell", "sells", "sold", "verkaufen", "verkaufe", "verkauft", "verkauft"), _GOODS),
    (Verb("need", "needs", "needed", "brauchen", "brauche", "braucht", "gebraucht"), _GOODS),
    (Verb("forget", "forgets", "forgot", "vergessen", "vergesse", "vergisst", "vergessen"),
     ("text", "thing")),
    (Verb("write", "writes", "wrote", "schreiben", "schreibe", "schreibt", "geschrieben"),
     ("text",)),
    (Verb("eat", "eats", "ate", "essen", "esse", "isst", "gegessen"), ("food",)),
    (Verb("feed", "feeds", "fed", "füttern", "füttere", "füttert", "gefüttert"), ("animal",)),
    (Verb("open", "opens", "opened", "machen", "mache", "macht", "aufgemacht", "auf"),
     ("door",)),
    (Verb("close", "closes", "closed", "machen", "mache", "macht", "zugemacht", "zu"),
     ("door",)),
    (Verb("visit", "visits", "visited", "besuchen", "besuche", "besucht", "besucht"),
     ("person",)),
    (Verb("call", "calls", "called", "rufen", "rufe", "ruft", "angerufen", "an"), ("person",)),
    (Verb("invite", "invites", "invited", "laden", "lade", "lädt", "eingeladen", "ein"),
     ("person",)),
)  # fmt: skip
# Verbs whose only object, a person, stands in the dative.
DATIVE = (
    Verb("help", "helps", "helped", "helfen", "helfe", "hilft", "geholfen"),
    Verb("thank", "thanks", "thanked", "danken", "danke", "dankt", "gedankt"),
    Verb("follow", "follows", "followed", "folgen", "folge", "folgt", "gefolgt", "", "sein"),
    Verb("listen to", "listens to", "listened to", "hören", "höre", "hört", "zugehört", "zu"),
)
DITRANSITIVE = (
    Verb("give", "gives", "gave", "geben", "gebe", "gibt", "gegeben"),
    Verb("show", "shows", "showed", "zeigen", "zeige", "zeigt", "gezeigt"),
    Verb("send", "sends", "sent", "schicken", "schicke", "schickt", "geschickt"),
)
LOCAL = (
    Verb("work", "works", "worked", "arbeiten", "arbeite", "arbeitet", "gearbeitet"),
    Verb("sleep", "sleeps", "slept", "schlafen", "schlafe", "schläft", "geschlafen"),
    Verb("wait", "waits", "waited", "warten", "warte", "wartet", "gewartet"),
    Verb("play", "plays", "played", "spielen", "spiele", "spielt", "gespielt"),
    Verb("dance", "dances", "danced", "tanzen", "tanze", "tanzt", "getanzt"),
)
MOTION = (
    Verb("go", "goes", "went", "gehen", "gehe", "geht", "gegangen", "", "sein"),
    Verb("come", "comes", "came", "kommen", "komme", "kommt", "gekommen", "", "sein"),
    Verb("drive", "drives", "drove", "fahren", "fahre", "fährt", "gefahren", "", "sein"),
)
LEAVE = Verb("leave", "leaves", "left", "fahren", "fahre", "fährt", "abgefahren", "ab", "sein")
ARRIVE = Verb(
    "arrive", "arrives", "arrived", "kommen", "komme", "kommt", "angekommen", "an", "sein"
)
BEGIN = Verb("begin", "begins", "began", "beginnen", "beginne", "beginnt", "begonnen")
END = Verb("end", "ends", "ended", "enden", "ende", "endet", "geendet")
COST = Verb("cost", "costs", "cost", "kosten", "koste", "kostet", "gekostet")
PAY = Verb("pay", "pays", "paid", "bezahlen", "bezahle", "bezahlt", "bezahlt")
# Verbs that govern a clause; the infinitive doubles as the plural of the present.
KNOW = Verb("know", "knows", "knew", "wissen", "weiß", "weiß", "gewusst")
SAYING = (
    KNOW,
    Verb("think", "thinks", "thought", "denken", "denke", "denkt", "gedacht"),
    Verb("say", "says", "said", "sagen", "sage", "sagt", "gesagt"),
    Verb("hope", "hopes", "hoped", "hoffen", "hoffe", "hofft", "gehofft"),
)
# The modals for prices and concerts, which neither can nor want anything.
IMPERSONAL_MODALS = (
    Modal("will", "", "werde", "wird", "werden"),
    Modal("should", "", "sollte", "sollte", "sollten"),
)
MODALS = (
    *IMPERSONAL_MODALS,
    Modal("can", "", "kann", "kann", "können"),
    Modal("want to", "wants to", "will", "will", "wollen"),
    # "Must not" is "darf nicht", not a negation of "muss".
    Modal("must", "", "muss", "muss", "müssen", negatable=False),
)

CITIES = (Phrase("Berlin", "Berlin"), Phrase("Cologne", "Köln"), Phrase("Munich", "München"),
          Phrase("Vienna", "Wien"))  # fmt: skip
PLACES = (
    Phrase("in the garden", "im Garten"),
    Phrase("in the kitchen", "in der Küche"),
    Phrase("in the city", "in der Stadt"),
    Phrase("at the station", "am Bahnhof"),
    Phrase("at the market", "auf dem Markt"),
    Phrase("at home", "zu Hause"),
    *(Phrase(f"in {city.english}", f"in {city.german}") for city in CITIES),
)
DESTINATIONS = (
    Phrase("to the garden", "in den Garten"),
    Phrase("to the city", "in die Stadt"),
    Phrase("to the station", "zum Bahnhof"),
    Phrase("to the market", "auf den Markt"),
    Phrase("home", "nach Hause"),
    *(Phrase(f"to {city.english}", f"nach {city.german}") for city in CITIES),
)
