"""A session that searches in LiteRT answers as one that searches in TensorFlow."""

import numpy as np
import pytest

from tf_transformer.decoding.lite_file import lite_file
from tf_transformer.decoding.lite_model import LiteModel
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.serving.lite_session import LiteSession
from tf_transformer.serving.session import BadRequestError, ClosedError


@pytest.fixture(scope="module")
def of_lite(translator, exported):
    lite = LiteModel(lite_file(translator.model, "float32"), threads=1)
    model, tokenizer, decoding = translator.model, translator.tokenizer, translator.decoding
    return LiteSession(exported, BatchTranslator(model, tokenizer, decoding, lite=lite))


@pytest.mark.parametrize("rows", [slice(0, 0), slice(1), slice(None)])
@pytest.mark.parametrize("signature", ["serving_default", "nbest"])
def test_it_answers_what_the_session_answers(of_lite, session, trained_run, signature, rows):
    texts = ["", *trained_run.lines("train.en")[:4], "Füße \udcff", "word " * 1_200][rows]
    text = np.array([each.encode("utf-8", "surrogatepass") for each in texts], object)
    found = of_lite.run(signature, {"text": text})
    expected = session.run(signature, {"text": text})
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and len(found[name]) == len(texts)
        if name in ("score", "scores"):
            np.testing.assert_allclose(found[name], values, atol=1e-4)
        else:
            assert found[name].tolist() == values.tolist()


def test_requests_are_checked_cancelled_and_passed_on_as_before(of_lite, session, trained_run):
    text = np.array([line.encode() for line in trained_run.lines("train.en")], object)
    assert of_lite.run("nbest", {"text": text[:2]}, ["count"]).keys() == {"count"}
    with pytest.raises(BadRequestError, match="text must be a string. Received: 1"):
        of_lite.run("nbest", {"text": [1]})
    with pytest.raises(TimeoutError, match="nbest took more than 0.001 s"):
        of_lite.run("nbest", {"text": text}, timeout=0.001)
    pair = {"source": text[:2], "target": text[2:4]}
    found, expected = of_lite.run("score", pair), session.run("score", pair)
    assert {name: found[name].tolist() for name in found} == {
        name: expected[name].tolist() for name in expected
    }
    of_lite.close()
    with pytest.raises(ClosedError):
        of_lite.run("serving_default", {"text": text})
