"""A SavedModel on disk: it has nothing superfluous, and is published only if it is right."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.errors import UserError
from tf_transformer.export.publish import publish
from tf_transformer.export.self_test import check_translator
from tf_transformer.export.translations import exportable
from tf_transformer.export.versions import CARD
from tf_transformer.export.warmup import FILE

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
def traced(translator):
    """The exportable model without warm-up and self-test, and how often it traced a search."""
    traces, search = [], GraphEngine.search_ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            GraphEngine, "search_ids", lambda *a, **k: traces.append(a) or search(*a, **k)
        )
        untested = dataclasses.replace(
            exportable(translator.engine, translator.decoding, translator),
            requests=(),
            checks=lambda session: (),
        )
        for function in untested.functions.values():
            function.get_concrete_function()
    return untested, len(traces)


@pytest.fixture(scope="module")
def untested(traced):
    return traced[0]


def test_versions_count_up_and_are_never_replaced(untested, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "7" / "saved_model.pb").write_bytes(b"in service")
    assert publish(untested, tmp_path) == tmp_path / "8"
    with pytest.raises(UserError, match="7 exists already"):
        publish(untested, tmp_path, version=7)
    assert (tmp_path / "7" / "saved_model.pb").read_bytes() == b"in service"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8", "notes"]


def test_each_of_the_two_searches_is_traced_once(traced):
    assert traced[1] == 2  # for the best hypothesis, and for all


def test_nothing_is_left_beside_the_version(exported):
    assert [path.name for path in exported.parent.iterdir()] == ["1"]
    assert sorted(path.name for path in exported.iterdir() if path.name != "assets") == [
        "assets.extra", "batching_params.pbtxt", "fingerprint.pb", "saved_model.pb",
        "variables",
    ]  # fmt: skip
    assert sorted(path.name for path in (exported / "assets.extra").iterdir()) == [
        CARD.name, FILE.name,
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
        return check_translator(session, translator, {}, translator.codec.source_limit)

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
    with largest_file(size), pytest.raises(UserError, match="Cannot write .*/2: .*"):
        publish(untested, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
