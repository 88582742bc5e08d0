"""Spans planted in sentences, and what is counted of their translations."""

import re
from collections import Counter
from random import Random

import kept_spans
import pytest
from kept_spans import Planted, has_each_once, lexicon, planted, rest

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer

TERMS = {"house": "Haus", "green": "grünes", "large": "großes", "meadow": "Wiese"}
WORDS = {word: {term} for word, term in TERMS.items()} | {"green": {"grünes", "grün"}}
SOURCE = "A large, green house on the meadow."
TARGET = "Ein großes, grünes Haus auf der Wiese."


def plant(kind: str, seed: int, translation: str = TARGET) -> Planted:
    return planted(SOURCE, TARGET, translation, WORDS, Random(seed), [kind])


def test_one_to_four_spans_of_each_kind_are_planted():
    counts = Counter()
    for kind in kept_spans.KINDS:
        for seed in range(40):
            line = plant(kind, seed)
            counts[len(line.spans)] += 1
            assert re.sub(r"</?\w+>| (https://\S*\d|\d+)", "", line.text) == SOURCE
            assert has_each_once(line.copied, line.spans)
            of_text = [span for span in line.spans if span not in line.terms.values()]
            assert has_each_once(line.text, of_text)
    assert counts.keys() == {1, 2, 3, 4}
    tags = re.findall("</?(.*?)>", plant("tag", 1).text)
    assert tags and tags[::2] == tags[1::2]  # each closed at once


def test_the_translation_of_a_term_stands_once_in_both():
    found = {pair for seed in range(40) for pair in plant("term", seed).terms.items()}
    assert found == {*TERMS.items()}
    other = TARGET.replace("Haus", "Heim")
    terms = {t for seed in range(40) for t in plant("term", seed, other).terms.values()}
    assert terms == {"grünes", "großes", "Wiese"}
    missing = {t for seed in range(40) for t in plant("other", seed, other).terms.values()}
    assert missing == {"Haus"} and not plant("other", 1).terms
    invented = planted(SOURCE, "", "", {}, Random(3), ["term"])
    assert invented.terms and all(t == s[::-1] for s, t in invented.terms.items())


def test_the_terms_of_each_line_are_protected():
    lines = [plant("term", 1), planted("The dog.", "", "", {}, Random(1), ["number"])]
    kept = kept_spans.Protection(glossary=kept_spans._OfEachLine(lines))
    found = [[span.target for span in kept.protect(line.text).spans] for line in lines]
    assert sorted(found[0]) == sorted(lines[0].spans) and lines[0].terms
    assert found[1] == lines[1].spans


@pytest.mark.parametrize(
    ("text", "kept"),
    [("Ein Haus <b0>da</b0> 4711.", True), ("Ein Haus <b0>da</b0>.", False),
     ("Haus und Haus <b0> </b0> 4711", False), ("Hausboot, Haus, <b0> </b0>, 4711", True)],
)  # fmt: skip
def test_a_line_is_whole_if_each_span_stands_once(text, kept):
    assert has_each_once(text, ["Haus", "<b0>", "</b0>", "4711"]) is kept


def test_the_rest_is_what_is_not_a_span():
    assert rest("Hausboot, Haus am <b0>See</b0>. Haus", ["Haus", "<b0>", "</b0>"]) == (
        "Hausboot, am See . Haus"
    )
    line = plant("number", 2)
    assert rest(line.text, line.spans).replace(" .", ".").replace(" ,", ",") == SOURCE


def test_aligned_words_are_learned_from_pairs(tmp_path):
    random, pairs = Random(0), []
    words = ["".join(random.sample("abcdefgh", 6)) for _ in range(150)]
    known = {word: word[::-1].capitalize() for word in words}
    for _ in range(600):
        some = random.sample(sorted(known), 3)
        pairs.append((" ".join(some), " ".join(known[word] for word in reversed(some))))
    lines = [text for pair in pairs for text in pair]
    train_tokenizer(lines, tmp_path / "t.model", vocab_size=600)
    tokenizer = Tokenizer(tmp_path / "t.model")
    found = lexicon(pairs, tokenizer)
    assert sum(found.get(word) == {other} for word, other in known.items()) > 140
    for others in lexicon(pairs, tokenizer, "[AB]").values():
        assert {other[0] for other in others} <= {"A", "B"}
