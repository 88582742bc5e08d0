"""The self-test before publishing: a right export passes, and no kind of wrong one does."""

import shutil
from collections.abc import Iterator

import pytest
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from trained import small_model

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.config import DecodingConfig
from tf_transformer.data.sentencepiece_model import ModelProto
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.export.self_test import agree, check_translator, self_test
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.translation.translator import Translator


def test_a_right_export_passes_and_every_output_is_compared(session, translator):
    checks = list(check_translator(session, translator, {}))
    self_test(checks, "float32")
    assert {output for output, *_ in checks} == {
        f"{name}: {output}"
        for name, signature in session.signatures.items()
        for output in signature.outputs
    }


def test_texts_that_are_not_cut_where_they_should_be_are_refused(session, translator):
    """The export cuts at 1,024 tokens; Python was asked for 200, which all texts fit."""
    with pytest.raises(UserError, match="with_options: source_cut of 'a long text'"):
        self_test(check_translator(session, translator, {"max_source_length": 200}), "float32")


@pytest.mark.parametrize("options", [{"alpha": 1.1}, {"beam_size": 3}, {"max_length": 5}])
def test_an_export_with_other_settings_than_asked_for_is_refused(session, translator, options):
    with pytest.raises(UserError, match="self-test, [a-z]+: .* of 'A short"):
        self_test(check_translator(session, translator, options), "float32")


def test_a_swapped_vocabulary_is_refused(exported, translator, tmp_path):
    """Two letters change places in the tokenizer inside the written graph."""
    path = shutil.copytree(exported, tmp_path / "1")
    model = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    for node in (*graph.node, *functions):
        if node.op == "SentencepieceOp":
            pieces = ModelProto.FromString(node.attr["model"].s)
            first, second = (one for one in pieces.pieces if one.piece in ("e", "o"))
            first.piece, second.piece = second.piece, first.piece
            node.attr["model"].s = pieces.SerializeToString()
    (path / "saved_model.pb").write_bytes(model.SerializeToString())
    with ExportEngine(path) as swapped, pytest.raises(UserError, match="its self-test"):
        self_test(check_translator(swapped, translator, {}), "float32")


@pytest.fixture(scope="module")
def in_bfloat16(trained_run, exported_in_bfloat16) -> Iterator[tuple]:
    """An export in bfloat16 of a beam of 2 and an alpha of 0.8, and the model in Python."""
    folder = exported_in_bfloat16
    with ExportEngine(folder) as loaded:
        yield loaded, load(trained_run.path, checkpoint="average", precision="bfloat16")


MATRICES = (
    ("float32", "embedding/embeddings"),
    ("float32", "decoder/layer_0/cross_attention/value/kernel"),
    ("bfloat16", "encoder/layer_0/feed_forward/inner/kernel"),
)


@pytest.mark.parametrize(("precision", "matrix"), MATRICES)
def test_one_matrix_off_by_one_percent_is_refused(
    session, translator, request, precision, matrix
):
    loaded, model = session, translator
    if precision == "bfloat16":
        loaded, model = request.getfixturevalue("in_bfloat16")
    options = {} if precision == "float32" else {"beam_size": 2, "alpha": 0.8}
    [weights] = [one for one in model.model.trainable_weights if one.path == matrix]
    right = weights.numpy()
    weights.assign(right.astype("float32") * 1.01)
    try:
        missed = {"score: log_prob", "score: score", "nbest: scores", "tokens: score"}
        for output, _, *values in check_translator(loaded, model, options):
            missed -= set() if agree(*values, precision) else {output}
            if not missed:
                break
    finally:
        weights.assign(right)
    assert not missed


def test_a_model_that_has_learnt_nothing_passes_under_any_limits(translator, tmp_path):
    """Only its search is tried: all its hypotheses are nearly equal.

    It is in LiteRT, which exports as usual, tested against the model in TensorFlow.
    """
    model, tokenizer = small_model(translator.tokenizer.vocab_size), translator.tokenizer
    for index, weights in enumerate(model.trainable_weights):
        weights.assign(weights * (1 + 0.1 * index))
    decoding = DecodingConfig(
        min_length=15, beam_size=2, max_source_length=20, no_repeat_ngram=2
    )
    lite = InterpreterPool(lite_file(model, "float32"), threads=1)
    untrained = Translator(
        engine=LiteEngine.beside(GraphEngine(model, tokenizer), lite), decoding=decoding
    )
    exported = untrained.export(tmp_path / "any")
    assert load(exported).translate("Two men.") == untrained.translate("Two men.")


@pytest.mark.parametrize(
    ("precision", "expected", "received", "same"),
    [
        ("float32", -1.0, -1.00009, True), ("float32", -1.0, -1.00012, False),
        ("float32", -1031.9785, -1031.9787, True), ("float32", -1031.9785, -1031.99, False),
        ("float32", [[0.0, 0.0]], [[0.0, 9e-5]], True),
        ("float32", [[0.0, 0.0]], [[0.0, 2e-4]], False),
        ("float32", [-1.0, -2.0], [-1.0], False), ("float32", [1, 2], [1, 2, 0], False),
        ("float32", "a", "b", False), ("float32", False, True, False),
        ("bfloat16", -1.0, -1.0019, True), ("bfloat16", -1.0, -1.01, False),
        ("bfloat16", -200.0, -200.3, False), ("bfloat16", [[0.5, 0.5]], [[0.519, 0.5]], True),
        ("bfloat16", [[0.5, 0.5]], [[0.53, 0.5]], False),
    ],
)  # fmt: skip
def test_values_agree_up_to_rounding(precision, expected, received, same):
    assert bool(agree(expected, received, precision)) is same


@pytest.mark.parametrize(
    ("precision", "output", "score"),
    [("float32", "nbest: scores", -1.0), ("int8", "nbest: scores", -1.4),
     ("int8", "score: log_prob", -1.2)],
)  # fmt: skip
def test_only_in_int8_a_search_may_end_elsewhere_with_a_score_near_by(precision, output, score):
    found = ("nbest: translations", "a", ["b"], ["c"])
    self_test([found, ("nbest: scores", "a", [-1.0], [-1.2])], "int8")
    with pytest.raises(UserError, match="failed its self-test"):
        self_test([found, (output, "a", [-1.0], [score])], precision)
