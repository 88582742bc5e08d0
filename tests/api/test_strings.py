"""A string in place of a list is refused, and never split into characters."""

import pytest

from tf_transformer.api.configuration import configure
from tf_transformer.api.diagnosis import examine
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.evaluation.bleu import bleu, bleu_interval, chrf, score_translations
from tf_transformer.evaluation.report import moses_tokenize, report
from tf_transformer.run import Run
from tf_transformer.strings import one_or_more, pairs, strings
from tf_transformer.tasks.classification.metrics import score_classes
from tf_transformer.tasks.parsing.brackets import score_lines
from tf_transformer.tasks.parsing.linearisation import delinearise
from tf_transformer.tasks.parsing.trees import read_trees


@pytest.mark.parametrize("wrong", ["ab", b"ab", None, 1, {"a": 1}, {"a"}, [1], ["a", b"b"]])
def test_anything_but_a_list_of_strings_is_refused(wrong):
    with pytest.raises(TypeError, match="`lines` must be a list of strings. Received: "):
        strings("lines", wrong)


def test_any_ordered_iterable_of_strings_counts_as_a_list():
    np = pytest.importorskip("numpy")
    for value in (("a", "b"), iter(["a", "b"]), np.array(["a", "b"])):
        assert strings("lines", value) == ["a", "b"]
    assert one_or_more("text", "ab") == (True, ["ab"])
    assert pairs(one=["a"], other=("b",)) == (False, ["a"], ["b"])


CALLS = {
    "bleu": lambda run: bleu("ab", ["a", "b"]),
    "references": lambda run: bleu(["a", "b"], "ab"),
    "chrf": lambda run: chrf("ab", ["a", "b"]),
    "interval": lambda run: bleu_interval("ab", ["a", "b"]),
    "report": lambda run: report("ab", ["a", "b"], language="de"),
    "scores": lambda run: score_translations(["a", "b"], "ab"),
    "moses": lambda run: moses_tokenize("ab", "de"),
    "classes": lambda run: score_classes("ab", ["a", "b"], ["a", "b"]),
    "labels": lambda run: score_classes(["a"], ["a"], "ab"),
    "brackets": lambda run: score_lines("ab", ["a", "b"]),
    "trees": lambda run: next(read_trees("(S (NN a))")),
    "tokens": lambda run: delinearise("XX", ["a"]),
    "tokenizer": lambda run: train_tokenizer("ab", run.path / "x", vocab_size=300, kind="bpe"),
    "overrides": lambda run: configure("tiny", overrides="model.dropout=0"),
    "doctor": lambda run: examine(run, test="ab"),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_function_splits_a_string_into_characters(trained_run, call):
    with pytest.raises(TypeError, match="must be a list of strings. Received: "):
        CALLS[call](Run.open(trained_run.path))
