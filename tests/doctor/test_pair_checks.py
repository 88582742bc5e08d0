"""Every defect of pairs is found where it was planted, and clean text is let pass."""

import re

from tf_transformer.data import builtin
from tf_transformer.doctor.pair_checks import (
    check_copies,
    check_direction,
    check_overlap,
    check_ratio,
    check_repetitions,
)
from tf_transformer.doctor.survey import take_survey

PAIRS = builtin.pairs(1_200)
TRAIN, DEV, TEST = PAIRS[:1_000], PAIRS[1_000:1_100], PAIRS[1_100:]


def copied(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(source, f" {source}") for source, _ in pairs]


def swapped(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(target, source) for source, target in pairs]


def test_clean_text_passes_every_check(survey):
    surveys = [survey(TRAIN), survey(DEV, "dev"), survey(TEST, "test")]
    found = [
        *check_copies(surveys),
        *check_ratio(surveys),
        *check_direction(surveys),
        *check_repetitions(surveys[0]),
        *check_overlap(surveys[0], surveys[1:]),
    ]
    assert [str(finding) for finding in found] == [
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


def test_one_file_given_for_both_sides_is_found(survey):
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


def test_what_ratio_is_usual_is_learned_from_the_text(survey):
    """A language of few characters is no outlier, and a sentence of the usual kind is."""
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
    found = check_direction([survey(TRAIN), survey(swapped(DEV), "dev")])
    assert [finding.warning for finding in found] == [True]
    assert "train and dev disagree about which language is which" in found[0].text
    assert re.search(r"pairs of dev .* in \S+/dev\.en and \S+/dev\.de\.", found[0].text)
    assert found[0].text.endswith("one of them is named the wrong way round.")


def test_one_swapped_file_among_several_is_named(corpus, tmp_path):
    texts = {"a": TRAIN[:700], "b": swapped(TRAIN[700:]), "c": DEV}
    found = check_direction([take_survey("train", [*map(corpus, texts, texts.values())])])
    assert [finding.warning for finding in found] == [True]
    assert f"in {tmp_path}/b.en and {tmp_path}/b.de" in found[0].text


# --- Repetitions and overlap -------------------------------------------------------------


def test_repeated_pairs_are_found(survey):
    (finding,) = check_repetitions(survey(TRAIN[:900] + TRAIN[:100]))
    assert finding.warning
    assert "100 of 1,000 pairs of train (10%)" in finding.text
    assert finding.text.endswith("train.en:901.")


def test_a_source_with_two_translations_is_no_repetition(survey):
    pairs = TRAIN[:500] + [(source, f"{target}!") for source, target in TRAIN[:500]]
    assert not check_repetitions(survey(pairs))[0].warning


def test_pairs_of_dev_or_test_in_train_are_found(survey):
    others = [survey(DEV[:95] + TRAIN[:5], "dev"), survey(TRAIN[7:9] + TEST[2:], "test")]
    found = check_overlap(survey(TRAIN), others)
    assert [finding.warning for finding in found] == [True, True]
    assert "5 of 100 pairs of dev (5%)" in found[0].text
    assert found[0].text.endswith("dev.en:96.")
    assert "2 of 100 pairs of test (2%)" in found[1].text


def test_sources_with_another_translation_overlap_as_well(survey):
    again = [(source, f"Nun: {target}") for source, target in TRAIN[:10]]
    (finding,) = check_overlap(survey(TRAIN), [survey(DEV[:90] + again, "dev")])
    assert finding.warning and "10 of 100 source sentences of dev (10%)" in finding.text


def test_overlap_with_a_corpus_too_large_to_keep_is_estimated(survey):
    train = survey(TRAIN, hashes=300)
    (finding,) = check_overlap(train, [survey(TRAIN[:200] + DEV + TEST, "dev")])
    assert finding.warning
    number, total = map(int, re.match(r"(\d+) of (\d+) sampled pairs", finding.text).groups())
    # Half of the pairs of dev overlap; an eighth or a quarter of them is looked at.
    assert 30 < total < 150 and 0.3 < number / total < 0.7


def test_overlap_with_a_part_of_train_says_so(survey):
    (finding,) = check_overlap(survey(TRAIN, every=4), [survey(TRAIN[:100], "dev")])
    assert finding.warning
    assert (
        "25 of 100 pairs of dev (25%) are also in a sample of train (1 pair in 4)"
        in finding.text
    )
