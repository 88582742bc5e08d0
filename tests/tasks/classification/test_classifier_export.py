"""An exported classifier maps text to the same labels as its run."""

import json

import numpy as np
import pytest

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.run import Run
from tf_transformer.serving.gate import Gate, NotPublishedError
from tf_transformer.serving.publish import CARD, agree
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.tasks.classification.predictor import _comparisons
from tf_transformer.tasks.classification.task import read_dev_text


@pytest.fixture(scope="module")
def classifier(classification_run):
    return load(classification_run.path, task="classification")


@pytest.fixture(scope="module")
def dev(classification_run) -> tuple[list[str], list[str]]:
    """The labels and the sentences of the dev set."""
    rows = [line.split("\t") for line in classification_run.lines("dev.tsv")]
    labels, texts = zip(*rows, strict=True)
    return list(labels), list(texts)


def test_an_export_classifies_like_its_run(dev, classifier, exported_classifier):
    of_export = load(exported_classifier, task="classification")
    labels, texts = dev
    assert of_export.labels == classifier.labels
    odd = [*texts, "", "\u200b", "the cat " * 300]
    np.testing.assert_allclose(
        of_export.probabilities(odd), classifier.probabilities(odd), atol=1e-6
    )
    scores = of_export.evaluate(texts, labels)
    assert scores.accuracy == classifier.evaluate(texts, labels).accuracy > 0.9
    assert str(of_export.classify("we saw the cat .")) == "animal"
    assert of_export.classify([]) == []


def test_the_card_has_the_task_and_sizes(exported_classifier):
    card = json.loads((exported_classifier / CARD).read_text("utf-8"))
    assert card["task"] == "classification" and card["sizes"]["labels"] == 3
    assert card["evaluation_of_these_weights"]["valid_accuracy"] > 0.9


def test_the_self_test_of_an_export_detects_every_difference(exported_classifier, classifier):
    class Tampered:
        def run(self, signature, inputs):
            answer = session.run(signature, inputs)
            labels = {name: answer[name] + b"!" for name in ("label", "labels")}
            changed = {"probabilities": answer["probabilities"] + np.float32(2e-3)}
            return labels | changed | {"source_cut": ~answer["source_cut"]}

    with SavedModelSession(exported_classifier) as session:
        assert all(agree(*each[2:]) for each in _comparisons(session, classifier))
        tampered = list(_comparisons(Tampered(), classifier))
    assert not any(agree(*each[2:]) for each in tampered)
    outputs = session.signature("serving_default").outputs
    assert {what for what, *_ in tampered} == {f"serving_default: {name}" for name in outputs}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "2"], "An option of the search is not for runs of --task classification"),
        (["RUN"], "An ensemble is not for runs of --task classification"),
    ],
)
def test_options_that_classifiers_lack_are_refused(
    classification_run, tmp_path, arguments, message, capsys
):
    run = str(classification_run.path)
    arguments = [run if argument == "RUN" else argument for argument in arguments]
    assert main(["export", run, *arguments, "--output", str(tmp_path / "new")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_export_in_bfloat16_that_is_no_worse_is_published(
    classification_run, dev, classifier, exported_classifier, tmp_path
):
    run, output = str(classification_run.path), tmp_path / "half"
    gate = ["--better-than", str(exported_classifier)]
    gate += ["--reference", str(classification_run.corpus / "dev.tsv")]
    command = ["export", run, "--output", str(output), "--precision", "bfloat16", *gate]
    assert main(command) == 0
    card = json.loads((output / "1" / CARD).read_text("utf-8"))
    assert card["precision"] == "bfloat16"
    labels, texts = dev
    expected = 100 * classifier.evaluate(texts, labels).accuracy
    assert card["compared"]["accuracy_of_published"] == pytest.approx(expected)
    assert card["compared"]["changed_settings"] == {}
    assert card["compared"]["sentences"] == 40 >= card["compared"]["same_labels"] > 30
    assert str(load(output).classify("we saw the cat .")) == "animal"


def test_a_worse_classifier_is_not_published(classification_run, exported_classifier):
    class Stubborn:
        def run(self, signature, inputs, outputs):
            return {"label": np.array([b"animal"] * len(inputs["text"]), object)}

    file = classification_run.corpus / "dev.tsv"
    dev = read_dev_text(Run.open(classification_run.path), None, file)
    with pytest.raises(NotPublishedError, match=r"accuracy \d\d.* before .* 40 sentences .p"):
        Gate(exported_classifier, dev).compare(Stubborn(), {})
