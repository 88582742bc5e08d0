"""Numbers, prices, clock times and dates of the built-in corpus, in English and in German."""

import random

from tools.builtin_corpus.lexicon import Phrase


def _phrases(english: str, german: str) -> tuple[Phrase, ...]:
    """Pairs two lists of words separated by spaces."""
    return tuple(Phrase(*pair) for pair in zip(english.split(), german.split(), strict=True))


_UNITS = _phrases(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen",
    "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn",
)
_TENS = _phrases(
    "twenty thirty forty fifty sixty seventy eighty ninety",
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
)
WEEKDAYS = _phrases(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
)
_MONTHS = _phrases(
    "January February March April May June July August September October November December",
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
)
_IN_THE_DAY = (Phrase("in the morning", "am Morgen"), Phrase("in the evening", "am Abend"))
_HABITUAL = (
    Phrase("often", "oft"),
    Phrase("every day", "jeden Tag"),
    Phrase("every week", "jede Woche"),
    *(Phrase(f"every {day.english}", f"jeden {day.german}") for day in WEEKDAYS),
)
_PAST = (
    Phrase("yesterday", "gestern"),
    Phrase("this morning", "heute Morgen"),
    Phrase("last week", "letzte Woche"),
    Phrase("last year", "letztes Jahr"),
)
_FUTURE = (
    Phrase("today", "heute"),
    Phrase("tomorrow", "morgen"),
    Phrase("this evening", "heute Abend"),
    Phrase("next week", "nächste Woche"),
    Phrase("next year", "nächstes Jahr"),
)


def cardinal(number: int) -> Phrase:
    """Returns the number in words, 1 to 99: "twenty-one", "einundzwanzig".

    Raises:
        ValueError: if `number` is out of range.
    """
    if not 1 <= number <= 99:
        raise ValueError(f"`number` must be in 1..99. Received: number={number}.")
    if number < 20:
        return _UNITS[number - 1]
    tens, units = _TENS[number // 10 - 2], number % 10
    if not units:
        return tens
    unit = _UNITS[units - 1]
    # Before "und", as before a noun, "eins" is "ein".
    german_unit = "ein" if units == 1 else unit.german
    return Phrase(f"{tens.english}-{unit.english}", f"{german_unit}und{tens.german}")


def clock(hour: int, minute: int) -> Phrase:
    """Returns the spoken time on the twelve-hour clock: "at half past three", "um halb vier".

    Raises:
        ValueError: if `hour` is not in 1..12, or `minute` is not a multiple of 5 below 60.
    """
    if not 1 <= hour <= 12 or minute not in range(0, 60, 5):
        raise ValueError(
            "`hour` must be in 1..12 and `minute` a multiple of 5 in 0..55. "
            f"Received: hour={hour}, minute={minute}."
        )
    this, following = cardinal(hour), cardinal(hour % 12 + 1)
    if minute == 0:
        german = "ein" if hour == 1 else this.german
        return Phrase(f"at {this.english} o'clock", f"um {german} Uhr")
    if minute == 30:
        return Phrase(f"at half past {this.english}", f"um halb {following.german}")
    distance = minute if minute < 30 else 60 - minute
    amount = Phrase("a quarter", "Viertel") if distance == 15 else cardinal(distance)
    english = f"past {this.english}" if minute < 30 else f"to {following.english}"
    german = f"nach {this.german}" if minute < 30 else f"vor {following.german}"
    if distance == 25:
        # German counts from the half hour: "fünf vor halb vier" is 3:25.
        amount = Phrase(amount.english, "fünf")
        german = f"{'vor' if minute < 30 else 'nach'} halb {following.german}"
    return Phrase(f"at {amount.english} {english}", f"um {amount.german} {german}")


def any_clock(rng: random.Random) -> Phrase:
    """Draws a time on the twelve-hour clock, a multiple of five minutes."""
    return clock(rng.randint(1, 12), rng.randrange(0, 60, 5))


def any_date(rng: random.Random) -> Phrase:
    """Draws a day of the year without preposition: "May 3", "3. Mai"."""
    month, day = rng.choice(_MONTHS), rng.randint(1, 28)
    return Phrase(f"{month.english} {day}", f"{day}. {month.german}")


def any_year(rng: random.Random) -> int:
    """Draws a year of birth, 1960 to 2019."""
    return rng.randint(1960, 2019)


def any_price(rng: random.Random) -> Phrase:
    """Draws an amount in digits or in words: "12.50 euros", "thirty-two euros"."""
    if rng.random() < 0.4:
        number = cardinal(rng.randint(2, 99))
        return Phrase(f"{number.english} euros", f"{number.german} Euro")
    euros, cents = rng.randint(2, 39), rng.choice(("20", "50", "75", "99"))
    return Phrase(f"{euros}.{cents} euros", f"{euros},{cents} Euro")


def any_time(rng: random.Random, tense: str, negated: bool = False) -> Phrase:
    """Draws an adverbial of time for "present", "past" or "future".

    A negated clause gets no adverbial of repetition, because "not every day" negates only that.
    """
    if rng.random() < 0.3:
        return any_clock(rng)
    if tense == "present":
        return rng.choice(_IN_THE_DAY if negated else _IN_THE_DAY + _HABITUAL)
    if rng.random() < 0.4:
        return any_day(rng)
    return rng.choice(_IN_THE_DAY + (_PAST if tense == "past" else _FUTURE))


def any_day(rng: random.Random) -> Phrase:
    """Draws a day: "on Monday", "am Montag" or "on May 3", "am 3. Mai"."""
    day = rng.choice(WEEKDAYS) if rng.random() < 0.5 else any_date(rng)
    return Phrase(f"on {day.english}", f"am {day.german}")
