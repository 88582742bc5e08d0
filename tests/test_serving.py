"""The SavedModel: the same translations as the Python translator, and nothing superfluous."""

import re
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.serving import export
from tf_transformer.tasks.translation import load_translator

AWKWARD = [
    "",
    " \t ",
    "\n\r",
    ".",
    "</s>",
    "<s> The dog. </s> The cat. <pad> <unk>",
    "UPPER lower 3.50 €",
    "中文 🙂 👩‍👧 Ωμέγα",
    "zero\x00byte and line\u2028separator",
    "\u202eright to left\u202c ﬁ ①",
    "word " * 80,
    "x" * 300,
]


@pytest.fixture(scope="module")
def translator(trained_run) -> Translator:
    run = Run.open(trained_run.path)
    return load_translator(run, "best", DecodingConfig(beam_size=4, alpha=0.6))


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory) -> Path:
    return export(translator, tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def serve(exported):
    return tf.saved_model.load(str(exported)).signatures["serving_default"]


def served(serve, texts: list[str | bytes]) -> list[tuple[str, float]]:
    answer = serve(text=tf.constant(texts, tf.string))
    translations = [text.decode() for text in answer["translation"].numpy()]
    return list(zip(translations, answer["score"].numpy().tolist(), strict=True))


def assert_same(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([s for _, s in expected], abs=1e-4)


# --- Answers -----------------------------------------------------------------------------


def test_the_saved_model_translates_as_python_does(translator, serve, trained_run):
    texts = [*AWKWARD, *trained_run.lines("train.en")[:20]]
    expected = [(found[0].text, found[0].score) for found in translator.translate(texts)]
    assert_same(served(serve, texts), expected)
    assert len({text for text, _ in expected}) > 15


def test_no_sentence_spoils_another(serve, trained_run):
    good = trained_run.lines("train.en")[:4]
    bad = [b"\xff\xfe not UTF-8 \xc3", "", "x" * 2_000, "</s>"]
    mixed = [text for pair in zip(good, bad, strict=True) for text in pair]
    assert_same(served(serve, mixed)[::2], served(serve, good))


def test_an_answer_has_a_row_for_each_text(serve):
    for texts in ([], ["one"], ["one", "", "three"]):
        answer = serve(text=tf.constant(texts, tf.string))
        assert answer["translation"].shape == answer["score"].shape == (len(texts),)
        assert answer["translation"].dtype == tf.string
        assert answer["score"].dtype == tf.float32


def test_blank_text_is_not_translated(serve):
    assert served(serve, ["", "  ", "\t\n"]) == [("", 0.0)] * 3


@pytest.mark.parametrize(
    "text",
    [
        tf.constant("a scalar"),
        tf.constant([["rank", "two"]]),
        tf.constant([1, 2]),
        tf.zeros([0, 1], tf.string),
    ],
    ids=["scalar", "rank 2", "numbers", "empty rank 2"],
)
def test_anything_but_a_list_of_strings_is_refused(serve, text):
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        serve(text=text)


# --- The files ---------------------------------------------------------------------------


def graph_nodes(path: Path) -> list:
    model = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return [*graph.node, *functions]


def test_the_graph_runs_where_there_is_no_python_and_no_xla(exported):
    operations = {node.op for node in graph_nodes(exported)}
    assert "SentencepieceTokenizeOp" in operations  # so these are the nodes that do the work
    assert not [op for op in operations if "PyFunc" in op or op.startswith("Xla")]
    compiled = [n.name for n in graph_nodes(exported) if n.attr["_XlaMustCompile"].b]
    assert not compiled


def test_nothing_of_training_is_exported(exported):
    names = [f"{node.op} {node.name}" for node in graph_nodes(exported)]
    training = re.compile("(?<!stop)grad|adam|momentum|velocity|optimizer|dropout|random", re.I)
    assert not [name for name in names if training.search(name)]


def test_weights_are_stored_once(translator, exported):
    weights = sum(4 * weight.numpy().size for weight in translator.model.trainable_weights)
    variables = sum(file.stat().st_size for file in (exported / "variables").iterdir())
    assert weights <= variables <= 1.02 * weights + 20_000  # an index beside the values
    whole = sum(file.stat().st_size for file in exported.rglob("*") if file.is_file())
    assert whole <= 1.02 * weights + 10_000_000


# --- Publishing --------------------------------------------------------------------------


def test_versions_count_up_and_are_never_replaced(translator, exported, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "7" / "saved_model.pb").write_bytes(b"in service")
    assert export(translator, tmp_path) == tmp_path / "8"
    with pytest.raises(UserError, match="7 exists already"):
        export(translator, tmp_path, version=7)
    assert (tmp_path / "7" / "saved_model.pb").read_bytes() == b"in service"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8", "notes"]


def test_nothing_is_left_beside_the_version(exported):
    assert [path.name for path in exported.parent.iterdir()] == ["1"]
    assert sorted(path.name for path in exported.iterdir() if path.name != "assets") == [
        "fingerprint.pb", "saved_model.pb", "variables",
    ]  # fmt: skip


class Drifting(Translator):
    """Its weights change after they were exported, as an export of wrong weights would."""

    def translate(self, texts, progress=None):
        for weight in self.model.trainable_weights:
            weight.assign(weight * 1.5)
        return super().translate(texts, progress)


def test_a_model_that_translates_otherwise_is_not_published(trained_run, tmp_path):
    good = load_translator(Run.open(trained_run.path), "best", DecodingConfig())
    drifting = Drifting(good.model, good.tokenizer, good.decoding)
    with pytest.raises(UserError, match="failed its self-test.* Nothing was published"):
        export(drifting, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1_000, 400_000])
def test_a_full_disk_publishes_nothing(translator, tmp_path, largest_file, size):
    (tmp_path / "1").mkdir()
    with largest_file(size), pytest.raises(UserError, match="Cannot write .*/2: .*"):
        export(translator, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
