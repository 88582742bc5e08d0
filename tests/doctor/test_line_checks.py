"""Planted defects of lines are found, and clean text passes."""

import re
from collections.abc import Callable

import pytest

from tf_transformer.data import builtin
from tf_transformer.data.corpus import SIDES
from tf_transformer.doctor.line_checks import (
    check_bleu_tokenizer,
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
    pairs: list[tuple[str, str]], change: Callable[[str], str], side: str, every: int = 1
) -> list[tuple[str, str]]:
    """Returns the pairs with `change` applied to one side of every `every`-th."""
    edited = list(pairs)
    for number in range(every - 1, len(pairs), every):
        source, target = pairs[number]
        is_source = side == "source"
        edited[number] = (change(source), target) if is_source else (source, change(target))
    return edited


def moses(text: str) -> str:
    """Tokenises a sentence like Moses."""
    return re.sub(r"(\w)([.,?!])", r"\1 \2", text).replace("'", " &apos;")


def test_clean_text_passes_every_check(survey):
    surveys = [survey(TRAIN), survey(DEV, "dev")]
    findings = [
        *check_characters(surveys),
        *check_empty(surveys),
        *check_length(surveys, max_length=256),
        *check_tokenised(surveys),
        *check_bleu_tokenizer(surveys, "13a"),
        *check_case(surveys),
    ]
    assert [finding.check for finding in findings] == [
        "encoding", "control characters", "HTML entities", "empty lines", "length",
        "tokenised text", "BLEU tokens", "case",
    ]  # fmt: skip
    assert not any(finding.warning for finding in findings)


@pytest.mark.parametrize("line", RAW)
def test_raw_text_of_any_language_is_not_a_defect(survey, line):
    surveys = [survey([(line, line)] * 30), survey([(line, line)] * 30, "dev")]
    checks = (check_characters, check_tokenised, check_case)
    findings = [finding for check in checks for finding in check(surveys)]
    assert not [str(finding) for finding in findings if finding.warning]


@pytest.mark.parametrize("side", SIDES)
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
    assert f"10 of 1,000 {side} lines of train (1%)" in warnings[0].text
    language = {"source": "en", "target": "de"}[side]
    assert re.search(rf"First: \S+/train\.{language}:100\.$", warnings[0].text)


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_empty_lines_are_found(survey, blank):
    surveys = [survey(TRAIN), survey(edit(DEV, lambda _: blank, "target", every=50), "dev")]
    (finding,) = check_empty(surveys)
    assert finding.warning and "2 of 100 target lines of dev (2%)" in finding.text


@pytest.mark.parametrize("pairs", [[], [("", " "), ("A dog.", "")]])
def test_a_split_without_any_text_is_a_warning(survey, pairs):
    (finding,) = check_empty([survey(pairs), survey(DEV, "dev")])
    assert finding.warning and finding.text.startswith("train has no pair with text")


def test_lines_longer_than_the_limit_in_words_are_found(survey):
    long = edit(TRAIN, lambda _: "word " * 32, "source", every=10)
    (finding,) = check_length([survey(long)], max_length=32)
    assert finding.warning and "100 of 1,000 source lines of train (10%)" in finding.text
    assert not check_length([survey(long)], max_length=33)[0].warning  # 32 words and EOS


@pytest.mark.parametrize("side", SIDES)
def test_text_tokenised_throughout_is_found(survey, side):
    surveys = [survey(edit(TRAIN, moses, side)), survey(edit(DEV, moses, side), "dev")]
    train, dev = check_tokenised(surveys)
    assert train.warning and f"{side} lines of train" in train.text
    assert dev.warning and f"{side} lines of dev" in dev.text


def test_some_tokenised_lines_are_found(survey):
    train = survey(edit(TRAIN, moses, "target", every=5))
    (finding,) = check_tokenised([train, survey(DEV, "dev")])
    assert finding.warning and "target lines of train" in finding.text


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("tokenised", ["train", "dev"])
def test_tokenised_text_beside_raw_text_is_one_warning(survey, side, tokenised):
    splits = {"train": TRAIN, "dev": DEV}
    splits[tokenised] = edit(splits[tokenised], moses, side)
    (finding,) = check_tokenised([survey(pairs, name) for name, pairs in splits.items()])
    raw = ({"train", "dev"} - {tokenised}).pop()
    assert finding.warning
    assert re.match(rf"{tokenised} {side} is tokenised .* {raw} {side} is not", finding.text)


def test_entities_that_moses_writes_belong_to_tokenised_text(survey):
    surveys = [survey([("a &quot; b &apos;s &amp; &#91;", "c &lt; d &#124;")] * 30)]
    assert not [each for each in check_characters(surveys, "none") if each.warning]
    surveys = [survey([("a &quot; b", "c &#8217; d")] * 30)]
    (finding,) = [each for each in check_characters(surveys, "none") if each.warning]
    assert "30 of 30 target lines of train" in finding.text


def test_text_meant_to_be_tokenised_is_not_a_defect(survey):
    pairs = [edit(edit(split, moses, "source"), moses, "target") for split in (TRAIN, DEV)]
    surveys = [survey(pairs[0]), survey(pairs[1], "dev")]
    findings = check_tokenised(surveys, "none") + check_bleu_tokenizer(surveys, "none")
    assert not [str(finding) for finding in findings if finding.warning]
    assert [finding.check for finding in findings] == ["tokenised text", "BLEU tokens"]


def test_raw_text_is_a_defect_if_bleu_does_not_split_it(survey):
    found = check_bleu_tokenizer([survey(TRAIN), survey(DEV, "dev")], "none")
    train, dev = [finding for finding in found if finding.warning]
    assert "target lines of train" in train.text and "attached to words" in train.text
    assert "target lines of dev" in dev.text


@pytest.mark.parametrize("tokenizer", ["13a", "intl", "none"])
@pytest.mark.parametrize(
    "line", ["两只狗在雪地里玩耍。", "二匹の犬が雪の中で遊んでいます。", "สุนัขสองตัวเล่นหิมะ"]
)
def test_a_target_without_blanks_needs_a_tokeniser_for_bleu(survey, line, tokenizer):
    pairs = [("Two dogs play in the snow.", line)] * 30
    (finding,) = [f for f in check_bleu_tokenizer([survey(pairs)], tokenizer) if f.warning]
    assert "30 of 30 target lines of train (100%) have no blanks between words" in finding.text
    swapped = survey([(target, source) for source, target in pairs])
    assert not any("no blanks" in each.text for each in check_bleu_tokenizer([swapped], "13a"))
    assert check_bleu_tokenizer([survey(pairs)], "char") == []


@pytest.mark.parametrize("split", ["train", "dev"])
def test_lowercase_text_beside_cased_text_is_found(survey, split):
    splits = {"train": TRAIN, "dev": DEV}
    splits[split] = edit(splits[split], str.lower, "target")
    (finding,) = check_case([survey(pairs, name) for name, pairs in splits.items()])
    assert finding.warning and f"0% of {split} target" in finding.text


def test_lowercase_text_everywhere_is_not_a_defect(survey):
    splits = {"train": edit(TRAIN, str.lower, "source"), "dev": edit(DEV, str.lower, "source")}
    surveys = [survey(pairs, name) for name, pairs in splits.items()]
    assert not any(finding.warning for finding in check_case(surveys))


def test_a_few_lines_prove_nothing_about_case_and_tokenisation(survey):
    few = edit(edit(DEV[:9], moses, "source"), str.lower, "target")
    surveys = [survey(TRAIN), survey(few, "dev")]
    assert not check_case(surveys)[0].warning
    mismatch = [finding for finding in check_tokenised(surveys) if "is not" in finding.text]
    assert not mismatch
