"""An exported classifier maps text to the same labels as its run."""

import json

import numpy as np
import pytest

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.export.card import CARD
from tf_transformer.export.publishing import Gate, NotPublishedError
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.export.self_test import agree, check_classifier
from tf_transformer.run import Run
from tf_transformer.tasks.classification.task import ClassificationTask


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
    with pytest.raises(ValueError, match="at least one string"):
        of_export.evaluate([], [])


def test_the_card_has_the_task_and_sizes(exported_classifier):
    card = json.loads((exported_classifier / CARD).read_text("utf-8"))
    assert card["task"] == "classification" and card["sizes"]["labels"] == 3
    assert card["evaluation_of_these_weights"]["valid_accuracy"] > 0.9


def test_the_self_test_compares_every_output_and_detects_a_wrong_weight(
    exported_classifier, classifier
):
    with ExportEngine(exported_classifier) as session:
        right = list(check_classifier(session, classifier))
        weights = classifier.engine.model.trainable_weights[0]
        before = weights.numpy()
        weights.assign(before * 1.01)
        wrong = list(check_classifier(session, classifier))
        weights.assign(before)
        outputs = session.signatures["serving_default"].outputs
    assert all(agree(*each[2:]) for each in right)
    assert {what for what, *_ in right} == {f"serving_default: {name}" for name in outputs}
    assert "serving_default: probabilities" in {
        what for what, _, *values in wrong if not agree(*values)
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "2"], "--beam is not for a run of task classification"),
        (["RUN"], "An ensemble is not for a run of task classification"),
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
        def answers(self, signature, inputs):
            yield {"label": np.array([b"animal"] * len(inputs["text"]), object)}

    file = classification_run.corpus / "dev.tsv"
    dev = ClassificationTask.read_dev_text(Run.open(classification_run.path), None, file)
    with pytest.raises(NotPublishedError, match=r"accuracy \d\d.* before .* 40 sentences .p"):
        Gate(exported_classifier, dev).compare(Stubborn(), {})
