"""Scores are sacreBLEU's, p-values those of all exchanges, reports as published."""

import itertools
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from helpers import scored_outputs, to_the_digits_of
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as MetricScore

from tf_transformer import evaluation
from tf_transformer.base.errors import UserError
from tf_transformer.evaluation import (
    CAUTION,
    Score,
    Spread,
    bleu,
    format_report,
    interval_in_percent,
    make_metric,
    moses_bleu,
    moses_tokenize,
    paired_tests,
    report,
    score_translations,
    split_compounds,
    tokenizer_for,
)


def test_published_scores_with_two_references_are_reproduced():
    for output in list(scored_outputs("wmt22-ende"))[1::5]:
        score = bleu(output.hypotheses, *output.references)
        assert "nrefs:2|" in score.signature
        assert round(score.value, 4) == float(output.scores["published_bleu_all_refs"])


def test_a_blank_line_among_several_references_is_none(caplog):
    whole = [
        "the cat sat on the mat today and slept",
        "a dog ran through the park and barked",
        "",
    ]
    short, blank = ["the cat sat on", "a dog ran through", ""], ["", " ", ""]
    alone = score_translations(short, whole)
    assert caplog.messages == [] and alone.bleu.value < 60
    both = score_translations(short, whole, blank)
    assert (both.bleu.value, both.chrf.value) == (alone.bleu.value, alone.chrf.value)
    assert caplog.messages == ["blank lines of references, which count as no reference: 2"]
    metric, other = (make_metric("bleu", texts) for texts in ([whole], [blank, whole]))
    assert metric.corpus_score(short, None).score == other.corpus_score(short, None).score
    partly = ["the cat sat down", "", ""]
    expected = BLEU().corpus_score(short, [whole, ["the cat sat down", None, ""]])
    score = bleu(short, whole, partly)
    assert (score.value, "nrefs:var" in score.signature) == (expected.score, True)
    # Nor does a blank translation equal such a reference.
    assert score_translations(["a", ""], ["a", "b"], ["", ""]).exact == 0.5


def installed(name: str, package: str) -> str:
    return name if find_spec(package) else "char"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["猫夜里画那棵树。", "你好。"], "zh"),
        (["使用 TensorFlow 2 训练 模型，然后把模型翻译成中文。"], "zh"),
        (["我 喜欢 猫 。", "猫 在 树 上 睡觉 。"], "13a"),  # tokenised
        (["猫は木の上で寝ている。", "東京大学"], installed("ja-mecab", "MeCab")),
        (["แมวนอนหลับอยู่บนต้นไม้ และสุนัขวิ่งในสวน"], "char"),
        (["고양이가 나무 위에서 잔다."], "13a"),
        (["고양이가나무위에서잔다."], installed("ko-mecab", "mecab_ko")),
        (["Die Katze 猫 schläft.", "Ein Hund."], "13a"),
        (["Кошка спит.", ""], "13a"),
        ([], "13a"),
    ],
)
def test_the_tokenizer_follows_text_without_blanks_and_says_so(lines, expected, caplog):
    assert tokenizer_for("13a", lines) == expected
    said = f"BLEU splits text by {expected}, not 13a: it has no blanks between words"
    assert caplog.messages == [said] * (expected != "13a")
    assert tokenizer_for("intl", lines) == "intl"  # chosen


def test_a_tokenizer_that_is_not_installed_is_a_line_of_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(UserError, match=r"^Japanese .* pip install sacrebleu\[ja\]$"):
        bleu(["猫"], ["猫"], tokenize="ja-mecab")


def test_an_interval_stays_within_0_and_100():
    assert interval_in_percent(100.00000000000004, 0.0) == (100.0, 100.0)
    assert interval_in_percent(1.0, 2.0) == (0.0, 3.0)


# --- Significance ----------------------------------------------------------------------

ROWS = 10
RNG = np.random.default_rng(5)
BASELINE = RNG.integers(0, 60, ROWS)
# Hardly any exchanges tie with the actual difference; sacreBLEU does not count ties.
OTHER = BASELINE + (3.1, -2.07, 5.013, 8.2, -4.5, 1.01, 6.3, -1.17, 2.9, 4.4)
SYSTEMS = [[str(number) for number in numbers] for numbers in (BASELINE, OTHER, BASELINE)]


class Mean(Metric):
    """The mean of sentences that are numbers, for which exact tests are known."""

    def __init__(self) -> None:
        super().__init__()
        self.num_refs = 1

    def _extract_corpus_statistics(self, hypotheses, references=None):
        return [[float(line), 1.0] for line in hypotheses]

    def _aggregate_and_compute(self, stats) -> MetricScore:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats) -> MetricScore:
        return MetricScore("mean", stats[0] / stats[1])

    # Abstract methods of `Metric` that the overridden ones never call.
    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


@pytest.fixture(scope="module")
def tested():
    metric = Mean()
    return paired_tests(metric, SYSTEMS)


def test_randomisation_agrees_with_all_possible_exchanges(tested):
    gains = OTHER - BASELINE
    signs = np.array(list(itertools.product((-1, 1), repeat=ROWS)))
    exact = np.mean(np.abs(signs @ gains) >= abs(gains.sum()))
    assert 0.005 < exact < 0.5  # a case that could fail
    assert tested[1].randomisation == pytest.approx(exact, abs=0.015)


def test_intervals_are_those_of_resampled_sentences(tested):
    rows = RNG.integers(0, ROWS, (20_000, ROWS))
    for interval, values in zip(tested, (BASELINE, OTHER), strict=False):
        low, high = np.percentile(values[rows].mean(axis=1), (2.5, 97.5))
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1.5)


def test_the_first_has_no_p_value_and_an_equal_system_one_of_1(tested):
    assert (tested[0].bootstrap, tested[0].randomisation) == (None, None)
    assert (tested[2].bootstrap, tested[2].randomisation) == (1.0, 1.0)


def test_a_difference_of_zero_is_no_difference():
    lines = ["a b c d e", "f g h i j"]
    spaced = [line.replace(" ", "  ") for line in lines]  # chrF ignores spaces
    _, other = paired_tests(make_metric("chrf", [lines]), [lines, spaced])
    assert (other.bootstrap, other.randomisation) == (1.0, 1.0)


def test_of_equal_systems_about_5_percent_differ_significantly(monkeypatch):
    monkeypatch.setattr(evaluation, "SAMPLES", 300)  # for speed, and so are the trials
    monkeypatch.setattr(evaluation, "TRIALS", 1)
    metric = Mean()
    gains = np.random.default_rng(7).normal(size=(300, 60))  # equal in the long run
    _, *tested = paired_tests(metric, [["0"] * 60, *([*map(str, row)] for row in gains)])
    values = np.array([each.bootstrap for each in tested])
    assert 0.03 < np.mean(values < 0.05) < 0.075 and values.max() > 0.8


def test_bleu_and_chrf_are_tested_too():
    lines = ["the cat sat on the mat .", "a dog ran through the park", "it is raining today"]
    worse = [" ".join(line.split()[::-1]) for line in lines]
    for name in ("bleu", "chrf"):
        metric = make_metric(name, [lines])
        mixed = [lines[0], "x", "y"], [lines[0], lines[1], "x"]
        first, second, low, high = paired_tests(metric, [lines, worse, *mixed])
        assert first.low == pytest.approx(100) and second.low < 70
        assert 0 < second.bootstrap <= 1 and 0 < second.randomisation <= 1
        assert (low.low, high.high) == (0, 100)  # mean ± half width alone would exceed these


def test_a_spread_is_the_standard_deviation_of_a_sample():
    values = [3.0, 4.5, 4.0]
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.deviation == pytest.approx(np.std(values, ddof=1))
    assert Spread.of([3.0]) == Spread(3.0, None)
    assert [str(Spread(3.456, 0.5)), str(Spread(3.0))] == ["3.46 ± 0.50", "3.00"]


# --- Report ----------------------------------------------------------------------------

TEST_SETS = pytest.mark.parametrize("test_set", ["wmt17-ende", "wmt22-ende"])
MOSES_COLUMNS = ("moses_tok_multibleu", "moses_tok_hyphensplit_multibleu")
COLUMNS = (
    "sacrebleu_13a",
    "sacrebleu_13a_lc",
    "sacrebleu_intl",
    "sacrebleu_none",
    "chrf2",
    *MOSES_COLUMNS,
)
GERMAN = ["Die rich-text-Datei kostet 3.50 Euro.", "Er sagte: Nein, danke!"]
GERMAN_REFERENCE = ["Die rich-text-Datei kostet 3,50 Euro.", "Er sagte: nein, danke!"]


@TEST_SETS
def test_scores_of_2017_are_those_of_the_perl_scripts(test_set):
    for output in list(scored_outputs(test_set))[4:5]:
        found = moses_bleu(output.hypotheses, output.references[0], language="de")
        for score, column in zip(found.values(), MOSES_COLUMNS, strict=True):
            expected = output.scores[column]
            assert to_the_digits_of(score.value, expected) == expected, output.name


@TEST_SETS
def test_every_score_of_a_report_is_the_published_one(test_set):
    output = next(scored_outputs(test_set))
    found = report(output.hypotheses, output.references[0], language="de")
    for kind, column in zip(found, COLUMNS, strict=True):
        expected = output.scores[column]
        assert to_the_digits_of(found[kind].value, expected) == expected, kind


def test_every_score_has_a_different_name_and_signature():
    found = report(GERMAN, GERMAN_REFERENCE, language="de")
    assert len({score.signature for score in found.values()}) == len(found) == 7
    *_, moses, split = found.values()
    assert "tok:moses-de|smooth:none" in moses.signature
    assert "tok:moses-de-atat|smooth:none" in split.signature
    assert split.value != moses.value


def test_all_references_count():
    alone = report(GERMAN, GERMAN_REFERENCE, language="de")
    both = report(GERMAN, GERMAN_REFERENCE, GERMAN, language="de")
    for one, two in zip(alone.values(), both.values(), strict=True):
        assert one.value < two.value == pytest.approx(100)
        assert two.signature.startswith("nrefs:2|")


def test_the_tokeniser_of_the_run_is_the_first(monkeypatch):
    plain = report(GERMAN, GERMAN_REFERENCE, language="de")
    by_characters = report(GERMAN, GERMAN_REFERENCE, language="de", tokenize="char")
    first, *others = by_characters
    assert first == "BLEU, char tokens" and {*others} == {*plain}
    assert "|tok:char|" in by_characters[first].signature
    none = report(GERMAN, GERMAN_REFERENCE, language="de", tokenize="none")
    assert "|tok:none|" in next(iter(none.values())).signature
    assert {*none} == {*plain}


def test_a_report_is_a_line_for_each_score_and_the_caution():
    scores = {"BLEU": Score("BLEU", 26.68849, "tok:13a"), "chrF2": Score("", 5, "c")}
    assert format_report(scores) == (
        f"BLEU   26.6885  tok:13a\nchrF2   5.0000  c\ncaution: {CAUTION}\n"
    )


# The output of tokenizer.perl since 2018.
@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("de", "Das kostet z.B. 5,300 Euro.", "Das kostet z.B. 5,300 Euro ."),
        ("de", "Sie belegten Rang 7. von 9.", "Sie belegten Rang 7. von 9 ."),
        ("de", "Er kam mit Dr.", "Er kam mit Dr ."),
        ("de", "Und dann...", "Und dann ..."),
        ("de", "Er sagt: „Ja!“", "Er sagt : „ Ja ! “"),
        ("de", "Peter's [A&B]", "Peter &apos; s &#91; A &amp; B &#93;"),
        ("en", "It isn't Peter's.", "It isn &apos;t Peter &apos;s ."),
        ("fr", "C'est l'été.", "C&apos; est l&apos; été ."),
        ("de", "", ""),
    ],
)
def test_tokens_are_those_of_the_perl_script(language, text, tokens):
    assert moses_tokenize([text], language) == [tokens]


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("ein rich-text Format", "ein rich ##AT##-##AT## text Format"),
        ("rich-text-Format", "rich ##AT##-##AT## text ##AT##-##AT## Format"),
        ("1990 - 1995 -x y-", "1990 - 1995 -x y-"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
    ],
)
def test_a_hyphen_inside_a_word_becomes_a_token(line, split):
    assert split_compounds(line) == split


def test_an_unknown_language_is_refused():
    with pytest.raises(
        UserError, match=r"one of the languages as, bn, .* Received: klingon\.$"
    ):
        moses_tokenize(["Qapla'"], "klingon")
    with pytest.raises(UserError, match="Received: fi, whose rules sacremoses lacks"):
        moses_tokenize(["EU:n"], "fi")


def test_bleu_of_lines_below_four_words_is_explained_where_it_stands():
    line = score_translations(["a b c"], ["a b c"]).exact_line
    assert line == "exact 100.0% (1 of 1); BLEU needs a translation of four tokens or more"
    assert score_translations(["a b c d"], ["a b c d"]).exact_line == "exact 100.0% (1 of 1)"
