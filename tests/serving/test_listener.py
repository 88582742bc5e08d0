"""Connections that are held open, and how serving ends."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from http_calls import one_version, predict

pytest.importorskip("flask")
pytest.importorskip("waitress")

from tf_transformer.cli.export import bound_socket
from tf_transformer.serving.listener import Listener
from tf_transformer.serving.queue import RequestQueue
from tf_transformer.serving.server import make_app
from tf_transformer.serving.telemetry import Telemetry

CONNECTIONS = 8


@pytest.fixture
def listener(session, counter):
    """A server with few connections, which is not serving yet."""
    telemetry = Telemetry()
    queue = RequestQueue(session, counter, telemetry)
    app = make_app(one_version(session, counter, queue, telemetry), telemetry)
    listener = Listener(app, bound_socket("localhost", 0), 1 << 20, CONNECTIONS, idle=60)
    yield listener
    listener.close()
    queue.close(60)


def begin(listener, alive=lambda: True) -> threading.Thread:
    thread = threading.Thread(target=listener.serve, args=(alive,), daemon=True)
    thread.start()
    return thread


def connect(port: int, sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    one.sendall(sent)
    return one


def ask(port: int, *texts: str, signature: str = "serving_default") -> int:
    return predict(port, *texts, signature=signature)[0]


def test_closing_the_sockets_ends_serving(listener):
    """Otherwise its thread would spin and slow down all others."""
    serving = begin(listener)
    assert ask(listener.effective_port, "A dog.") == 200
    listener.close()
    serving.join(10)
    assert not serving.is_alive()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/models/small:pre"], ids=["nothing", "a part"])
def test_held_connections_give_way_to_new_ones(listener, sent):
    begin(listener)
    held = [connect(listener.effective_port, sent) for _ in range(5 * CONNECTIONS)]
    for one in held[-CONNECTIONS // 2 :]:
        one.sendall(b"x")  # a byte now and then does not help
    start = time.monotonic()
    assert [ask(listener.effective_port, "A dog.") for _ in range(3)] == [200] * 3
    assert time.monotonic() - start < listener.adj.channel_timeout / 2
    for one in held:
        one.close()


def test_a_request_in_progress_keeps_its_connection(listener):
    begin(listener)
    port = listener.effective_port
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, port, "The dog. " * 300, signature="nbest")
        while not listener.unanswered:
            assert not slow.done() or slow.result() == 200
            time.sleep(0.001)
        held = [connect(port) for _ in range(5 * CONNECTIONS)]
        assert slow.result(60) == 200
    for one in held:
        one.close()


def test_stopping_answers_accepted_requests_and_refuses_new_ones(listener):
    serving = begin(listener)
    port = listener.effective_port
    assert ask(port, "A dog.") == 200
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, port, *["The dog. " * 100] * 8, signature="nbest")
        while not listener.unanswered and not slow.done():
            time.sleep(0.001)
        listener.stop()
        serving.join(60)
        listener.drain(60.0)
        assert slow.result(60) == 200
    with pytest.raises(ConnectionRefusedError):
        ask(port, "A dog.")


def test_serving_ends_when_the_model_no_longer_computes(listener):
    begin(listener, alive=lambda: False).join(10)
    with connect(listener.effective_port, b"GET / HTTP/1.0\r\n\r\n") as one:
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one.recv(1)
