"""The size of requests, and the batches that a queue makes of them."""

import dataclasses
import functools
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from types import SimpleNamespace

import numpy as np
import pytest

from tf_transformer.config import Config, DecodingConfig
from tf_transformer.decoding.interface import ClosedError
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.serving.queue import (
    SHORT,
    BatchError,
    QueueFullError,
    RequestQueue,
    Telemetry,
    TokenCounter,
)

TEXTS = ["The dog.", "", "A red house and two cats.", "x" * 50, "One more."]


def text(*lines: str) -> dict[str, np.ndarray]:
    return {"text": np.array([line.encode() for line in lines], object)}


# --- Sizes -------------------------------------------------------------------------------


def test_tokens_are_counted_as_in_the_graph(counter, translator):
    for line in ("", "The dog.", "\ufdfa emoji 🙂", "word " * 60):
        ids, _ = translator.codec.encode(np.array([line.encode()], object))
        assert counter.read(text("", line)) == [1, len(ids[0])]


def test_rows_count_only_up_to_the_limit_of_the_model(counter):
    assert counter.read(text("a", "The dog. " * 5_000))[1] == counter.longest
    assert counter.read(text(" " * 99_999)) == [counter.longest]  # not worth counting
    assert counter.read({"tokens": np.full([2, 7], 5, "int32")}) == [7, 7]
    assert counter.read({"tokens": np.full([1, 9_999], 5, "int32")}) == [counter.longest]
    assert counter.read(text()) == []
    prefix = {"alpha": np.array([-1.0]), "prefix": np.array([b"der " * 300], object)}
    first, second = counter.read(text("a") | prefix)  # numbers do not count
    assert first < 5 and second > 300


def export_of(config: Config | None, **facts) -> SimpleNamespace:
    decoding = config.decoding if config else DecodingConfig()
    export = SimpleNamespace(config=config, card={}, decoding=decoding, **facts)
    export.limits = functools.partial(ExportEngine.limits, export)
    return export


@pytest.mark.parametrize(
    ("settings", "longest", "positions"),
    [
        (None, 1_074, 1_024),
        ({"decoding.beam_size": 2, "decoding.max_source_length": 100}, 150, 2_048),
        ({"model.positions": "learned", "model.max_length": 50}, 50, 1_024),
        (
            {
                "model.positions": "learned", "model.max_length": 50,
                "model.source_positions": 20, "model.target_positions": 40,
            },
            40, 1_024,
        ),
    ],
    ids=["none", "search", "learned positions", "positions that training reached"],
)  # fmt: skip
def test_limits_come_from_the_card(settings, longest, positions):
    config = None if settings is None else Config().replace(settings)
    counter = TokenCounter(export_of(config, longest_trained=None))
    assert (counter.longest, counter.positions) == (longest, positions)


def test_an_export_has_the_limits_of_its_translator(translator, counter):
    assert translator.decoding == DecodingConfig()
    assert counter.longest == translator.codec.target_limit


# --- Batches -----------------------------------------------------------------------------


class Words:
    """Counts words instead of tokens; a batch has at most 100 positions."""

    positions = 100

    def read(self, inputs) -> list[int]:
        return [len(line.split()) for line in next(iter(inputs.values())).ravel()]


@dataclasses.dataclass
class Gated:
    """A queue whose session waits for a permit before each batch, and records its texts."""

    session: object
    streams: int = 1
    counter: object = dataclasses.field(default_factory=Words)
    max_waiting: int = 256
    fails: Callable[[list[bytes]], object] | None = None

    def __post_init__(self) -> None:
        self.begun, self.permits = threading.Semaphore(0), threading.Semaphore(0)
        self.batches: list[tuple[str, list]] = []
        self.timeouts: list[float] = []
        self.queue = RequestQueue(
            self.run, self.streams, self.counter, Telemetry(), self.max_waiting
        )

    def run(self, signature, inputs, timeout):
        rows = next(iter(inputs.values())).tolist()
        self.batches.append((signature, rows))
        self.timeouts.append(timeout)
        self.begun.release()
        assert self.permits.acquire(timeout=60)
        if self.fails and b"bad" in rows:
            return self.fails()
        return self.session.run(signature, inputs, timeout=timeout)

    def ask(self, *lines: str, seconds: float = 60.0, document: bool = False) -> Future:
        return self.queue.submit("serving_default", text(*lines), seconds, document)

    def occupy(self, line: str = "first") -> Future:
        """Sends a request that is being computed, so that others must wait."""
        answer = self.ask(line)
        assert self.begun.acquire(timeout=60)
        return answer

    def finish(self, *answers: Future) -> None:
        """Lets the queue compute, and waits until all requests are answered."""
        self.permits.release(20)
        assert not wait([one for one in answers if not one.cancelled()], timeout=60).not_done

    @property
    def rows(self) -> list[int]:
        return [len(rows) for _, rows in self.batches]


@pytest.fixture
def gated():
    """`gated(session, streams=2)`: a queue, closed after the test."""
    opened = []

    def gated(*args, **kwargs) -> Gated:
        opened.append(Gated(*args, **kwargs))
        return opened[-1]

    yield gated
    for gate in opened:
        gate.permits.release(100)
        gate.queue.close(60)


@pytest.fixture
def gate(session, gated) -> Gated:
    return gated(session, max_waiting=8)


def test_waiting_requests_are_computed_together(session, gate):
    first = gate.occupy()
    answers = [gate.ask(line) for line in TEXTS]
    gate.finish(first, *answers)
    assert gate.rows == [1, 5]
    for line, answer in zip(TEXTS, answers, strict=True):
        alone = session.run("serving_default", text(line))
        assert answer.result()["translation"].tolist() == alone["translation"].tolist()
        assert answer.result()["score"] == pytest.approx(alone["score"], abs=1e-4)


def test_signatures_and_widths_are_not_mixed(session, gated, counter):
    gate = gated(session, counter=counter)
    first = gate.occupy()
    rows = [[5, 6, 3], [5, 6, 7, 8, 3], [9, 10, 3]]
    ids = [{"tokens": np.array([row], "int32")} for row in rows]
    answers = [gate.queue.submit("tokens", one, 60.0) for one in ids[:2]]
    other = gate.queue.submit("nbest", text("The dog."), 60.0)
    answers.append(gate.queue.submit("tokens", ids[2], 60.0))
    gate.finish(first, other, *answers)
    found = [(signature, len(rows)) for signature, rows in gate.batches[1:]]
    assert found == [("tokens", 2), ("tokens", 1), ("nbest", 1)]
    for one, answer in zip(ids, answers, strict=True):
        size = answer.result()["num_tokens"][0]
        alone = session.run("tokens", one)["tokens"][0]
        assert answer.result()["tokens"][0, :size].tolist() == alone[:size].tolist()


def test_batches_are_limited_in_positions(gate):
    first = gate.occupy()
    answers = [gate.ask("a " * size) for size in (40, 30, 10, 40)]
    gate.finish(first, *answers)
    # Of 100 positions, 40 and 30 need 2 x 40; a third row would make it 120.
    assert gate.rows == [1, 2, 2]


def test_batches_are_limited_in_rows(session, gated):
    gate = gated(session)
    first = gate.occupy()
    answers = [gate.ask(*"abcdefghijkl") for _ in range(3)]
    gate.finish(first, *answers)
    assert gate.rows == [1, 24, 12]


def test_two_streams_compute_two_batches_at_the_same_time(session, gated):
    gate = gated(session, streams=2)
    first, second = gate.occupy(), gate.occupy()
    third = gate.ask("third")
    assert not gate.begun.acquire(timeout=0.1)  # it waits for a stream
    gate.finish(first, second, third)
    assert gate.rows == [1, 1, 1]
    gate.queue.close(60)
    assert not gate.queue.alive


@pytest.mark.parametrize("long", [["a " * 101], ["a " * 50] * 3])
def test_no_request_waits_for_those_larger_than_a_batch(session, gated, long):
    gate = gated(session, streams=2)
    slow = gate.ask(*long)
    assert gate.begun.acquire(timeout=60)
    queued = gate.ask(*long)
    assert not gate.begun.acquire(timeout=0.1)
    other = gate.ask("other")
    assert gate.begun.acquire(timeout=60)
    assert gate.batches[1][1] == [b"other"]
    gate.finish(slow, queued, other)
    assert gate.rows == [len(long), 1, len(long)]


def test_every_stream_takes_long_texts_that_fit_a_batch(session, gated):
    gate = gated(session, streams=2)
    gate.counter.positions = 1_000
    answers = [gate.ask("a " * 600) for _ in range(2)]
    assert all(gate.begun.acquire(timeout=60) for _ in answers)
    gate.finish(*answers)


def test_long_texts_do_not_widen_batches_of_short_ones(session, gated):
    """One stream computes requests in their order, but for those that fit beside others."""
    gate = gated(session)
    gate.counter.positions = 1_000
    first = gate.occupy()
    long = " a" * (SHORT + 1)
    answers = [gate.ask(line) for line in (f"a{long}", "b", f"c{long}", "d")]
    gate.finish(first, *answers)
    orders = [[row.decode()[0] for row in rows] for _, rows in gate.batches]
    assert orders == [["f"], ["a", "c"], ["b", "d"]]


def test_documents_and_other_requests_are_computed_in_turn(gate):
    """Documents wait as long as it takes, and take no room that others need."""
    first = gate.occupy()
    documents = [gate.ask(f"long {n}" + " a" * 50, document=True) for n in range(5)]
    others = [gate.ask(f"short {n}" + " a" * 50) for n in range(3)]
    assert gate.queue.waiting == 3
    gate.finish(first, *documents, *others)
    orders = [rows[0][:7].decode().strip() for _, rows in gate.batches[1:]]
    assert orders == [
        "long 0", "short 0", "long 1", "short 1", "long 2", "short 2", "long 3", "long 4",
    ]  # fmt: skip
    assert set(gate.timeouts[1::2]) == {60.0}  # from when it is computed


# --- Failures ----------------------------------------------------------------------------


def fail(error: BaseException):
    def raise_it():
        raise error

    return raise_it


FAILURES = {
    "error": fail(AttributeError("a bug")),
    "exit": fail(SystemExit(1)),
    "no outputs": lambda: None,
    "too few rows": lambda: {"translation": np.zeros(0)},
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_batch_that_fails_fails_all_its_requests_and_no_other(session, gated, name, caplog):
    """It is not computed again."""
    gate = gated(session, fails=FAILURES[name])
    first = gate.occupy()
    answers = [gate.ask(line) for line in ("The dog.", "bad", "A cat.")]
    gate.finish(first, *answers)
    assert [type(one.exception()) for one in answers] == [BatchError] * 3
    assert [record.message for record in caplog.records] == ["a batch of 3 requests failed"]
    assert gate.rows == [1, 3]
    assert gate.queue.alive
    assert gate.ask("again").result(60)


def test_a_batch_past_its_deadline_is_a_timeout(session, gated, caplog):
    gate = gated(session, fails=fail(TimeoutError()))
    first = gate.occupy()
    late = gate.ask("bad")
    gate.finish(first, late)
    assert isinstance(late.exception(), TimeoutError) and not caplog.records


def test_a_batch_has_the_time_of_its_most_patient_request(gate):
    first = gate.occupy()
    answers = [gate.ask("a", seconds=seconds) for seconds in (20.0, 90.0, 50.0)]
    gate.finish(first, *answers)
    assert gate.timeouts == pytest.approx([60.0, 90.0], abs=5)


def test_no_request_waits_for_a_crashed_thread(gate, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    first = gate.occupy()
    answers = [gate.ask("a"), gate.ask("b")]
    gate.counter.positions = None  # as a bug in the queue itself
    gate.permits.release(10)
    for answer in answers:
        with pytest.raises(CancelledError):
            answer.result(60)
    assert first.done() and not gate.queue.alive
    gate.counter.positions = 100
    with pytest.raises(ClosedError):
        gate.ask("b")


# --- The queue ---------------------------------------------------------------------------


def test_a_full_queue_refuses_requests_until_it_empties(gate):
    first = gate.occupy()
    answers = [gate.ask("a", "b") for _ in range(4)]
    assert gate.queue.waiting == 8
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
    assert kept.pop(0).cancel()
    assert gate.ask("gone", document=True).cancel()
    kept.append(gate.ask("document", document=True))
    gate.finish(first, *kept)
    assert gate.rows == [1, 1, 4]  # a document's turn is not that of a cancelled one


def test_closing_cancels_waiting_requests(gate):
    first = gate.occupy()
    waiting = gate.ask("a")
    threading.Timer(0.2, gate.permits.release).start()
    gate.queue.close(60)
    assert first.done() and waiting.cancelled()
    with pytest.raises(ClosedError):
        gate.ask("late")


def test_refusing_new_requests_still_answers_waiting_ones(session, gated):
    gate = gated(session, streams=2)
    first, second = gate.occupy("a " * 200), gate.occupy()
    waiting = [gate.ask("a " * 200), gate.ask("b")]
    gate.queue.refuse()
    with pytest.raises(ClosedError):
        gate.ask("late")
    gate.finish(first, second, *waiting)
    assert all(len(one.result()["translation"]) == 1 for one in waiting)


def test_limits_are_those_of_the_codec_of_an_export():
    """Of an ensemble the least, which the configuration of its first run does not tell."""
    sizes = {"max_source_tokens": 20, "max_target_tokens": 30}
    engine = SimpleNamespace(config=Config(), card={"sizes": sizes})
    assert ExportEngine.limits(engine, DecodingConfig()) == (20, 30)
    engine.card = {}
    assert ExportEngine.limits(engine, DecodingConfig()) == (1024, 1074)
