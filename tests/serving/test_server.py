"""The HTTP server on a real socket: what it answers, and what it survives."""

import json
import logging
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
import pytest
from http_calls import PREDICT, body_of, call, one_version, predict

pytest.importorskip("flask")
pytest.importorskip("waitress")

from tf_transformer.cli.export import bound_socket
from tf_transformer.errors import UserError
from tf_transformer.serving.loaded import LoadedVersion, ServedModel
from tf_transformer.serving.queue import RequestQueue
from tf_transformer.serving.server import make_app
from tf_transformer.serving.telemetry import Telemetry


@pytest.fixture(scope="module")
def port(start) -> int:
    return start(max_body=20_000, idle=2)


@pytest.fixture
def client_of(counter):
    """`client_of(session, max_waiting=1)`: a client of the application, without a network."""
    queues = []

    def client_of(session, deadline: float = 30.0, max_waiting: int = 256):
        telemetry = Telemetry()
        queues.append(RequestQueue(session, counter, telemetry, max_waiting))
        model = one_version(session, counter, queues[-1], telemetry)
        return make_app(model, telemetry, deadline=deadline).test_client()

    yield client_of
    for queue in queues:
        queue.close(60)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/small", 200),
        ("GET", "/v1/models/small/versions/1", 200),
        ("GET", "/v1/models/small/metadata", 200),
        ("GET", "/v1/models/small/versions/1/metadata", 200),
        ("GET", "/v1/models/small/versions/2", 404),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/small/versions/2:predict", 404),
        ("GET", PREDICT, 405),
        ("POST", "/v1/models/small", 405),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/" + "x" * 5_000, 404),
    ],
)
def test_paths_are_those_of_tf_serving(port, method, path, status):
    found, _, text = call(port, method, path)
    assert found == status
    assert ("error" in json.loads(text)) == (status != 200)


def test_concurrent_requests_get_their_own_answers(port, translator, trained_run):
    lines = trained_run.lines("train.en")[:40]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda line: predict(port, line, ""), lines))
    expected = [[found, ""] for found in translator.translate(lines)]
    translations = [[row["translation"] for row in rows["predictions"]] for _, rows in answers]
    assert translations == expected


def test_refusals_give_their_reason_in_json(port):
    """Even to requests that never reach the application."""
    for path, body, status, message in (
        (PREDICT, b"x" * 20_000, 400, "must be JSON"),
        (PREDICT, body_of(*["a"] * 33), 400, "at most 32 rows"),
        (PREDICT, b"x" * 20_001, 413, "must have at most 20000 bytes (--max-body)."),
        ("/" + "x" * 20_000, None, 431, "Request Header Fields Too Large: exceeds max_header"),
    ):
        found, headers, text = call(port, "POST", path, body)
        assert (found, headers["Content-Type"]) == (status, "application/json")
        assert message in json.loads(text)["error"]


class Wrapped:
    """A session that computes by calling `run`."""

    streams = 1

    def __init__(self, session, run) -> None:
        self.signatures, self.signature = session.signatures, session.signature
        self._run = run

    def run(self, signature, inputs, timeout):
        return self._run(signature, inputs, timeout=timeout)


def test_requests_beyond_the_queue_are_asked_to_come_back(session, client_of):
    begun, ended = threading.Semaphore(0), threading.Event()

    def run(signature, inputs, timeout):
        begun.release()
        assert ended.wait(60)
        return session.run(signature, inputs, timeout=timeout)

    client = client_of(Wrapped(session, run), max_waiting=2)
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(client.post, PREDICT, data=body_of("a", "b"))]
        assert begun.acquire(timeout=60)
        asked += [pool.submit(client.post, PREDICT, data=body_of("a", "b")) for _ in range(2)]
        refused = next(as_completed(asked)).result()  # one of the two that find it occupied
        ended.set()
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert sorted(one.result().status_code for one in asked) == [200, 200, 503]


def test_an_answer_past_the_deadline_is_abandoned(start):
    hurried = start(deadline=1e-4)
    assert predict(hurried, "A long sentence of many words.")[0] == 504


def test_a_computation_that_takes_too_long_is_cancelled(session, client_of):
    ended = []

    def run(signature, inputs, timeout):
        try:
            return session.run(signature, inputs, timeout=timeout)
        finally:
            ended.append(time.monotonic())

    client, begun = client_of(Wrapped(session, run), deadline=0.1), time.monotonic()
    texts = ["A dog. " * 400] * 32
    assert client.post(PREDICT, data=body_of(*texts, signature="nbest")).status_code == 504
    while not ended:
        assert time.monotonic() - begun < 60
        time.sleep(0.01)


def test_a_batch_that_fails_is_logged_and_its_clients_are_asked_to_come_back(
    session, client_of, caplog
):
    def run(signature, inputs, timeout):
        raise RuntimeError("a secret of the server")

    answer = client_of(Wrapped(session, run)).post(PREDICT, data=body_of("a"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_a_bug_is_logged_but_not_shown_to_clients(session, counter, caplog):
    class Broken:
        def submit(self, *_):
            raise RuntimeError("a secret of the server")

    telemetry = Telemetry()
    model = one_version(session, counter, Broken(), telemetry)
    answer = make_app(model, telemetry).test_client().post(PREDICT, data=body_of("a"))
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_a_stopping_server_asks_clients_to_come_back(session, counter):
    telemetry = Telemetry()
    queue = RequestQueue(session, counter, telemetry)
    model = one_version(session, counter, queue, telemetry)
    queue.close(60)
    answer = make_app(model, telemetry).test_client().post(PREDICT, data=body_of("a"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_a_server_with_a_version_is_healthy_and_ready(port):
    assert [call(port, "GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_server_without_a_version_yet_is_alive_but_not_ready():
    telemetry = Telemetry()
    client = make_app(ServedModel("small", dict, None, telemetry), telemetry).test_client()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert client.get("/v1/models/small").json == {"model_version_status": []}
    answer = client.post(PREDICT, data=body_of("a"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_waitress_does_not_log_waiting_requests(port):
    assert not logging.getLogger("waitress.queue").isEnabledFor(logging.WARNING)
    assert not logging.getLogger("waitress").isEnabledFor(logging.WARNING)


def test_a_host_with_several_addresses_is_refused():
    with pytest.raises(UserError, match="resolves to 127.0.0.1 and ::1. Give --host"):
        bound_socket("", 0)


def test_the_page_connects_only_to_this_server(port):
    status, headers, html = call(port, "GET", "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert 'const model = "small";' in html


# --- Hostile clients ---------------------------------------------------------------------

HEAD = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n"
ATTACKS = {
    "silence": b"",
    "garbage": os.urandom(1000),
    "half a line": b"POST /v1/mod",
    "half a head": HEAD.encode(),
    "half a body": f"{HEAD}Content-Length: 100\r\n\r\n{{".encode(),
    "a long head": f"{HEAD}X: {'x' * 100_000}".encode(),
    "an endless body": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    + b"4000\r\n" + b"x" * 0x4000 + b"\r\n4000\r\n" + b"x" * 0x4000,
    "a negative length": f"{HEAD}Content-Length: -5\r\n\r\n".encode(),
    "two lengths": f"{HEAD}Content-Length: 5\r\nContent-Length: 9\r\n\r\n".encode(),
    "another encoding": f"{HEAD}Transfer-Encoding: gzip\r\n\r\n".encode(),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_hostile_clients_are_disconnected_and_others_served(port, attack):
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(10)]
    for one in sockets:
        one.sendall(attack)
    assert predict(port, "A dog.")[0] == 200
    for one in sockets:
        with one:
            deadline = time.monotonic() + 20
            try:
                while one.recv(65_536):
                    assert time.monotonic() < deadline
            except ConnectionResetError:
                pass


# --- Classifiers -------------------------------------------------------------------------


def test_exports_of_classifiers_are_served(exported_classifier):
    telemetry = Telemetry()
    version = LoadedVersion(1, exported_classifier, telemetry)
    model = ServedModel(
        "other", lambda: {1: exported_classifier}, lambda *_: version, telemetry
    )
    model.update()
    texts = ["the dog sees a cat .", "", "we saw the cat . " * 40]
    client = make_app(model, telemetry).test_client()
    answer = client.post("/v1/models/other:predict", json={"inputs": {"text": texts}})
    expected = version.session.run("serving_default", {"text": np.array(texts, object)})
    answers = [text.encode() for text in answer.json["outputs"]["label"]]
    assert answers == expected["label"].tolist()
    model.close()
