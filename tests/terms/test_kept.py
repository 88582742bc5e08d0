"""Translations around spans, without a model: what is placed, and what goes again."""

import math
import re

import numpy as np
import pytest

from tf_transformer.decoding.interface import Translation
from tf_transformer.terms.kept import translate_kept
from tf_transformer.terms.placing import Nearest, Pass
from tf_transformer.terms.protection import Protection, protection

ENGLISH = {"a": "ein", "big": "großer", "dog": "Hund", "runs": "läuft", "order": "Bestellung"}


def pieces_of(text):
    return [f"▁{part}" if not n else part for word in text.split()
            for n, part in enumerate(re.findall(r"<[1-9]>|\w+|[^\w\s]", word))]  # fmt: skip


class Words:
    """Translates word by word; a slot is likely where the source has it."""

    def __init__(self, likely=0.9, lost=()):
        self.likely, self.lost, self.seen = likely, lost, []

    def search(self, rows, texts, begins, several):
        self.seen += texts
        return [[self.translation(text)] for text in texts]

    def translation(self, text):
        for span in self.lost:
            text = text.replace(span, "lost")
        text = re.sub(r"\w+(<[1-9]>)", r"\1", text)
        found = re.sub(r"\w+", lambda word: ENGLISH.get(word[0].lower(), word[0]), text)
        return Translation(found, -1.0, -1.0, 3)

    def slot_passes(self, sources, targets, decoding):
        found = []
        for source, target in zip(sources, targets, strict=True):
            pieces = pieces_of(target)
            slots = np.full([len(pieces) + 1, 9], math.log(0.01))
            terms = re.findall(r"\w(<[1-9]>)", source)
            words = [n for n, p in enumerate(pieces) if re.match(r"▁?\w", p) or p[1:] in terms]
            for number in range(9):
                before, slot, _ = source.partition(f"<{number + 1}>")
                read = len(re.findall(r"\w+(?!>)", before))
                if slot:
                    here = [*words, words[-1] + 1][read]
                    slots[here, number] = math.log(self.likely)
            found.append(Pass(pieces, slots))
        return found

    def nearest(self, sources, targets, decoding):
        sides = [
            [pieces_of(text) for text in pair] for pair in zip(sources, targets, strict=True)
        ]
        return [Nearest(*both, range(len(both[1]))) for both in sides]

    def score(self, sources, targets, decoding):
        pairs = zip(sources, targets, strict=True)
        return [Translation(target, 0.0, -float(len(target)), 5) for _, target in pairs]

    def kept(self, text, kept, has_slots=True, **options):
        self.has_slots, self.places, self.aligns, self.scores = has_slots, has_slots, True, True
        found = translate_kept([text], kept, self, self.search, None, **options)
        return found.filled[0][0]


@pytest.mark.parametrize("has_slots", [True, False])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A <b>dog</b> runs.", "ein <b>Hund</b> läuft."),
        ("A dog <b>runs</b>.", "ein Hund <b>läuft</b>."),
        ("A <b>big <i>dog</i></b> runs.", "ein <b>großer <i>Hund</i></b> läuft."),
        ("A <b>dog</b> runs<br/> a dog", "ein <b>Hund</b> läuft<br/> ein Hund"),
        ("A dog<!-- x --> runs", "ein Hund<!-- x --> läuft"),
        ("<b>A dog runs.</b>", "<b>ein Hund läuft.</b>"),
    ],
)
def test_tags_are_placed_into_the_words_of_the_text_without_them(text, expected, has_slots):
    words = Words()
    assert words.kept(text, protection(), has_slots) == expected
    assert words.seen == [re.sub("<.*?>", "", text)]


def test_a_tag_stays_nested_and_holds_a_word(monkeypatch):
    words = Words()
    slots = np.full([4, 9], -9.0)
    slots[[2, 1, 1, 3], range(4)] = -0.1  # <i> first, </b> before <b>, and crossed

    def passes(sources, targets, decoding):
        more = [[0, targets[0].count("<")], [0, 0]]
        return [Pass(pieces_of(targets[0]), np.pad(slots, more))]

    monkeypatch.setattr(words, "slot_passes", passes)
    found = words.kept("A <b>dog</b> <i>runs</i>", protection())
    assert re.sub("<.*?>", "", found) == "ein Hund läuft"
    assert re.search(r"<b>.*\w.*</b>", found) and re.search(r"<i>.*\w.*</i>", found)


def test_a_number_is_placed_if_there_is_a_place_and_else_goes_again_as_a_slot():
    words = Words()
    assert words.kept("Order 4711 runs <b>a</b> dog.", protection()).startswith(
        "Bestellung 4711 l"
    )
    assert words.seen == ["Order runs a dog."]
    words = Words(likely=0.011)
    found = words.kept("Order 4711 runs <b>a</b> dog.", protection())
    assert found == "Bestellung 4711 läuft <b>ein</b> Hund."
    assert words.seen == ["Order runs a dog.", "Order <1> runs a dog."]
    words = Words()
    words.kept("Order {n} (4711) runs", protection())  # no words could be left out
    assert words.seen == ["Order <1> (<2>) runs"]


def test_a_term_is_left_to_the_model_which_chooses_its_form():
    words = Words()
    assert words.kept("A dog runs.", protection(None, {"dog": "Hund"})) == "ein Hund läuft."
    assert words.kept("A dog.", protection(None, {"dog": "Tier|Hund|Hunds"})) == "ein Hund."
    assert words.seen == ["A dog runs.", "A dog."]
    words = Words()
    assert (
        words.kept("A <b>dog</b>.", protection(None, {"dog": "Haustier|Tier"}))
        == "ein <b>Tier</b>."
    )
    assert words.seen == ["A dog.", "A dog<1>."]


def test_a_model_without_slots_places_the_placeholders_that_it_loses():
    words = Words(lost=["{n}"])
    assert words.kept("A {n} dog runs", protection(), False) == "ein {n} Hund läuft"
    assert words.seen == ["A {n} dog runs", "A dog runs"]


@pytest.mark.parametrize("has_slots", [True, False])
def test_a_forced_beginning_keeps_its_spans(has_slots):
    words, begun = Words(), []
    search = words.search

    def noted(rows, texts, begins, several):
        begun.extend(begins)
        return search(rows, texts, begins, several)

    words.search = noted
    found = words.kept("A <b>dog</b> runs.", protection(), has_slots, prefixes=["<b>ein Hu"])
    assert begun == ["ein Hu"]
    assert found.startswith("<b>ein Hund") and found.count("</b>") == 1
    for prefix in ("Drücke <2>", "Drücke <1> und <5>"):
        slotted = protection().protect("Press <2> and <1>.")
        assert slotted.fill(slotted.begin(prefix)) == prefix


def test_a_translation_is_read_without_tags_and_with_slots():
    kept = protection()
    read = kept.as_read(
        'See <a href="x y">5 km/h</a> now.', 'Jetzt <a href="x y">5 km/h</a>.', True
    )
    assert read[:2] == ("See <1> now.", "Jetzt <1>.")
    assert read.moved([(0, 0), (1, 1)]) == [(0, 0), (3, 3)]
    assert read.spread([0.5, 0.25], 5) == (0.5, 1.0, 1.0, 0.25, 1.0)
    around = kept.as_read('<a href="x y">A dog</a>', '<a href="x y">Ein Hund</a>', True)
    assert around[:2] == ("A dog", "Ein Hund")
    assert around.spread([0.5, 0.25], 4) == (1.0, 1.0, 0.5, 0.25)
    plain = kept.as_read("A <b>{n}</b>", "<b>{n}</b> B", False)
    assert plain[:2] == ("A {n}", "{n} B")
    assert Protection(()).as_read("A <b>x", "<b>", True)[:2] == ("A <b>x", "<b>")
