"""The self-test before publishing sees every output of every signature."""

import numpy as np
import pytest

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.serving.publish import export
from tf_transformer.serving.selftest import agree, comparisons, self_test


class Tampered:
    """A session that answers a little wrongly wherever `outputs` says so."""

    def __init__(self, session, outputs: set[tuple[str, str]] | None = None) -> None:
        self.session = session
        self.outputs = outputs

    def run(self, signature, inputs, outputs=()):
        answer = self.session.run(signature, inputs, outputs)
        return {
            name: self._changed(value) if self._concerns(signature, name) else value
            for name, value in answer.items()
        }

    def _concerns(self, signature: str, name: str) -> bool:
        return self.outputs is None or (signature, name) in self.outputs

    def _changed(self, value: np.ndarray) -> np.ndarray:
        if value.dtype == object:
            return np.vectorize(lambda text: text + b"!", otypes=[object])(value)
        if value.dtype == bool:
            return ~value
        if value.dtype.kind == "i":
            return value + 1
        return value * np.float32(1 + 1e-5) - np.float32(2e-3)


def test_every_output_of_every_signature_agrees_with_python(session, translator):
    found = list(comparisons(session, translator))
    assert [each for each in found if not agree(*each[2:])] == []
    outputs = {
        f"{name}: {output}"
        for name in session.signatures
        for output in session.signature(name).outputs
    }
    assert {what for what, *_ in found} == outputs


def test_nothing_that_is_wrong_is_overlooked(session, translator):
    found = list(comparisons(Tampered(session), translator))
    noticed = {what for what, _, *values in found if not agree(*values)}
    assert noticed == {what for what, *_ in found}


def test_the_error_says_where(session, translator):
    tampered = Tampered(session, {("with_options", "scores")})
    with pytest.raises(UserError, match="self-test, with_options: scores of 'A short"):
        self_test(tampered, translator)


@pytest.mark.parametrize(
    "decoding",
    [
        DecodingConfig(max_length=5, max_source_length=20, no_repeat_ngram=2),
        DecodingConfig(min_length=15, beam_size=2),
    ],
    ids=["short", "long"],
)
def test_it_holds_whatever_the_limits(translator, tmp_path, decoding):
    limited = Translator(translator.model, translator.tokenizer, decoding)
    assert export(limited, tmp_path) == tmp_path / "1"


@pytest.mark.parametrize(
    ("expected", "received", "same"),
    [
        (-1.0, -1.00009, True),
        (-1.0, -1.00011, False),
        (-1031.9785, -1031.9787, True),
        (-1031.9785, -1031.98, False),
        (np.zeros([2, 2]), np.full([2, 2], 9e-5), True),
        (np.zeros([2, 2]), np.array([[0, 0], [0, 2e-4]]), False),
        (np.zeros([2, 2]), np.zeros([2, 3]), True),
        (np.zeros([2, 2]), np.array([[0, 0, 1], [0, 0, 0]]), False),
        (np.zeros([2, 3]), np.zeros([2, 2]), False),
        ([1, 2], np.array([1, 2, 0]), True),
        ([1, 2], np.array([1]), False),
        ("a", b"a", True),
        ("a", b"b", False),
        (False, np.bool_(True), False),
    ],
)
def test_agreement_allows_for_rounding_alone(expected, received, same):
    assert bool(agree(expected, received)) is same
