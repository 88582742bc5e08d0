"""Numbers and clock times of the built-in corpus against hand-written English and German."""

import pytest

from tools.builtin_corpus.numbers import cardinal, clock


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_cardinals_are_spelled_as_in_the_dictionary(number, english, german):
    assert cardinal(number) == (english, german)


def test_cardinals_are_distinct_in_both_languages():
    english, german = zip(*map(cardinal, range(1, 100)), strict=True)
    assert len(set(english)) == len(set(german)) == 99


@pytest.mark.parametrize("number", [0, 100])
def test_cardinal_out_of_range_is_refused(number):
    with pytest.raises(ValueError, match=f"Received: number={number}"):
        cardinal(number)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "at one o'clock", "um ein Uhr"),
        (3, 0, "at three o'clock", "um drei Uhr"),
        (1, 5, "at five past one", "um fünf nach eins"),
        (3, 10, "at ten past three", "um zehn nach drei"),
        (3, 15, "at a quarter past three", "um Viertel nach drei"),
        (3, 20, "at twenty past three", "um zwanzig nach drei"),
        (3, 25, "at twenty-five past three", "um fünf vor halb vier"),
        (3, 30, "at half past three", "um halb vier"),
        (12, 30, "at half past twelve", "um halb eins"),
        (3, 35, "at twenty-five to four", "um fünf nach halb vier"),
        (3, 40, "at twenty to four", "um zwanzig vor vier"),
        (12, 45, "at a quarter to one", "um Viertel vor eins"),
        (3, 55, "at five to four", "um fünf vor vier"),
    ],
)
def test_clock_times_are_spelled_as_spoken(hour, minute, english, german):
    assert clock(hour, minute) == (english, german)


@pytest.mark.parametrize(("hour", "minute"), [(0, 0), (13, 0), (3, 7), (3, 60)])
def test_clock_off_the_grid_is_refused(hour, minute):
    with pytest.raises(ValueError, match=f"hour={hour}, minute={minute}"):
        clock(hour, minute)
