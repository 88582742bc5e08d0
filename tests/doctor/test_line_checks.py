"""Every defect of a line is found where it was planted, and clean text is let pass."""

import re
from collections.abc import Callable

import pytest

from tf_transformer.data import builtin
from tf_transformer.doctor.line_checks import (
    check_case,
    check_characters,
    check_empty,
    check_length,
    check_tokenised,
)

PAIRS = builtin.pairs(1_100)
TRAIN, DEV = PAIRS[:1_000], PAIRS[1_000:]

# Raw text of other kinds that no check may mistake for a defect.
RAW = [
    "« Où est-elle ? », dit-il ; « là »… Non !",
    "Der Spaß“ – so heißt’s – kostet 3 €…",
    "CAFÉ », « ÉTÉ »",
    "Fish & chips; R&D; AT&T; a&b",
    "A\ttab, and 5.3",
    "Οὐκ ἔστιν. Привет, мир.",
    "É»  Ünï—  à » ô »",
    "你好,世界。",
]


def edit(
    pairs: list[tuple[str, str]], change: Callable[[str], str], side: int, every: int = 1
) -> list[tuple[str, str]]:
    """The pairs, with `change` made to one side of each `every`-th."""
    return [
        tuple(change(text) if here == side else text for here, text in enumerate(pair))
        if number % every == every - 1
        else pair
        for number, pair in enumerate(pairs)
    ]


def moses(text: str) -> str:
    """What Moses's tokenizer makes of a sentence."""
    return re.sub(r"(\w)([.,?!])", r"\1 \2", text).replace("'", " &apos;")


def test_clean_text_passes_every_check(survey):
    surveys = [survey(TRAIN), survey(DEV, "dev")]
    found = [
        *check_characters(surveys),
        *check_empty(surveys),
        *check_length(surveys, max_length=256),
        *check_tokenised(surveys),
        *check_case(surveys),
    ]
    assert [finding.check for finding in found] == [
        "encoding", "control characters", "HTML entities", "empty lines", "length",
        "tokenised text", "case",
    ]  # fmt: skip
    assert not any(finding.warning for finding in found)


@pytest.mark.parametrize("line", RAW)
def test_raw_text_of_any_language_is_no_defect(survey, line):
    surveys = [survey([(line, line)] * 30), survey([(line, line)] * 30, "dev")]
    checks = (check_characters, check_tokenised, check_case)
    found = [finding for check in checks for finding in check(surveys)]
    assert not [str(finding) for finding in found if finding.warning]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("check", "defect"),
    [
        ("encoding", lambda text: text + "\ufffd"),
        ("encoding", lambda text: f"{text} für".encode().decode("latin-1")),
        ("encoding", lambda text: f"{text} Straße".encode().decode("cp1252")),
        ("encoding", lambda text: f"{text} “quoted”".encode().decode("cp1252", "ignore")),
        ("encoding", lambda text: f"{text} это".encode().decode("cp1252", "ignore")),
        ("control characters", lambda text: text + "\x92"),
        ("control characters", lambda text: text + "\x00"),
        ("control characters", lambda text: text + "\u2028"),
        ("control characters", lambda text: text + "\x0b"),
        ("HTML entities", lambda text: text + " &amp; so on"),
        ("HTML entities", lambda text: text + " &#8217;"),
        ("HTML entities", lambda text: text + " &#xE4;"),
    ],
)
def test_broken_characters_are_found_with_their_first_line(survey, check, defect, side):
    surveys = [survey(edit(TRAIN, defect, side, every=100)), survey(DEV, "dev")]
    # Text decoded as Latin-1 may hold control characters as well.
    warnings = [finding for finding in check_characters(surveys) if finding.warning]
    assert warnings[0].check == check
    name = ("source", "target")[side]
    assert f"10 of 1,000 {name} lines of train (1%)" in warnings[0].text
    language = ("en", "de")[side]
    assert re.search(rf"First: \S+/train\.{language}:100\.$", warnings[0].text)


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_empty_lines_are_found(survey, blank):
    surveys = [survey(TRAIN), survey(edit(DEV, lambda _: blank, 1, every=50), "dev")]
    (finding,) = check_empty(surveys)
    assert finding.warning and "2 of 100 target lines of dev (2%)" in finding.text


@pytest.mark.parametrize("pairs", [[], [("", " "), ("A dog.", "")]])
def test_a_split_without_any_text_is_a_warning(survey, pairs):
    (finding,) = check_empty([survey(pairs), survey(DEV, "dev")])
    assert finding.warning and finding.text.startswith("train has no pair with text")


def test_lines_longer_than_the_limit_in_words_are_found(survey):
    long = edit(TRAIN, lambda _: "word " * 32, 0, every=10)
    (finding,) = check_length([survey(long)], max_length=32)
    assert finding.warning and "100 of 1,000 source lines of train (10%)" in finding.text
    assert not check_length([survey(long)], max_length=33)[0].warning  # 32 words and EOS


@pytest.mark.parametrize("side", [0, 1])
def test_text_tokenised_throughout_is_found(survey, side):
    surveys = [survey(edit(TRAIN, moses, side)), survey(edit(DEV, moses, side), "dev")]
    found = check_tokenised(surveys)
    name = ("source", "target")[side]
    assert len(found) == 2 and all(finding.warning for finding in found)
    assert f"{name} lines of train" in found[0].text
    assert f"{name} lines of dev" in found[1].text


def test_tokenised_text_mixed_in_is_found(survey):
    (finding,) = check_tokenised([survey(edit(TRAIN, moses, 1, every=5)), survey(DEV, "dev")])
    assert finding.warning and "target lines of train" in finding.text


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("tokenised", ["train", "dev"])
def test_tokenised_against_raw_text_is_one_warning(survey, side, tokenised):
    splits = {"train": TRAIN, "dev": DEV}
    splits[tokenised] = edit(splits[tokenised], moses, side)
    (finding,) = check_tokenised([survey(pairs, name) for name, pairs in splits.items()])
    raw = ({"train", "dev"} - {tokenised}).pop()
    name = ("source", "target")[side]
    assert finding.warning
    assert re.match(rf"{tokenised} {name} is tokenised .* {raw} {name} is not", finding.text)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_lower_case_against_cased_text_is_found(survey, split):
    splits = {"train": TRAIN, "dev": DEV}
    splits[split] = edit(splits[split], str.lower, 1)
    (finding,) = check_case([survey(pairs, name) for name, pairs in splits.items()])
    assert finding.warning and f"0% of {split} target" in finding.text


def test_lower_case_everywhere_is_a_choice(survey):
    surveys = [survey(edit(TRAIN, str.lower, 0)), survey(edit(DEV, str.lower, 0), "dev")]
    assert not any(finding.warning for finding in check_case(surveys))


def test_a_few_lines_say_nothing_of_case_and_tokenisation(survey):
    surveys = [survey(TRAIN), survey(edit(edit(DEV[:9], moses, 0), str.lower, 1), "dev")]
    assert not check_case(surveys)[0].warning
    mismatch = [finding for finding in check_tokenised(surveys) if "is not" in finding.text]
    assert not mismatch
