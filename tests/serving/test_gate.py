"""A new export is compared with the published one before it appears."""

import json

import numpy as np
import pytest
from command_line import status_of

from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import make_metric
from tf_transformer.export.gate import Gate, NotPublishedError
from tf_transformer.export.versions import CARD


class Silent:
    """A session that translates every text as "Ja."."""

    def __init__(self, session) -> None:
        self.signatures = session.signatures

    def run(self, signature, inputs, outputs):
        return {"translation": np.array([b"Ja."] * len(inputs["text"]), object)}


def gate_of(published, sources, references, margin: float = 0.0) -> Gate:
    bleu = make_metric("bleu", [references])
    return Gate(published, DevText(sources, bleu, "translation"), margin)


@pytest.fixture
def gate(exported, trained_run):
    files = [trained_run.lines(name)[:50] for name in ("train.en", "train.de")]
    return lambda margin=0.0: gate_of(exported, *files, margin)


def test_an_equal_model_passes_and_its_card_says_so(gate, session, exported):
    card = json.loads((exported / CARD).read_text("utf-8"))
    changed = card | {"decoding": {"alpha": 1.25}, "config": {"model": {"d_model": 64}}}
    found = gate().compare(session, changed)
    assert found["bleu"] == found["bleu_of_published"] > 10
    assert (found["p_value"], found["same_translations"], found["sentences"]) == (1.0, 50, 50)
    assert found["seconds"] > 0 < found["seconds_of_published"]
    assert found["changed_settings"]["decoding.alpha"] == [None, 1.25]
    assert found["changed_settings"]["config.model.d_model"] == [None, 64]


def test_a_worse_model_does_not_pass_unless_the_margin_is_wide(gate, session):
    with pytest.raises(NotPublishedError, match=r"BLEU 0.\d\d, before \d\d.* p = 0\.00"):
        gate().compare(Silent(session), {})
    assert gate(margin=100).compare(Silent(session), {})["p_value"] < 0.05


def test_an_insignificant_difference_passes(exported, session, trained_run):
    """Only one of many translations becomes worse."""
    sources = trained_run.lines("train.en")[:40]
    best = [text.decode() for text in session.run(
        "serving_default", {"text": np.array(sources, object)}, ["translation"]
    )["translation"]]  # fmt: skip

    class OnceSilent(Silent):
        def run(self, signature, inputs, outputs):
            answer = session.run(signature, inputs, outputs)
            answer["translation"][answer["translation"] == best[0].encode()] = b"Ja."
            return answer

    found = gate_of(exported, sources, best).compare(OnceSilent(session), {})
    assert found["bleu"] < found["bleu_of_published"] and found["p_value"] >= 0.05


def test_a_model_of_another_task_cannot_be_compared(exported_classifier, session):
    with pytest.raises(UserError, match="topics/1 gives no translation: it cannot be compared"):
        gate_of(exported_classifier, ["a"], ["b"]).compare(session, {})


def test_a_refused_export_leaves_nothing_behind(trained_run, exported, tmp_path, capsys):
    folder = trained_run.corpus
    base = tmp_path / "models"
    status = status_of([
        "export", str(trained_run.path), "--output", str(base), "--beam", "1",
        "--max-length", "1", "--better-than", str(exported),
        "--source", str(folder / "train.en"), "--reference", str(folder / "train.de"),
    ])  # fmt: skip
    assert status == 3
    assert capsys.readouterr().err.startswith("error: Not published: it is worse than")
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--better-than {1} --reference {2}", "--source is needed for runs that translate"),
        ("--better-than nowhere --source {0} --reference {0}", "must be an export"),
        ("--better-than {1} --source {0} --reference {2}", "must have the same number of line"),
        ("--better-than {1} --source {3} --reference {3}", "are empty. Expected at least one"),
    ],
)
def test_a_gate_needs_all_its_options(
    trained_run, exported, arguments, message, capsys, tmp_path
):
    files = [trained_run.corpus / name for name in ("train.en", "dev.de")]
    (tmp_path / "empty").touch()
    filled = arguments.format(files[0], exported, files[1], tmp_path / "empty").split()
    assert status_of(["export", str(trained_run.path), "--output", "x", *filled]) == 1
    assert message in capsys.readouterr().err
