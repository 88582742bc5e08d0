"""The self-test before publishing sees every output of every signature."""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.serving.comparisons import _Best, _Signatures, comparisons
from tf_transformer.serving.publish import BFLOAT16, FLOAT32, agree, self_test
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.translations import exportable
from tf_transformer.serving.warmup import replay
from tf_transformer.tasks.translation.translator import Translator, load_translator


class Tampered:
    """A session whose `outputs`, by default all, are slightly wrong."""

    def __init__(self, session, outputs: set[tuple[str, str]] | None = None) -> None:
        self.session = session
        self.outputs = outputs

    def run(self, signature, inputs, outputs=()):
        answer = self.session.run(signature, inputs, outputs)
        return {
            name: self._changed(value)
            if self.outputs is None or (signature, name) in self.outputs
            else value
            for name, value in answer.items()
        }

    def _changed(self, value: np.ndarray) -> np.ndarray:
        if value.dtype == object:
            return np.vectorize(lambda text: text + b"!", otypes=[object])(value)
        if value.dtype == bool:
            return ~value
        if value.dtype.kind == "i":
            return value + 1
        return value * np.float32(1 + 1e-5) - np.float32(2e-3)


def test_every_output_of_every_signature_agrees_with_python(session, translator):
    compared = list(comparisons(session, translator.engine, translator.decoding))
    assert [comparison for comparison in compared if not agree(*comparison[2:])] == []
    outputs = {
        f"{name}: {output}"
        for name, signature in session.signatures.items()
        for output in signature.outputs
    }
    assert {output for output, *_ in compared} == outputs


def test_every_wrong_output_is_noticed(session, translator):
    compared = list(comparisons(Tampered(session), translator.engine, translator.decoding))
    noticed = {output for output, _, *values in compared if not agree(*values)}
    assert noticed == {output for output, *_ in compared}


def test_the_error_names_the_output_and_the_text(session, translator):
    tampered = Tampered(session, {("with_options", "scores")})
    with pytest.raises(UserError, match="self-test, with_options: scores of 'A short"):
        self_test(comparisons(tampered, translator.engine, translator.decoding), FLOAT32)


class Traced:
    """The functions of an export as a session, before they are saved."""

    def __init__(self, functions) -> None:
        self.functions = functions

    def run(self, signature, inputs):
        answer = self.functions[signature](*map(tf.constant, inputs.values()))
        return {name: value.numpy() for name, value in answer.items()}


def test_exports_with_other_limits_pass(translator):
    """The tests of the gate export a model with `max_length`."""
    decoding = DecodingConfig(
        min_length=15, beam_size=2, max_source_length=20, no_repeat_ngram=2
    )
    limited = exportable(translator.engine, decoding)
    traced = Traced(limited.functions)
    replay(traced, limited.requests)
    self_test(limited.compare(traced), FLOAT32)


def test_targets_may_be_cut_where_sources_are_not(translator):
    sizes = {"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "max_length": 99}
    trained = {"positions": "learned", "source_positions": 60, "target_positions": 12}
    model = Transformer(translator.tokenizer.vocab_size, **trained, **sizes)
    limited = exportable(GraphEngine(model, translator.tokenizer), DecodingConfig())
    compared = list(limited.compare(Traced(limited.functions)))
    assert all(agree(*each[2:]) for each in compared)
    assert {each[2] for each in compared if each[0] == "score: target_cut"} == {False, True}


def test_a_translation_that_differs_by_rounding_alone_is_left_out(session, translator):
    signatures = _Signatures(session, translator.engine, translator.decoding)
    best, texts = signatures.best_of_each(), len(signatures._texts)

    def changed(rows: list[int], score: float = 0.0) -> _Best:
        """What the translator would have found instead in these rows, better by `score`."""
        target, scores = best.target.copy(), list(best.scores)
        for row in rows:
            target[row, 0] += 1
            scores[row] += score
        return best._replace(target=target, scores=scores)

    real = [row for row, size in enumerate(best.sizes) if size]
    assert signatures.leave_out_ties(best) == 0
    assert signatures.leave_out_ties(changed(real)) == 0
    assert signatures.leave_out_ties(changed(real[:1], score=5.0)) == 0
    assert signatures.leave_out_ties(changed(real[:1])) == 1
    assert len(signatures._texts) == texts - 1


@pytest.mark.parametrize(
    ("tolerance", "expected", "received", "same"),
    [
        (FLOAT32, -1.0, -1.00009, True),
        (FLOAT32, -1.0, -1.00011, False),
        (FLOAT32, -1031.9785, -1031.9787, True),
        (FLOAT32, -1031.9785, -1031.98, False),
        (FLOAT32, np.zeros([2, 2]), np.full([2, 2], 9e-5), True),
        (FLOAT32, np.zeros([2, 2]), np.array([[0, 0], [0, 2e-4]]), False),
        (FLOAT32, np.zeros([2, 2]), np.zeros([2, 3]), True),
        (FLOAT32, np.zeros([2, 2]), np.array([[0, 0, 1], [0, 0, 0]]), False),
        (FLOAT32, np.zeros([2, 3]), np.zeros([2, 2]), False),
        (FLOAT32, [1, 2], np.array([1, 2, 0]), True),
        (FLOAT32, [1, 2], np.array([1]), False),
        (FLOAT32, "a", b"a", True),
        (FLOAT32, "a", b"b", False),
        (FLOAT32, False, np.bool_(True), False),
        (BFLOAT16, -0.01, -0.0109, True),
        (BFLOAT16, -0.01, -0.0111, False),
        (BFLOAT16, -1.0, -1.01, False),
        (BFLOAT16, -200.0, -200.19, True),
        (BFLOAT16, -200.0, -200.3, False),
        (BFLOAT16, np.zeros([2, 2]), np.full([2, 2], 0.019), True),
        (BFLOAT16, np.zeros([2, 2]), np.full([2, 2], 0.021), False),
    ],
)
def test_values_agree_up_to_rounding(tolerance, expected, received, same):
    assert bool(agree(expected, received, tolerance)) is same


@pytest.fixture(scope="module")
def bfloat16(
    trained_run, exported_in_bfloat16
) -> Iterator[tuple[SavedModelSession, Translator]]:
    """A loaded export in bfloat16, which passed its self-test, and its translator."""
    run, decoding = Run.open(trained_run.path), DecodingConfig(beam_size=2, alpha=0.8)
    translator = load_translator(run, "average", decoding=decoding, precision="bfloat16")
    with SavedModelSession(exported_in_bfloat16) as loaded:
        yield loaded, translator


@pytest.mark.parametrize(
    "matrix",
    [
        "embedding/embeddings",
        "encoder/layer_0/feed_forward/inner/kernel",
        "decoder/layer_0/cross_attention/value/kernel",
    ],
)
def test_one_matrix_off_by_one_percent_is_noticed_in_bfloat16(bfloat16, matrix):
    loaded, translator = bfloat16
    [weights] = [one for one in translator.model.trainable_weights if one.path == matrix]
    right = weights.numpy()
    weights.assign(right.astype("float32") * 1.01)
    try:
        compared = list(comparisons(loaded, translator.engine, translator.decoding))
    finally:
        weights.assign(right)
    noticed = {output for output, _, *values in compared if not agree(*values, BFLOAT16)}
    assert {"score: log_prob", "score: score", "nbest: scores", "tokens: score"} <= noticed
