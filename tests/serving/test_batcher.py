"""Requests computed together get the same answers as alone."""

import threading
import time
from concurrent.futures import CancelledError, Future, wait

import numpy as np
import pytest

from tf_transformer.serving.batcher import Batcher, BatchLimits, Observer, QueueFullError
from tf_transformer.serving.session import BadRequestError, ClosedError

TEXTS = ["The dog.", "", "A red house and two cats.", "x" * 50, "One more."]


def text(*lines: str) -> dict[str, np.ndarray]:
    return {"text": np.array(lines, object)}


class Gate:
    """A batcher whose session waits for a permit before each batch, and records its rows."""

    def __init__(self, session, streams: int = 1, **limits) -> None:
        self.session = session
        self.begun, self.permits = threading.Semaphore(0), threading.Semaphore(0)
        self.rows: list[tuple[str, int]] = []
        self.batcher = Batcher(self, BatchLimits(**limits), Observer(), streams)

    def run(self, signature, inputs, timeout):
        self.begun.release()
        assert self.permits.acquire(timeout=60)
        self.rows.append((signature, len(next(iter(inputs.values())))))
        return self.session.run(signature, inputs, timeout=timeout)

    def ask(self, *lines: str, longest: int = 1) -> Future:
        return self.batcher.submit("serving_default", text(*lines), longest)

    def occupy(self) -> Future:
        """Sends a request that is being computed, so that others must wait."""
        answer = self.ask("first")
        assert self.begun.acquire(timeout=60)
        return answer

    def finish(self, *answers: Future) -> None:
        """Lets the batcher compute, and waits until all requests are answered."""
        self.permits.release(10)
        assert not wait(answers, timeout=60).not_done


@pytest.fixture
def gated():
    """`gated(session, rows=4)`: a gate with these batch limits."""
    gates = []

    def gated(session, **limits) -> Gate:
        gates.append(Gate(session, **limits))
        return gates[-1]

    yield gated
    for gate in gates:
        gate.permits.release(100)
        gate.batcher.close()


@pytest.fixture
def gate(session, gated) -> Gate:
    return gated(session, rows=4, positions=100, waiting=8)


def test_waiting_requests_are_computed_together(session, gate):
    first = gate.occupy()
    answers = [gate.ask(line) for line in TEXTS]
    gate.finish(first, *answers)
    assert gate.rows == [("serving_default", rows) for rows in (1, 4, 1)]
    for line, answer in zip(TEXTS, answers, strict=True):
        alone = session.run("serving_default", text(line))
        assert answer.result()["translation"].tolist() == alone["translation"].tolist()
        assert answer.result()["score"] == pytest.approx(alone["score"], abs=1e-4)


def test_signatures_are_not_mixed_and_widths_are_padded(session, gate):
    first = gate.occupy()
    rows = [[5, 3], [5, 6, 7, 8, 3], [9, 10, 3]]
    ids = [{"tokens": np.array([row], "int32")} for row in rows]
    answers = [gate.batcher.submit("tokens", one) for one in ids[:2]]
    other = gate.batcher.submit("nbest", text("The dog."))
    answers.append(gate.batcher.submit("tokens", ids[2]))
    gate.finish(first, other, *answers)
    assert gate.rows[1:] == [("tokens", 3), ("nbest", 1)]
    for one, answer in zip(ids, answers, strict=True):
        size = answer.result()["num_tokens"][0]
        alone = session.run("tokens", one)["tokens"][0]
        assert answer.result()["tokens"][0, :size].tolist() == alone[:size].tolist()


def test_a_bad_request_does_not_fail_others_in_its_batch(gate):
    first = gate.occupy()
    good = gate.ask("The dog.")
    bad = gate.batcher.submit("serving_default", {"text": np.array([1], "int32")})
    gate.finish(first, good, bad)
    assert len(good.result()["translation"]) == 1
    with pytest.raises(BadRequestError, match="text must be a string"):
        bad.result()


class Failing:
    """A session that fails on certain texts, each in its own way."""

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


FAILURES = {
    "error": (fail(AttributeError("a bug")), AttributeError),
    "out of memory": (fail(MemoryError()), MemoryError),
    "exit": (fail(SystemExit(1)), RuntimeError),
    "interrupt": (fail(KeyboardInterrupt()), RuntimeError),
    "no outputs": (lambda timeout: None, AttributeError),
    "too few rows": (lambda timeout: {"translation": np.zeros(0)}, ValueError),
    "no array": (lambda timeout: {"translation": 5}, TypeError),
    "deadline": (fail(TimeoutError()), TimeoutError),
}


@pytest.mark.parametrize("name", FAILURES)
def test_any_failure_affects_only_its_own_request(session, gated, name):
    """The thread survives too: the next request is answered."""
    failure, expected = FAILURES[name]
    failing = Failing(session, {"bad": failure})
    gate = gated(failing)
    first = gate.occupy()
    lines = ["The dog.", "bad", "A cat."]
    answers = [gate.ask(line) for line in lines]
    gate.finish(first, *answers)
    assert failing.calls[1:] == [lines, *([line] for line in lines)]
    assert isinstance(answers[1].exception(), expected)
    for index in (0, 2):
        alone = session.run("serving_default", text(lines[index]))["translation"]
        assert answers[index].result()["translation"].tolist() == alone.tolist()
    assert gate.batcher.alive
    assert gate.ask("again").result(60)


class Timed:
    """A session that computes only single requests, and records the timeout of each call."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def run(self, signature, inputs, timeout):
        self.timeouts.append(timeout)
        if len(inputs["text"]) > 1:
            raise TimeoutError
        return {"translation": inputs["text"]}


def test_a_deadline_leaves_time_for_each_request_alone(gated):
    gate = gated(Timed(), deadline=60.0)
    first = gate.occupy()
    answers = [gate.ask("a") for _ in range(4)]
    gate.finish(first, *answers)
    assert all(answer.result() for answer in answers)
    shares = [60, 60 / 2, 60 / 4, 60 / 3, 60 / 2, 60]  # the first, the batch, one by one
    assert gate.session.timeouts == pytest.approx(shares, rel=0.2)


def test_a_request_past_its_deadline_is_not_computed(session, gated):
    gate = gated(session, deadline=0.2)
    first = gate.occupy()
    late = gate.ask("late")
    time.sleep(0.3)
    gate.permits.release()
    assert isinstance(late.exception(60), TimeoutError)
    assert gate.rows == [("serving_default", 1)]
    assert first.done()


def test_batches_are_limited_in_positions(gate):
    first = gate.occupy()
    answers = [gate.ask("a", longest=size) for size in (40, 30, 10, 101, 40)]
    gate.finish(first, *answers)
    # Of 100 positions, 40 and 30 need 2 x 40; a third row would make it 120.
    assert [rows for _, rows in gate.rows] == [1, 2, 2, 1]


def test_two_streams_compute_two_batches_at_the_same_time(session, gated):
    gate = gated(session, streams=2, rows=1)
    first, second = gate.occupy(), gate.occupy()
    third = gate.ask("third")
    assert not gate.begun.acquire(timeout=0.1)  # it waits for a stream
    gate.finish(first, second, third)
    assert gate.rows == [("serving_default", 1)] * 3
    gate.batcher.close()
    assert not gate.batcher.alive


def test_no_request_waits_for_a_crashed_thread(gate, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(gate.batcher, "_fits", lambda batch, one: 1 / 0)
    answer = gate.ask("a")
    with pytest.raises(CancelledError):
        answer.result(60)
    gate.batcher.close()
    assert not gate.batcher.alive
    with pytest.raises(ClosedError):
        gate.ask("b")


def test_a_full_queue_refuses_requests_until_it_empties(gate):
    first = gate.occupy()
    answers = [gate.ask("a", "b") for _ in range(4)]
    with pytest.raises(QueueFullError):
        gate.ask("one too many")
    gate.finish(first, *answers)
    assert gate.ask("again").result(60)


def test_an_empty_queue_takes_a_request_larger_than_itself(gate):
    """Otherwise it could never be answered."""
    first = gate.occupy()
    large = gate.ask(*"abcdefghi")
    with pytest.raises(QueueFullError):
        gate.ask("a")
    gate.finish(first, large)


def test_cancelled_requests_are_not_computed_and_take_no_room(gate):
    first = gate.occupy()
    cancelled = [gate.ask(*"abcd") for _ in range(2)]
    assert all(answer.cancel() for answer in cancelled)
    kept = [gate.ask(*"ab") for _ in range(3)]
    cancelled.append(kept.pop(0))
    assert cancelled[-1].cancel()
    gate.finish(first, *cancelled, *kept)
    assert gate.rows == [("serving_default", 1), ("serving_default", 4)]


def test_closing_cancels_waiting_requests(session, gated):
    gate = gated(session)
    first = gate.occupy()
    waiting = gate.ask("a")
    gate.permits.release()
    threading.Timer(0.2, gate.permits.release).start()
    gate.batcher.close()
    assert first.done()
    assert waiting.cancelled() or waiting.result()
    with pytest.raises(ClosedError):
        gate.ask("late")


def test_refusing_new_requests_still_answers_waiting_ones(session, gated):
    gate = gated(session)
    first = gate.occupy()
    waiting = gate.ask("a")
    gate.batcher.refuse()
    with pytest.raises(ClosedError):
        gate.ask("late")
    gate.finish(first, waiting)
    assert len(waiting.result()["translation"]) == 1
