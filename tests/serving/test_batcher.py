"""Requests computed together are answered as if each were alone."""

import threading
import time
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from tf_transformer.serving.batcher import Batcher, BatchLimits, QueueFullError
from tf_transformer.serving.session import BadRequestError, ClosedError

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
    batcher = Batcher(gate, BatchLimits(rows=4, positions=100, waiting=8))
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


def finish(gate, *answers):
    """Lets the batcher compute, and waits until all requests are answered."""
    for _ in range(10):
        gate.leave.release()
    assert not wait(answers, timeout=60).not_done


def test_those_who_wait_are_computed_together(session, batcher, gate):
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text(line)) for line in TEXTS]
    finish(gate, first, *answers)
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
    finish(gate, first, other, *answers)
    assert gate.rows[1:] == [("tokens", 3), ("nbest", 1)]
    for one, answer in zip(ids, answers, strict=True):
        size = answer.result()["num_tokens"][0]
        alone = session.run("tokens", one)["tokens"][0]
        assert answer.result()["tokens"][0, :size].tolist() == alone[:size].tolist()


def test_a_bad_request_does_not_fail_its_company(batcher, gate):
    first = occupy(batcher, gate)
    good = batcher.submit("serving_default", text("The dog."))
    bad = batcher.submit("serving_default", {"text": np.array([1], "int32")})
    finish(gate, first, good, bad)
    assert len(good.result()["translation"]) == 1
    with pytest.raises(BadRequestError, match="text must be a string"):
        bad.result()


class Moody:
    """A session that fails on the texts it is told to, each in its own way."""

    def __init__(self, session, failures) -> None:
        self.session, self.failures = session, failures
        self.calls: list[list[str]] = []

    def run(self, signature, inputs, timeout):
        texts = inputs["text"].tolist()
        self.calls.append(texts)
        for text in texts:
            if text in self.failures:
                return self.failures[text](timeout)
        return self.session.run(signature, inputs, timeout=timeout)


def fail(error: BaseException):
    def raise_it(timeout):
        raise error

    return raise_it


UNUSUAL = {
    "error": (fail(AttributeError("ours")), AttributeError),
    "out of memory": (fail(MemoryError()), MemoryError),
    "exit": (fail(SystemExit(1)), RuntimeError),
    "interrupt": (fail(KeyboardInterrupt()), RuntimeError),
    "no outputs": (lambda timeout: None, AttributeError),
    "too few rows": (lambda timeout: {"translation": np.zeros(0)}, ValueError),
    "no array": (lambda timeout: {"translation": 5}, TypeError),
    "deadline": (fail(TimeoutError()), TimeoutError),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_whatever_fails_hits_only_its_own_request(session, name):
    """And the thread goes on: the next request is answered."""
    failure, expected = UNUSUAL[name]
    moody = Moody(session, {"bad": failure})
    gate = Gate(moody)
    batcher = Batcher(gate)
    first = occupy(batcher, gate)
    lines = ["The dog.", "bad", "A cat."]
    answers = [batcher.submit("serving_default", text(line)) for line in lines]
    finish(gate, first, *answers)
    assert moody.calls[1:] == [lines, *([line] for line in lines)]
    assert isinstance(answers[1].exception(), expected)
    for place in (0, 2):
        alone = session.run("serving_default", text(lines[place]))["translation"]
        assert answers[place].result()["translation"].tolist() == alone.tolist()
    assert batcher.alive
    assert batcher.submit("serving_default", text("again")).result(60)
    batcher.close()


class Timed:
    """A session that computes only single requests, and notes how long each call may take."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def run(self, signature, inputs, timeout):
        self.timeouts.append(timeout)
        if len(inputs["text"]) > 1:
            raise TimeoutError
        return {"translation": inputs["text"]}


def test_a_deadline_leaves_time_for_each_request_alone():
    gate = Gate(Timed())
    batcher = Batcher(gate, BatchLimits(deadline=60.0))
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text("a")) for _ in range(4)]
    finish(gate, first, *answers)
    assert all(answer.result() for answer in answers)
    shares = [60, 60 / 2, 60 / 4, 60 / 3, 60 / 2, 60]  # the first, the batch, each
    assert gate.session.timeouts == pytest.approx(shares, rel=0.2)
    batcher.close()


def test_what_has_no_time_left_is_not_computed(session):
    gate = Gate(session)
    batcher = Batcher(gate, BatchLimits(deadline=0.2))
    first = occupy(batcher, gate)
    late = batcher.submit("serving_default", text("late"))
    time.sleep(0.3)
    gate.leave.release()
    assert isinstance(late.exception(60), TimeoutError)
    assert gate.rows == [("serving_default", 1)]
    assert first.done()
    batcher.close()


def test_a_batch_has_so_many_positions_at_most(batcher, gate):
    first = occupy(batcher, gate)
    longest = [40, 30, 10, 101, 40]  # of a row each, and 100 together
    answers = [batcher.submit("serving_default", text("a"), size) for size in longest]
    finish(gate, first, *answers)
    # 40 and 30 are 2 rows of 40, and a third would make it 120.
    assert [rows for _, rows in gate.rows] == [1, 2, 2, 1]


def test_a_thread_that_ends_by_an_error_of_ours_leaves_nobody_waiting(session, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    batcher = Batcher(session)
    monkeypatch.setattr(batcher, "_fits", lambda batch, one: 1 / 0)
    answer = batcher.submit("serving_default", text("a"))
    with pytest.raises(CancelledError):
        answer.result(60)
    batcher.close()
    assert not batcher.alive
    with pytest.raises(ClosedError):
        batcher.submit("serving_default", text("b"))


def test_a_full_queue_refuses_and_empties_again(batcher, gate):
    first = occupy(batcher, gate)
    answers = [batcher.submit("serving_default", text("a", "b")) for _ in range(4)]
    with pytest.raises(QueueFullError):
        batcher.submit("serving_default", text("one too many"))
    finish(gate, first, *answers)
    assert batcher.submit("serving_default", text("again")).result(60)


def test_what_was_given_up_is_not_computed(batcher, gate):
    first = occupy(batcher, gate)
    given_up = batcher.submit("serving_default", text("a"))
    kept = batcher.submit("serving_default", text("b", "c"))
    assert given_up.cancel()
    finish(gate, first, kept)
    assert gate.rows == [("serving_default", 1), ("serving_default", 2)]


def test_what_was_given_up_takes_no_room(batcher, gate):
    first = occupy(batcher, gate)
    given_up = [batcher.submit("serving_default", text(*"abcd")) for _ in range(2)]
    assert all(answer.cancel() for answer in given_up)
    kept = [batcher.submit("serving_default", text(*"ab")) for _ in range(3)]
    given_up.append(kept.pop(0))
    assert given_up[-1].cancel()
    finish(gate, first, *given_up, *kept)
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
    with pytest.raises(ClosedError):
        batcher.submit("serving_default", text("late"))


def test_refusing_still_answers_what_waits(session):
    gate = Gate(session)
    batcher = Batcher(gate)
    first = occupy(batcher, gate)
    waiting = batcher.submit("serving_default", text("a"))
    batcher.refuse()
    with pytest.raises(ClosedError):
        batcher.submit("serving_default", text("late"))
    for _ in range(2):
        gate.leave.release()
    wait([first, waiting], timeout=60)
    assert len(waiting.result()["translation"]) == 1
    batcher.close()
