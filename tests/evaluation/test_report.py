"""Scores of every kind, and Moses' tokens, equal those that others computed."""

import pytest
from helpers import scored_outputs, to_the_digits_of

from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import Score
from tf_transformer.evaluation.report import (
    CAUTION,
    Entry,
    format_report,
    moses_bleu,
    moses_tokenize,
    report,
    split_compounds,
)

pytest.importorskip("sacremoses")

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
HYPOTHESES = ["Die rich-text-Datei kostet 3.50 Euro.", "Er sagte: Nein, danke!"]
REFERENCES = ["Die rich-text-Datei kostet 3,50 Euro.", "Er sagte: nein, danke!"]


@TEST_SETS
def test_scores_of_2017_are_those_of_the_perl_scripts(test_set):
    for output in list(scored_outputs(test_set))[::4]:  # all agree, but take a minute
        found = moses_bleu(output.hypotheses, output.references[0], language="de")
        for entry, column in zip(found, MOSES_COLUMNS, strict=True):
            expected = output.scores[column]
            assert to_the_digits_of(entry.score.value, expected) == expected, output.name


@TEST_SETS
def test_every_score_of_a_report_is_the_published_one(test_set):
    output = next(scored_outputs(test_set))
    found = report(output.hypotheses, output.references[0], language="de")
    for entry, column in zip(found, COLUMNS, strict=True):
        expected = output.scores[column]
        assert to_the_digits_of(entry.score.value, expected) == expected, entry.kind


def test_every_score_has_a_different_name_and_signature():
    found = report(HYPOTHESES, REFERENCES, language="de")
    assert len({entry.kind for entry in found}) == len(found) == 7
    assert len({entry.score.signature for entry in found}) == 7
    assert "tok:moses-de|smooth:none" in found[-2].score.signature
    assert "tok:moses-de-atat|smooth:none" in found[-1].score.signature
    assert found[-1].score.value != found[-2].score.value


def test_scores_of_2017_are_not_smoothed():
    found = moses_bleu(["Ja , das ist gut"], ["Nein"], language="de")
    assert [entry.score.value for entry in found] == [0, 0]


def test_all_references_count():
    alone = report(HYPOTHESES, REFERENCES, language="de")
    both = report(HYPOTHESES, REFERENCES, HYPOTHESES, language="de")
    for one, two in zip(alone, both, strict=True):
        assert one.score.value < two.score.value == pytest.approx(100)
        assert two.score.signature.startswith("nrefs:2|")


def test_the_tokeniser_of_the_run_is_the_first(monkeypatch):
    plain = report(HYPOTHESES, REFERENCES, language="de")
    by_characters = report(HYPOTHESES, REFERENCES, language="de", tokenize="char")
    assert by_characters[0].kind == "BLEU, char tokens"
    assert "|tok:char|" in by_characters[0].score.signature
    assert {entry.kind for entry in by_characters[1:]} == {entry.kind for entry in plain}
    none = report(HYPOTHESES, REFERENCES, language="de", tokenize="none")
    assert "|tok:none|" in none[0].score.signature
    assert {entry.kind for entry in none} == {entry.kind for entry in plain}


def test_a_report_is_a_line_for_each_score_and_the_caution():
    entries = [
        Entry("BLEU", Score("BLEU", 26.68849, "tok:13a")),
        Entry("chrF2", Score("", 5, "c")),
    ]
    assert format_report(entries) == (
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
