"""Metrics of other packages, by the entry points of an installed package."""

import sys
from types import SimpleNamespace

import pytest
from metric_package import declare_metrics
from snippets import snippets

from tf_transformer.errors import UserError
from tf_transformer.evaluation.metrics import Ratio, SentenceMean, find_metric, make_metric


@pytest.fixture
def package(tmp_path, monkeypatch) -> None:
    """An installed package "exactness 1.5" with the metric "exact", and two that are broken."""
    (tmp_path / "exactness.py").write_text(
        "def scores(sources, hypotheses, references):\n"
        "    assert len(sources) == len(hypotheses)\n"
        "    return [100 * any(line == each[row] for each in references)\n"
        "            for row, line in enumerate(hypotheses)]\n"
    )
    (tmp_path / "untrained.py").write_text("raise RuntimeError('no weights\\nfor it')")
    metrics = {"exact": "exactness:scores", "broken": "no_such_module:scores"}
    metrics["untrained"] = "untrained:scores"
    declare_metrics(tmp_path, "exactness", "1.5", metrics)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_package_adds_a_metric_by_its_entry_point(package):
    metric = make_metric("exact", ["a", "b", "c"], [["1", "2", "3"], ["0", "5", "0"]])
    assert metric.corpus_score(["1", "5", "9"], None).score == pytest.approx(200 / 3)
    assert str(metric.get_signature()) == "nrefs:2|version:exactness 1.5"


def test_an_unknown_metric_is_refused_with_the_nearest_and_a_broken_one_with_its_error(package):
    assert find_metric("bleu") is None
    with pytest.raises(UserError, match="no metric 'exakt'. Did you mean 'exact'"):
        find_metric("exakt")
    with pytest.raises(
        UserError, match="broken, no_such_module:scores, cannot be used: No mod"
    ):
        make_metric("broken", [], [[]])
    with pytest.raises(UserError, match=r"used: RuntimeError\('no weights\\nfor it'\)\.$"):
        make_metric("untrained", [], [[]])


@pytest.mark.parametrize("values", [[1.0], [1.0, float("nan")]])
def test_a_metric_without_a_number_for_each_sentence_is_refused(values):
    metric = SentenceMean("odd", "1", lambda *_: values, ["a", "b"], [["a", "b"]])
    with pytest.raises(UserError, match="odd must return a finite number for each of 2"):
        metric.corpus_score(["a", "b"], None)


def test_the_documented_metric_passes_comet_the_inputs_that_it_expects(monkeypatch):
    """A stand-in follows COMET's documentation, since COMET itself would download a model."""

    def predict(data, batch_size, gpus):
        assert all(set(each) == {"src", "mt", "ref"} for each in data)
        return SimpleNamespace(scores=[len(each["mt"]) / len(each["ref"]) for each in data])

    comet = SimpleNamespace(
        download_model=str, load_from_checkpoint=lambda path: SimpleNamespace(predict=predict)
    )
    monkeypatch.setitem(sys.modules, "comet", comet)
    (snippet,), names = snippets("docs/guides/evaluation.md"), {}
    exec(snippet, names)
    metric = SentenceMean("comet", "1", names["comet"], ["a", "b"], [["xx", "xx"]])
    assert metric.corpus_score(["y", "yy"], None).score == pytest.approx(75)


def test_a_ratio_divides_sums_and_is_zero_without_any():
    parts = {"half": (50, 1), "none": (0, 4), "left out": (0, 0)}
    metric = Ratio("F1", "1", lambda outputs: [parts[each] for each in outputs])
    assert metric.corpus_score(["half", "none", "left out"], None).score == 10
    assert metric.corpus_score(["left out"], None).score == 0
