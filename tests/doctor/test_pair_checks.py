"""Planted defects of pairs are found, and clean text passes."""

import random
import re

import numpy as np
import pytest

from tf_transformer.data import builtin
from tf_transformer.doctor.pair_checks import (
    check_copies,
    check_direction,
    check_overlap,
    check_ratio,
    check_repetitions,
    learn_direction,
    swapped_pairs,
)
from tf_transformer.doctor.survey import take_survey

Pairs = list[tuple[str, str]]

PAIRS = builtin.pairs(2_000)
TRAIN, DEV, TEST = PAIRS[:1_000], PAIRS[1_000:1_100], PAIRS[1_100:1_200]


def copied(pairs: Pairs) -> Pairs:
    return [(source, f" {source}") for source, _ in pairs]


def swapped(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


def test_clean_text_passes_every_check(survey):
    surveys = [survey(TRAIN), survey(DEV, "dev"), survey(TEST, "test")]
    findings = [
        *check_copies(surveys),
        *check_ratio(surveys),
        *check_direction(surveys),
        *check_repetitions(surveys[0]),
        *check_overlap(surveys[0], surveys[1:]),
    ]
    assert [str(finding) for finding in findings] == [
        "ok       copies: none",
        "ok       length ratio: none",
        "ok       swapped languages: none",
        "ok       repetitions: none",
        "ok       overlap: none",
    ]


# --- Copies and lengths ------------------------------------------------------------------


def test_untranslated_copies_are_found(survey):
    (finding,) = check_copies([survey(TRAIN[:-20] + copied(TRAIN[-20:])), survey(DEV, "dev")])
    assert finding.warning
    assert "20 of 1,000 pairs of train (2%)" in finding.text
    assert finding.text.endswith("train.en:981.")


def test_one_file_used_for_both_sides_is_found(survey):
    (finding,) = check_copies([survey(TRAIN), survey(copied(DEV), "dev")])
    assert finding.warning and "100 of 100 pairs of dev (100%)" in finding.text


def test_numbers_and_punctuation_may_be_equal(survey):
    assert not check_copies([survey([("1984", "1984"), ("...", "..."), ("", "")])])[0].warning


def test_shifted_lines_are_found_by_their_lengths(survey):
    """Sentences of very different lengths, the translations one line too late."""
    pairs = [(text * (1 + 9 * (n % 2)), line * (1 + 9 * (n % 2)))
             for n, (text, line) in enumerate(TRAIN)]  # fmt: skip
    sources, targets = zip(*pairs, strict=True)
    shifted = list(zip(sources[1:], targets[:-1], strict=True))
    assert not check_ratio([survey(pairs)])[0].warning
    dev = survey(shifted, "dev")
    (finding,) = check_ratio([survey(pairs), dev])
    assert finding.warning and re.match(r"99\d of 999 pairs of dev \(99%\)", finding.text)


def test_the_usual_length_ratio_is_learned_from_the_text(survey):
    """A language with few characters is no outlier, but other text beside it is."""
    short = [(source, target[::4]) for source, target in TRAIN]
    (finding,) = check_ratio([survey(short), survey(DEV, "dev")])
    assert finding.warning and "pairs of dev" in finding.text
    assert not check_ratio([survey(short)])[0].warning


def test_short_and_empty_lines_have_no_ratio(survey):
    odd = [("Yes.", "Aber selbstredend"), ("Text " * 9, "")] * 20
    assert not check_ratio([survey(TRAIN), survey(DEV + odd, "dev")])[0].warning


# --- Direction ---------------------------------------------------------------------------


def test_swapped_lines_are_found(survey):
    pairs = TRAIN[:500] + swapped(TRAIN[500:520]) + TRAIN[520:]
    (finding,) = check_direction([survey(pairs), survey(DEV, "dev")])
    assert finding.warning
    assert re.match(r"(19|20) of 1,000 pairs of train", finding.text)
    assert re.search(r"First: \S+/train\.en:50[12]\.$", finding.text)


def test_swapped_dev_files_are_found_and_named(survey):
    (finding,) = check_direction([survey(TRAIN), survey(swapped(DEV), "dev")])
    assert finding.warning
    assert "train and dev disagree about which language is which" in finding.text
    assert re.search(r"pairs of dev .* in \S+/dev\.en and \S+/dev\.de\.", finding.text)
    assert finding.text.endswith("one of them is named the wrong way round.")


def test_one_swapped_file_among_several_is_named(corpus, tmp_path):
    texts = {"a": TRAIN[:700], "b": swapped(TRAIN[700:]), "c": DEV}
    surveys = [take_survey("train", [*map(corpus, texts, texts.values())])]
    (finding,) = check_direction(surveys)
    assert finding.warning and f"in {tmp_path}/b.en and {tmp_path}/b.de" in finding.text


def swap(pairs: Pairs, share: float) -> tuple[Pairs, np.ndarray]:
    """Swaps a random share of the pairs; returns all pairs, and a mask of those swapped."""
    rng = random.Random(1)
    mask = np.array([rng.random() < share for _ in pairs])
    return [(t, s) if hit else (s, t) for (s, t), hit in zip(pairs, mask, strict=True)], mask


def detected(pairs: Pairs, learned_from: Pairs) -> np.ndarray:
    weights = learn_direction(*zip(*learned_from, strict=True))
    return swapped_pairs(weights, *zip(*pairs, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.25])
def test_swapped_pairs_are_found_in_the_text_that_is_learned_from(share):
    pairs, mask = swap(PAIRS, share)
    hits = detected(pairs, learned_from=pairs)
    assert not np.any(hits & ~mask)
    assert np.sum(hits & mask) >= 0.9 * np.sum(mask)


def test_text_of_one_language_on_both_sides_has_no_direction():
    english = [source for source, _ in PAIRS]
    pairs = list(zip(english[:1_000], english[1_000:], strict=True))
    assert not np.any(detected(pairs, learned_from=pairs))


def test_names_numbers_and_copies_are_not_swapped_pairs():
    odd = [("Tom!", "Tom!"), ("1984", "1984"), ("", ""), ("OK", "Berlin"), ("x" * 99, "1")]
    odd += [(target, target) for _, target in PAIRS[:50]]  # untranslated, but not swapped
    odd += [(source, source) for source, _ in PAIRS[:50]]
    assert not np.any(detected(odd, learned_from=PAIRS))


def test_swapped_scripts_are_found():
    rng = random.Random(2)
    greek = ["".join(rng.choice("αβγδε ") for _ in range(30)) for _ in PAIRS]
    pairs = [(source, line) for (source, _), line in zip(PAIRS, greek, strict=True)]
    assert detected(swapped(pairs[:100]), learned_from=pairs).all()
    assert not np.any(detected(pairs, learned_from=pairs))


def test_an_empty_corpus_has_no_swapped_pairs():
    assert len(swapped_pairs(learn_direction([], []), [], [])) == 0


def test_chunks_do_not_change_the_result(monkeypatch):
    weights = learn_direction(*zip(*PAIRS, strict=True))
    sides = [list(side) for side in zip(*swap(PAIRS, 0.2)[0], strict=True)]
    whole = swapped_pairs(weights, *sides)
    monkeypatch.setattr("tf_transformer.doctor.pair_checks.CHUNK_PAIRS", 7)
    np.testing.assert_array_equal(swapped_pairs(weights, *sides), whole)
    np.testing.assert_array_equal(learn_direction(*zip(*PAIRS, strict=True)), weights)


# --- Repetitions and overlap -------------------------------------------------------------


def test_repeated_pairs_are_found(survey):
    (finding,) = check_repetitions(survey(TRAIN[:900] + TRAIN[:100]))
    assert finding.warning
    assert "100 of 1,000 pairs of train (10%)" in finding.text
    assert finding.text.endswith("train.en:901.")


def test_a_source_with_two_translations_is_not_a_repetition(survey):
    pairs = TRAIN[:500] + [(source, f"{target}!") for source, target in TRAIN[:500]]
    assert not check_repetitions(survey(pairs))[0].warning


def test_pairs_of_dev_or_test_in_train_are_found(survey):
    others = [survey(DEV[:95] + TRAIN[:5], "dev"), survey(TRAIN[7:9] + TEST[2:], "test")]
    dev, test = check_overlap(survey(TRAIN), others)
    assert dev.warning and test.warning
    assert "5 of 100 pairs of dev (5%)" in dev.text
    assert dev.text.endswith("dev.en:96.")
    assert "2 of 100 pairs of test (2%)" in test.text


def test_sources_with_another_translation_overlap_too(survey):
    again = [(source, f"Nun: {target}") for source, target in TRAIN[:10]]
    (finding,) = check_overlap(survey(TRAIN), [survey(DEV[:90] + again, "dev")])
    assert finding.warning and "10 of 100 source sentences of dev (10%)" in finding.text


def test_overlap_with_a_corpus_too_large_to_keep_is_estimated(survey):
    train = survey(TRAIN, hashes=300)
    (finding,) = check_overlap(train, [survey(TRAIN[:200] + DEV + TEST, "dev")])
    assert finding.warning
    number, total = map(int, re.match(r"(\d+) of (\d+) sampled pairs", finding.text).groups())
    # Half of the pairs of dev overlap; an eighth or a quarter of them are examined.
    assert 30 < total < 150 and 0.3 < number / total < 0.7


def test_overlap_with_a_sample_of_train_is_reported_as_such(survey):
    (finding,) = check_overlap(survey(TRAIN, every=4), [survey(TRAIN[:100], "dev")])
    assert finding.warning
    assert (
        "25 of 100 pairs of dev (25%) are also in a sample of train (1 pair in 4)"
        in finding.text
    )
