"""The length of a request in tokens, and the lane that it takes."""

import json
import threading

import numpy as np
import pytest

from tf_transformer.config import DecodingConfig
from tf_transformer.errors import UserError
from tf_transformer.serving.batcher import BatchLimits
from tf_transformer.serving.lanes import Lanes, Meter, TokenLimits, token_limits
from tf_transformer.serving.session import BadRequestError
from tf_transformer.serving.versions import CARD

LIMITS = TokenLimits(target=1_074, group=1_024)


def texts(*lines: str) -> np.ndarray:
    return np.array([line.encode() for line in lines], object)


def options(text: str, prefix: str) -> dict[str, np.ndarray]:
    return {
        "text": texts(text),
        "alpha": np.array([-1.0], "float32"),
        "max_length": np.array([5], "int32"),
        "prefix": texts(prefix),
    }


def test_tokens_are_counted_as_in_the_graph(session, translator):
    meter = Meter(session, LIMITS)
    for line in ("", "The dog.", "\ufdfa emoji 🙂", "word " * 60):
        ids, _ = translator.codec.encode(texts(line))
        assert meter.size({"text": texts("", line)}).longest == len(ids[0])


def test_rows_count_only_up_to_the_limit_of_the_model(session):
    meter = Meter(session, LIMITS)
    assert meter.size({"text": texts("a", "The dog. " * 5_000)}).longest == LIMITS.target
    assert meter.size({"tokens": np.full([2, 7], 5, "int32")}).longest == 7
    assert meter.size({"tokens": np.full([1, 9_999], 5, "int32")}).longest == LIMITS.target
    assert meter.size({"text": texts()}).longest == 1


def test_a_damaged_tokenizer_is_reported():
    class Damaged:
        tokenizers = (b"garbage",)

    with pytest.raises(UserError, match="tokenizer in the model is damaged: export it again"):
        Meter(Damaged(), LIMITS)


def test_a_prefix_counts_and_has_a_limit(session):
    meter = Meter(session, LIMITS)
    assert meter.size(options("a", "der " * 300)).longest > 300
    with pytest.raises(BadRequestError, match="at most 1073 tokens, .* Received: 2000 tokens"):
        meter.size(options("a", "der " * 2_000))


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (None, LIMITS),
        ("damaged", LIMITS),
        ("5", LIMITS),
        ('{"decoding": {"beam_size": "a"}}', LIMITS),
        (
            {
                "decoding": {"beam_size": 2, "max_source_length": 100, "of the future": 1},
                "config": {"model": {"positions": "sinusoidal", "max_length": 50}},
            },
            TokenLimits(target=150, group=2_048),
        ),
        (
            {"decoding": {}, "config": {"model": {"positions": "learned", "max_length": 50}}},
            TokenLimits(target=50, group=1_024),
        ),
    ],
    ids=["none", "damaged", "number", "type", "of a run", "learned positions"],
)
def test_limits_come_from_the_card(tmp_path, card, expected):
    if card is not None:
        (tmp_path / CARD).parent.mkdir()
        text = card if isinstance(card, str) else json.dumps(card)
        (tmp_path / CARD).write_text(text, "utf-8")
    assert token_limits(tmp_path) == expected


def test_an_export_has_the_limits_of_its_translator(translator, exported):
    assert translator.decoding == DecodingConfig()
    assert token_limits(exported).target == translator.codec.target_limit


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"source": texts(*"abcde")}, "at most 4 rows. Received: 5"),
        ({"source": texts("a"), "target": texts("a", "b")}, "same number of rows"),
    ],
)
def test_requests_that_fit_no_batch_are_refused(make_lanes, inputs, message):
    lanes = make_lanes(rows=4)
    with pytest.raises(BadRequestError, match=message):
        lanes.submit("score", inputs)
    lanes.close()


class Held:
    """A session that keeps long texts waiting until `released` is set."""

    def __init__(self, session) -> None:
        self.session = session
        self.tokenizers, self.streams = session.tokenizers, session.streams
        self.released = threading.Event()

    def run(self, signature, inputs, timeout):
        if max(map(len, inputs["text"])) > 100:
            assert self.released.wait(60)
        return self.session.run(signature, inputs, timeout=timeout)


@pytest.mark.parametrize("long", [texts("The dog. " * 200), texts(*["The dog. " * 30] * 32)])
def test_a_short_request_does_not_wait_for_a_long_one(session, long):
    held = Held(session)
    lanes = Lanes(held, Meter(session, LIMITS), BatchLimits())
    slow = lanes.submit("serving_default", {"text": long})
    queued = lanes.submit("serving_default", {"text": long})
    assert lanes.submit("serving_default", {"text": texts("A cat.")}).result(60)
    held.released.set()
    assert len(slow.result(60)["score"]) == len(queued.result(60)["score"]) == len(long)
    assert lanes.alive
    lanes.close()
    assert not lanes.alive
