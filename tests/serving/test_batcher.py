"""Requests computed together are answered as if each were alone."""

import threading
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from tf_transformer.serving.batcher import Batcher, QueueFullError
from tf_transformer.serving.session import BadRequestError

TEXTS = ["The dog.", "", "A red house and two cats.", "x" * 50, "One more."]


class Gate:
    """A session that waits for leave before each batch, and counts its rows."""

    def __init__(self, session) -> None:
        self.session = session
        self.begun, self.leave = threading.Semaphore(0), threading.Semaphore(0)
        self.rows: list[tuple[str, int]] = []

    def run(self, signature, inputs, timeout):
        self.begun.release()
        assert self.leave.acquire(timeout=60)
        self.rows.append((signature, len(next(iter(inputs.values())))))
        return self.session.run(signature, inputs, timeout=timeout)


@pytest.fixture
def gate(session):
    return Gate(session)


@pytest.fixture
def batcher(gate):
    batcher = Batcher(gate, max_rows=4, max_waiting=8)
    yield batcher
    for _ in range(100):
        gate.leave.release()
    batcher.close()


def text(*lines: str) -> dict[str, np.ndarray]:
    return {"text": np.array(lines, object)}


def occupy(batcher, gate):
    """A request that is being computed, so that others must wait."""
    answer = batcher.submit("serving_default", text("first"))
    assert gate.begun.acquire(timeout=60)
    return answer


def test_those_who_wait_are_computed_together(session, batcher, gate):
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text(line)) for line in TEXTS]
    for _ in range(10):
        gate.leave.release()
    wait([first, *answers], timeout=60)
    assert gate.rows == [("serving_default", rows) for rows in (1, 4, 1)]
    for line, answer in zip(TEXTS, answers, strict=True):
        alone = session.run("serving_default", text(line))
        assert answer.result()["translation"].tolist() == alone["translation"].tolist()
        assert answer.result()["score"] == pytest.approx(alone["score"], abs=1e-4)


def test_signatures_and_widths_do_not_mix(session, batcher, gate):
    first = occupy(batcher, gate)
    rows = [[5, 3], [5, 6, 7, 8, 3], [9, 10, 3]]
    ids = [{"tokens": np.array([row], "int32")} for row in rows]
    answers = [batcher.submit("tokens", one) for one in ids[:2]]
    other = batcher.submit("nbest", text("The dog."))
    answers.append(batcher.submit("tokens", ids[2]))
    for _ in range(10):
        gate.leave.release()
    wait([first, other, *answers], timeout=60)
    assert gate.rows[1:] == [("tokens", 3), ("nbest", 1)]
    for one, answer in zip(ids, answers, strict=True):
        size = answer.result()["num_tokens"][0]
        alone = session.run("tokens", one)["tokens"][0]
        assert answer.result()["tokens"][0, :size].tolist() == alone[:size].tolist()


def test_a_bad_request_does_not_fail_its_company(batcher, gate):
    first = occupy(batcher, gate)
    good = batcher.submit("serving_default", text("The dog."))
    bad = batcher.submit("serving_default", {"text": np.array([1], "int32")})
    for _ in range(10):
        gate.leave.release()
    wait([first, good, bad], timeout=60)
    assert len(good.result()["translation"]) == 1
    with pytest.raises(BadRequestError, match="text must be string"):
        bad.result()


def test_an_error_of_the_server_is_not_tried_again(batcher, gate, monkeypatch):
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text("a")) for _ in range(3)]
    gate.leave.release()
    first.result(60)
    monkeypatch.setattr(gate, "session", None)  # whose `run` is then an AttributeError
    gate.leave.release()
    wait(answers, timeout=60)
    assert all(isinstance(answer.exception(), AttributeError) for answer in answers)
    assert gate.rows == [("serving_default", 1), ("serving_default", 3)]


def test_a_full_queue_refuses_and_empties_again(batcher, gate):
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text("a", "b")) for _ in range(4)]
    with pytest.raises(QueueFullError):
        batcher.submit("serving_default", text("one too many"))
    for _ in range(10):
        gate.leave.release()
    wait([first, *answers], timeout=60)
    assert batcher.submit("serving_default", text("again")).result(60)


def test_what_was_given_up_is_not_computed(batcher, gate):
    first = occupy(batcher, gate)
    given_up = batcher.submit("serving_default", text("a"))
    kept = batcher.submit("serving_default", text("b", "c"))
    assert given_up.cancel()
    for _ in range(10):
        gate.leave.release()
    wait([first, kept], timeout=60)
    assert gate.rows == [("serving_default", 1), ("serving_default", 2)]


def test_what_was_given_up_takes_no_room(batcher, gate):
    first = occupy(batcher, gate)
    given_up = [batcher.submit("serving_default", text(*"abcd")) for _ in range(2)]
    assert all(answer.cancel() for answer in given_up)
    kept = [batcher.submit("serving_default", text(*"ab")) for _ in range(3)]
    given_up.append(kept.pop(0))
    assert given_up[-1].cancel()
    for _ in range(10):
        gate.leave.release()
    assert not wait([first, *given_up, *kept], timeout=60).not_done
    assert gate.rows == [("serving_default", 1), ("serving_default", 4)]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (text(*"abcde"), "at most 4 rows. Received: 5"),
        ({"source": np.array(["a"]), "target": np.array(["a", "b"])}, "same number of rows"),
    ],
)
def test_requests_that_fit_no_batch_are_refused(batcher, inputs, message):
    with pytest.raises(BadRequestError, match=message):
        batcher.submit("score", inputs)


def test_closing_cancels_what_waits(session):
    gate = Gate(session)
    batcher = Batcher(gate)
    first = occupy(batcher, gate)
    waiting = batcher.submit("serving_default", text("a"))
    gate.leave.release()
    threading.Timer(0.2, gate.leave.release).start()
    batcher.close()
    assert first.done()
    assert waiting.cancelled() or waiting.result()
    if waiting.cancelled():
        with pytest.raises(CancelledError):
            waiting.result()
    with pytest.raises(QueueFullError):
        batcher.submit("serving_default", text("late"))
