"""The clients against servers on real sockets: concurrent requests, errors, deadlines."""

import http.server
import socketserver
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from command_line import status_of

pytest.importorskip("tensorflow_serving.apis")

from tf_transformer.cli.main import main
from tf_transformer.serving.client import (
    GrpcClient,
    RestClient,
    ServerError,
    best_answers,
    patiently,
)
from tf_transformer.serving.translations import requests
from tools.storm.lab import stdin_of


@pytest.fixture(scope="module")
def rest_url(port) -> str:
    return f"http://127.0.0.1:{port}/"


@pytest.fixture(params=["grpc", "rest"])
def make(request, grpc_server, rest_url):
    """`make(model, deadline)`: a client of either kind."""
    kind, address = (
        (GrpcClient, grpc_server[1]) if request.param == "grpc" else (RestClient, rest_url)
    )
    return lambda model="small", deadline=60.0: kind(address, model, deadline)


def test_the_warm_up_file_is_replayed(grpc_server, translator):
    assert grpc_server[0].warm == len(requests(translator)) > 6


def test_concurrent_requests_get_their_own_answers(make, translator, trained_run):
    lines = trained_run.lines("train.en")[:40]
    client = make()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda line: best_answers(client, [line, ""]), lines))
    expected = [[found[0].text, ""] for found in translator.translate(lines)]
    assert answers == expected


def test_every_signature_answers(make, translator):
    client = make()
    for request in requests(translator):
        inputs = {name: values.tolist() for name, values in request.inputs.items()}
        outputs = client.predict(request.signature, inputs)
        assert all(len(values) == 2 for values in outputs.values())


@pytest.mark.parametrize(
    ("model", "signature", "inputs", "codes"),
    [
        ("other", "serving_default", {"text": ["a"]}, ("NOT_FOUND", "404")),
        ("small", "nope", {"text": ["a"]}, ("FAILED_PRECONDITION", "400")),
        ("small", "serving_default", {"text": [1]}, ("INVALID_ARGUMENT", "400")),
        ("small", "serving_default", {"txt": ["a"]}, ("INVALID_ARGUMENT", "400")),
        ("small", "serving_default", {"text": [["a"]]}, ("INVALID_ARGUMENT", "400")),
    ],
)
def test_errors_carry_the_servers_code(make, model, signature, inputs, codes):
    with pytest.raises(ServerError) as raised:
        make(model).predict(signature, inputs)
    assert raised.value.code in codes


def test_a_deadline_ends_the_wait(make):
    with pytest.raises(ServerError) as raised:
        best_answers(make(deadline=1e-3), ["A dog and a cat."] * 8)
    assert raised.value.code in ("DEADLINE_EXCEEDED", "DEADLINE")


def test_an_absent_server_is_not_retried():
    free_port = 1
    for client in (
        GrpcClient(f"127.0.0.1:{free_port}", "small", 5.0),
        RestClient(f"http://127.0.0.1:{free_port}", "small", 5.0),
    ):
        start = time.monotonic()
        with pytest.raises(ServerError) as raised:
            patiently(lambda asked=client: best_answers(asked, ["a"]), 60.0)
        assert raised.value.code == "UNAVAILABLE"
        assert time.monotonic() - start < 30


@pytest.fixture
def saying():
    """`saying(*answers)`: the URL of a server that sends these bytes, the last ones forever."""
    servers = []

    def start(*answers: bytes) -> str:
        left = list(answers)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        servers.append(socketserver.TCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


OK = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"garbage\r\n\r\n", "UNAVAILABLE"),
        (OK + b"Content-Length: 100\r\n\r\n{", "UNAVAILABLE"),
        (OK + b"\r\nnonsense", "UNAVAILABLE"),
        (OK + b"\r\n[1]", "UNAVAILABLE"),
        (OK + b'\r\n{"outputs": ["a"]}', "INVALID_ANSWER"),
        (OK + b'\r\n{"outputs": {"score": [0.5]}}', "INVALID_ANSWER"),
        (OK + b'\r\n{"outputs": {"translation": []}}', "INVALID_ANSWER"),
        (OK + b'\r\n{"outputs": {"translation": ["a", "b"]}}', "INVALID_ANSWER"),
    ],
)
def test_an_invalid_answer_is_a_server_error(saying, answer, code):
    with pytest.raises(ServerError) as raised:
        best_answers(RestClient(saying(answer), "small", 10.0), ["a text"])
    assert raised.value.code == code


def test_texts_that_the_server_cut_are_counted(saying, caplog):
    answer = OK + b'\r\n{"outputs": {"translation": ["a", "b"], "source_cut": [true, false]}}'
    assert best_answers(RestClient(saying(answer), "small", 10.0), ["x", "y"]) == ["a", "b"]
    assert "texts cut at the length limit of the served model: 1" in caplog.text


BUSY = b"HTTP/1.0 503 Busy\r\nRetry-After: 0\r\n\r\n{}"
GOOD = OK + b'\r\n{"outputs": {"translation": ["ein Text"]}}'


def test_a_busy_server_is_retried(saying):
    client = RestClient(saying(BUSY, BUSY, GOOD), "small", 10.0)
    assert patiently(lambda: best_answers(client, ["a text"]), 10.0) == ["ein Text"]


@pytest.mark.parametrize(
    "answers",
    [
        [BUSY],
        [BUSY.replace(b"After: 0", b"After: 100"), GOOD],
        [BUSY.replace(b"After: 0", b"After: Fri, 31 Dec 1999 23:59:59 GMT"), GOOD],
        [BUSY.replace(b"Retry-After", b"X"), GOOD],
        [BUSY.replace(b"503", b"500"), GOOD],
    ],
    ids=["busy forever", "busy for too long", "a date", "no Retry-After", "an error"],
)
def test_a_server_is_not_retried_forever(saying, answers):
    client = RestClient(saying(*answers), "small", 10.0)
    with pytest.raises(ServerError, match="50[03]"):
        patiently(lambda: best_answers(client, ["a text"]), 0.3)


# --- The command -------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--grpc", "--rest"])
def test_client_translates_in_order(
    option, grpc_server, rest_url, translator, trained_run, capsys
):
    address = grpc_server[1] if option == "--grpc" else rest_url
    with stdin_of(trained_run.corpus / "dev.en"):
        assert main(["client", option, address, "--name", "small", "--batch", "3"]) == 0
    expected = [found[0].text for found in translator.translate(trained_run.lines("dev.en"))]
    assert capsys.readouterr().out.splitlines() == expected


def test_client_retries_a_busy_server(saying, grpc_server, translator, tmp_path, capsys):
    (tmp_path / "in").write_text("a text\n")
    service, address = grpc_server
    service.busy = 2
    for option, server in (("--rest", saying(BUSY, GOOD)), ("--grpc", address)):
        with stdin_of(tmp_path / "in"):
            assert main(["client", option, server, "--name", "small"]) == 0
    ((expected,),) = translator.translate(["a text"])
    assert capsys.readouterr().out.splitlines() == ["ein Text", expected.text]
    assert service.busy == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--rest REST --name other", "The server answered 404: "),
        ("--rest http://127.0.0.1:1 --name a", "The server answered UNAVAILABLE: "),
        ("--rest REST --name a --batch 0", "--batch must be an int from 1 to 1000000. Rec"),
    ],
)
def test_client_reports_errors_and_wrong_options(
    options, message, rest_url, trained_run, capsys
):
    arguments = options.replace("REST", rest_url).split()
    with stdin_of(trained_run.corpus / "dev.en"):
        assert status_of(["client", *arguments]) in (1, 2)
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_an_error_does_not_wait_for_the_other_requests(tmp_path, capsys):
    """One request fails while another waits for a busy server."""
    busy = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"wrong" in body:
                busy.wait(10)
            else:
                busy.set()
            self.send_response(404 if b"wrong" in body else 503)
            self.send_header("Retry-After", "4")
            self.end_headers()

        def log_message(self, *_):
            pass

    (tmp_path / "in").write_text("wrong\nright\n")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        arguments = ["client", "--rest", url, "--name", "small", "--batch", "1"]
        start = time.monotonic()
        with stdin_of(tmp_path / "in"):
            assert main([*arguments, "--deadline", "5"]) == 1
        assert time.monotonic() - start < 3
        server.shutdown()
    assert capsys.readouterr().err == "error: The server answered 404: \n"
