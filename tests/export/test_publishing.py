"""Publishing: the files, the self-test before them, the gate, and ensembles."""

import copy
import dataclasses
import io
import json
import re
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from command_line import status_of
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.base.files import sha256
from tf_transformer.cli.main import main
from tf_transformer.evaluation import DevText, make_metric
from tf_transformer.export import publishing
from tf_transformer.export.card import CARD, read_card
from tf_transformer.export.publishing import WARM_UP, Gate, NotPublishedError, publish
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.export.self_test import check_translator
from tf_transformer.export.signatures import Signatures, exportable, source_ids
from tf_transformer.run import Run

# --- The files ---------------------------------------------------------------------------


def graph_nodes(path: Path) -> list:
    model = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return [*graph.node, *functions]


def test_the_graph_needs_neither_python_nor_xla(exported):
    operations = {node.op for node in graph_nodes(exported)}
    assert "SentencepieceTokenizeOp" in operations  # so these are the nodes that do the work
    assert not [op for op in operations if "PyFunc" in op or op.startswith("Xla")]
    compiled = [n.name for n in graph_nodes(exported) if n.attr["_XlaMustCompile"].b]
    assert not compiled


def test_nothing_of_training_is_exported(exported):
    names = [f"{node.op} {node.name}" for node in graph_nodes(exported)]
    training = re.compile("(?<!stop)grad|adam|momentum|velocity|optimizer|dropout|random", re.I)
    assert not [name for name in names if training.search(name)]


def test_no_keras_object_is_exported(exported):
    model = SavedModel.FromString((exported / "saved_model.pb").read_bytes())
    nodes = model.meta_graphs[0].object_graph_def.nodes
    assert "variable" in {node.WhichOneof("kind") for node in nodes}
    assert not [node for node in nodes if "keras" in node.user_object.identifier]


def test_signatures_share_the_loops_of_a_search(exported):
    """serving_default, tokens and attention share one search; nbest and with_options another.

    A search has two loops. Both searches, score and the weights of attention also have a loop
    over groups of rows.
    """
    loops = [node for node in graph_nodes(exported) if node.op in ("While", "StatelessWhile")]
    assert len(loops) == 2 * 2 + 4


def test_weights_are_stored_once(translator, exported):
    weights = sum(4 * weight.numpy().size for weight in translator.model.trainable_weights)
    variables = sum(file.stat().st_size for file in (exported / "variables").iterdir())
    assert weights <= variables <= 1.02 * weights + 20_000  # an index beside the values
    whole = sum(file.stat().st_size for file in exported.rglob("*") if file.is_file())
    assert whole <= 1.02 * weights + 10_000_000


# --- Publishing --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def untested(translator):
    """The exportable model without warm-up and self-test; as ids, which is the quickest."""
    model = exportable(translator, text=False)
    return dataclasses.replace(model, requests=(), checks=lambda session: ())


def test_versions_count_up_and_are_never_replaced(untested, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "7" / "saved_model.pb").write_bytes(b"in service")
    assert publish(untested, tmp_path) == tmp_path / "8"
    with pytest.raises(UserError, match="7 exists already"):
        publish(untested, tmp_path, version=7)
    assert (tmp_path / "7" / "saved_model.pb").read_bytes() == b"in service"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8", "notes"]


def test_an_export_shows_its_progress_on_a_terminal(untested, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    terminal.isatty = lambda: True
    publish(untested, tmp_path / "model")
    assert f"signatures traced: 0/{len(untested.functions)} |" in terminal.getvalue()
    assert "answers compared: 0," in terminal.getvalue()


def test_nothing_is_left_beside_the_version(exported):
    assert [path.name for path in exported.parent.iterdir()] == ["1"]
    assert sorted(path.name for path in exported.iterdir() if path.name != "assets") == [
        "assets.extra", "batching_params.pbtxt", "fingerprint.pb", "saved_model.pb",
        "variables",
    ]  # fmt: skip
    assert sorted(path.name for path in (exported / "assets.extra").iterdir()) == [
        CARD.name, WARM_UP.name,
    ]  # fmt: skip


def test_vocabulary_and_sizes_are_added_to_the_card(exported, translator):
    weights = sum(weight.numpy().size for weight in translator.model.trainable_weights)
    assert json.loads((exported / CARD).read_text("utf-8")) == {
        "description": "a small model",
        "vocabulary": {"size": 600, "ids": {"pad": 0, "unk": 1, "bos": 2, "eos": 3}},
        "sizes": {
            "parameters": weights,
            "max_source_tokens": translator.codec.source_limit,
            "max_target_tokens": translator.codec.target_limit,
        },
    }


def test_a_model_that_translates_differently_is_not_published(untested, translator, tmp_path):
    """The weights change after the export, as if the wrong ones had been exported."""
    weights = translator.model.trainable_weights
    right = [weight.numpy() for weight in weights]

    def drifted(session):
        for weight in weights:
            weight.assign(weight * 1.5)
        return check_translator(session, translator, {})

    try:
        with pytest.raises(UserError, match="failed its self-test.* Nothing was published"):
            publish(dataclasses.replace(untested, checks=drifted), tmp_path)
    finally:
        for weight, value in zip(weights, right, strict=True):
            weight.assign(value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1_000, 400_000])
def test_a_full_disk_publishes_nothing(untested, tmp_path, largest_file, size):
    (tmp_path / "1").mkdir()
    with largest_file(size), pytest.raises(UserError, match="/2: File too large.$"):
        publish(untested, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


# --- Compared with the published model ---------------------------------------------------


class Silent:
    """A session that translates every text as "Ja."."""

    def answers(self, signature, inputs):
        yield {"translation": np.array([b"Ja."] * len(inputs["text"]), object)}


def gate_of(published, sources, references, margin: float = 0.0) -> Gate:
    bleu = make_metric("bleu", [references])
    return Gate(published, DevText(sources, bleu), margin)


@pytest.fixture
def gate(exported, trained_run, session, monkeypatch):
    """The published model is loaded already: each session prepares its graphs anew."""
    monkeypatch.setattr(publishing, "open_export", lambda *_: nullcontext(session))
    files = [trained_run.lines(name)[:50] for name in ("train.en", "train.de")]
    return lambda margin=0.0: gate_of(exported, *files, margin)


def test_an_equal_model_passes_and_its_card_says_so(gate, session, exported):
    card = read_card(exported)
    changed = card | {"decoding": {"alpha": 1.25}, "config": {"model": {"d_model": 64}}}
    found = gate().compare(session, changed)
    assert found["bleu"] == found["bleu_of_published"] > 10
    assert (found["p_value"], found["same_translations"], found["sentences"]) == (1.0, 50, 50)
    assert found["seconds"] > 0 < found["seconds_of_published"]
    assert found["changed_settings"]["decoding.alpha"] == [None, 1.25]
    assert found["changed_settings"]["model.d_model"] == [None, 64]


def test_a_worse_model_does_not_pass_unless_the_margin_is_wide(gate):
    with pytest.raises(NotPublishedError, match=r"BLEU 0.\d\d, before \d\d.* p = 0\.00"):
        gate().compare(Silent(), {})
    assert gate(margin=100).compare(Silent(), {})["p_value"] < 0.05


def test_two_scores_of_zero_are_not_compared(gate):
    """As of text without blanks by 13a."""
    dev = dataclasses.replace(gate().dev, metric=make_metric("bleu", [["猫"] * 50]))
    with pytest.raises(UserError, match=r"both score BLEU 0\.00 on 50 sentences \(.*tok:13a"):
        dataclasses.replace(gate(), dev=dev).compare(Silent(), {})


def test_an_insignificant_difference_passes(gate, exported, session, trained_run):
    """Only one of many translations becomes worse."""
    sources = trained_run.lines("train.en")[:40]
    answer = session.run("serving_default", {"text": np.array(sources, object)})
    best = [text.decode() for text in answer["translation"]]

    class OnceSilent(Silent):
        def answers(self, signature, inputs):
            for answer in session.answers(signature, inputs):
                answer["translation"][answer["translation"] == best[0].encode()] = b"Ja."
                yield answer

    found = gate_of(exported, sources, best).compare(OnceSilent(), {})
    assert found["bleu"] < found["bleu_of_published"] and found["p_value"] >= 0.05


def test_a_refused_export_leaves_nothing_behind(untested, gate, tmp_path):
    def refuse(*_):
        raise NotPublishedError("worse")

    refusing = copy.copy(gate())
    object.__setattr__(refusing, "compare", refuse)
    with pytest.raises(NotPublishedError, match="worse"):
        publish(untested, tmp_path / "models", gate=refusing)
    assert list((tmp_path / "models").iterdir()) == []


def test_the_command_asks_the_gate_and_has_a_status_for_its_refusal(
    trained_run, exported, gate, tmp_path, capsys, monkeypatch
):
    def silently(model, base, version, card, *, gate):
        gate.compare(Silent(), card)

    monkeypatch.setattr(publishing, "publish", silently)
    folder = trained_run.corpus
    words = ["export", str(trained_run.path), "--output", str(tmp_path), "--better-than"]
    words += [str(exported), "--source", str(folder / "dev.en")]
    words += ["--reference", str(folder / "dev.de")]
    assert status_of(words) == 3
    assert capsys.readouterr().err.startswith("error: Not published: it is worse than")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--better-than nowhere --source {0} --reference {0}", "must be a SavedModel"),
        ("--better-than {1} --source {0} --reference {2}", "must have the same number of line"),
        (
            "--better-than {1} --source {3} --reference {3}",
            "must have at least one sentence",
        ),
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


# --- Ensembles ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(trained_run, tmp_path_factory) -> list[str]:
    """The trained run, and a copy whose best weights are those of an earlier step."""
    other = tmp_path_factory.mktemp("runs") / "other"
    shutil.copytree(trained_run.path, other)
    checkpoints = Run.open(other).checkpoints
    shutil.copyfile(checkpoints.find("160"), checkpoints.best)
    return [str(trained_run.path), str(other)]


def test_an_ensemble_is_exported_as_one_model(runs, translator, trained_run, tmp_path):
    """As ids, which is the quickest; of text, only the signatures are made."""
    assert main(["export", *runs, "--no-text", "--output", str(tmp_path / "both")]) == 0
    both = tmp_path / "both" / "1"
    texts = [*trained_run.lines("dev.en")[:8], ""]
    python = load(runs[0], ensemble=[runs[1]])
    expected = python.translate(texts)
    with ExportEngine(both) as session:
        found = session.run("tokens", {"tokens": source_ids(python.codec, texts)})
    assert python.tokenizer.texts([*found["tokens"]]) == [str(text) for text in expected]
    scores = [translation.score for translation in expected]
    assert found["score"] == pytest.approx(scores, abs=1e-4)
    alone = [best.score for best in translator.translate(texts)]
    assert max(abs(one - other) for one, other in zip(alone, scores, strict=True)) > 1e-3
    card = json.loads((both / CARD).read_text("utf-8"))
    weights = sha256(Run.open(runs[1]).checkpoints.find("160"))
    assert card["ensemble"] == {runs[1]: {"sha256": weights}}
    assert set(Signatures(python.engine, python.decoding).functions()) == {
        "serving_default", "nbest", "with_options", "tokens", "score",
    }  # fmt: skip


def test_a_checkpoint_that_the_runs_lack_is_refused(runs, tmp_path, capsys):
    assert main(["export", *runs, "--checkpoint", "7", "--output", str(tmp_path / "new")]) == 1
    assert "no checkpoint '7'" in capsys.readouterr().err
