"""BLEU and chrF equal sacreBLEU's, and their signatures say how they were computed."""

import json

import pytest
import sacrebleu
from helpers import scored_outputs, shared_data

from tf_transformer.evaluation.bleu import Score, bleu, chrf, interval_in_percent

HYPOTHESES = [
    "A man in a blue shirt is standing on a ladder .",
    "Two dogs are playing in the snow.",
    "Zwei Hunde spielen im Schnee, oder?",
    "The well-known author's book costs $3.50 today.",
]
REFERENCES = [
    "A man in a blue shirt stands on a ladder cleaning a window.",
    "Two dogs play in the snow.",
    "Zwei Hunde spielen im Schnee.",
    "The well-known Author's book cost $3.50 today!",
]


@pytest.mark.parametrize("cased", [{}, {"lowercase": True}])
@pytest.mark.parametrize("tokens", [{}, {"tokenize": "none"}, {"tokenize": "intl"}])
def test_scores_and_signatures_are_those_of_sacrebleu_by_default_cased_and_13a(cased, tokens):
    score = bleu(HYPOTHESES, REFERENCES, **cased, **tokens)
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], force=True, **cased, **tokens)
    assert score.value == expected.score
    case, tokenize = "lc" if cased else "mixed", tokens.get("tokenize", "13a")
    assert score.signature == (
        f"nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|version:{sacrebleu.__version__}"
    )


def test_chrf_is_that_of_sacrebleu():
    score = chrf(HYPOTHESES, REFERENCES)
    assert score.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert score.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_equal_text_scores_100_and_empty_text_0(metric):
    assert metric(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert metric([""] * 4, REFERENCES).value == 0


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_numbers_of_sentences_must_agree(metric):
    with pytest.raises(ValueError, match="Received: 4 hypotheses, 3 references"):
        metric(HYPOTHESES, REFERENCES[:3])
    with pytest.raises(ValueError, match="Received: 4 hypotheses, 4, 5 references"):
        metric(HYPOTHESES, REFERENCES, [*REFERENCES, ""])


def test_a_score_prints_its_signature():
    assert str(Score("BLEU", 27.3, "nrefs:1|tok:13a")) == "BLEU 27.30  nrefs:1|tok:13a"


def test_small_cases_score_as_sacrebleus_tests_expect():
    cases = json.loads((shared_data("bleu-check") / "small-cases.json").read_text())
    texts = (cases["hypotheses"], *cases["reference_streams"])
    options = {
        "default (13a, exp smoothing)": {},
        "tokenize none": {"tokenize": "none"},
        "tokenize 13a": {"tokenize": "13a"},
        "tokenize intl": {"tokenize": "intl"},
        "smooth none": {"smooth": "none"},
    }
    for name, expected in cases["corpus_bleu"].items():
        assert bleu(*texts, **options[name]).value == pytest.approx(expected, abs=1e-6), name


@pytest.mark.parametrize(("test_set", "digits"), [("wmt17-ende", 2), ("wmt22-ende", 4)])
def test_every_system_gets_its_published_score(test_set, digits):
    for output in scored_outputs(test_set):
        score = bleu(output.hypotheses, output.references[0])
        assert round(score.value, digits) == float(output.scores["published"]), output.name


def test_published_scores_with_two_references_are_reproduced():
    for output in list(scored_outputs("wmt22-ende"))[::3]:
        score = bleu(output.hypotheses, *output.references)
        assert "nrefs:2|" in score.signature
        assert round(score.value, 4) == float(output.scores["published_bleu_all_refs"])


def test_an_interval_stays_within_0_and_100():
    assert interval_in_percent(100.00000000000004, 0.0) == (100.0, 100.0)
    assert interval_in_percent(1.0, 2.0) == (0.0, 3.0)
