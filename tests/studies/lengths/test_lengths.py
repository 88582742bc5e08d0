"""Sentences are grouped by the length of their source, and each group has its BLEU."""

import pytest

from tf_transformer.evaluation.bleu import bleu, bleu_interval
from tf_transformer.studies.lengths.measurements import bleu_by_bucket, buckets

REFERENCES = [f"der kleine Hund Nummer {number} schläft im Garten ." for number in range(40)]


@pytest.mark.parametrize(
    ("lengths", "least", "expected"),
    [
        ([1, 8, 9, 16, 17], 1, ["1-8: 0 1", "9-16: 2 3", "17-17: 4"]),
        ([17, 1, 9], 1, ["1-8: 1", "9-16: 2", "17-17: 0"]),
        ([16, 16], 1, ["1-16: 0 1"]),  # no bucket without a sentence
        ([3, 20, 21], 1, ["1-8: 0", "9-21: 1 2"]),
        ([3, 9, 10, 30, 31], 2, ["1-16: 0 1 2", "17-31: 3 4"]),
        ([3, 4, 9, 30], 2, ["1-8: 0 1", "9-30: 2 3"]),
        ([3, 4, 30], 2, ["1-30: 0 1 2"]),  # what is left over joins the one before
        ([5], 9, ["1-5: 0"]),
    ],
)
def test_a_bucket_has_enough_sentences(lengths, least, expected):
    found = [
        f"{group}: {' '.join(map(str, group.rows))}" for group in buckets(lengths, 8, least)
    ]
    assert found == expected


def test_each_sentence_is_in_the_bucket_of_its_length():
    lengths = [(7 * number) % 50 + 1 for number in range(200)]
    found = buckets(lengths, 5, 10)
    assert sorted(row for group in found for row in group.rows) == list(range(200))
    for group in found:
        assert all(group.first <= lengths[row] <= group.last for row in group.rows)
    assert all(a.last + 1 == b.first for a, b in zip(found, found[1:], strict=False))


def test_an_interval_is_around_the_score_of_all_sentences():
    hypotheses = [
        line.replace("Hund", "Kater") if number % 3 else line
        for number, line in enumerate(REFERENCES)
    ]
    found = bleu_interval(hypotheses, REFERENCES)
    assert found.value == bleu(hypotheses, REFERENCES).value
    assert found.low < found.value < found.high
    assert found.length_ratio == 1
    assert "bs:1000" in found.signature
    # Four times the sentences: about half the width.
    more = bleu_interval(hypotheses * 4, REFERENCES * 4)
    assert 1.5 < (found.high - found.low) / (more.high - more.low) < 2.7


def test_short_translations_are_seen():
    half = [" ".join(line.split()[:4]) for line in REFERENCES]
    assert bleu_interval(half, REFERENCES).length_ratio == pytest.approx(4 / 9)


def test_blank_references_have_no_interval():
    with pytest.raises(ValueError, match="`references` must have a token"):
        bleu_interval(["a", "b"], ["", " "])


def test_a_bucket_is_scored_by_its_own_sentences():
    groups = buckets([3] * 20 + [12] * 20, 8, 1)
    hypotheses = REFERENCES[:20] + ["falsch"] * 20
    short, long = bleu_by_bucket(groups, hypotheses, REFERENCES)
    assert short.value == pytest.approx(100)
    assert long.value < 1
