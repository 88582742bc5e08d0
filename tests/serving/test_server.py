"""The HTTP server on a real socket: what it answers, and what it survives."""

import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from command_line import ROOT, TF_TRANSFORMER, environment, status_of
from http_calls import PREDICT, call, one_version, predict

pytest.importorskip("flask")
pytest.importorskip("waitress")

from prometheus_client.parser import text_string_to_metric_families

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.errors import UserError
from tf_transformer.serving.batcher import BatchLimits
from tf_transformer.serving.client import best_answers
from tf_transformer.serving.lanes import Lanes, Meter, TokenLimits
from tf_transformer.serving.loaded import LoadedVersions, load_version
from tf_transformer.serving.server import Limits, make_app, make_server
from tf_transformer.serving.telemetry import AccessLog


@pytest.fixture(scope="module")
def port(start) -> int:
    return start(Limits(body_bytes=20_000, idle=2))


def test_a_translation_is_the_models(port, session, trained_run):
    lines = trained_run.lines("train.en")[:3]
    status, answer = predict(port, *lines)
    expected = session.run("serving_default", {"text": np.array(lines, object)})
    assert status == 200
    translations = [row["translation"].encode() for row in answer["predictions"]]
    assert translations == expected["translation"].tolist()


def test_many_at_once_get_their_own_answers(port, session, trained_run):
    lines = trained_run.lines("train.en")[:40]
    expected = {
        line: session.run("serving_default", {"text": np.array([line], object)})
        for line in lines
    }
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda line: predict(port, line), lines))
    for line, (status, answer) in zip(lines, answers, strict=True):
        assert status == 200
        (row,) = answer["predictions"]
        assert row["translation"].encode() == expected[line]["translation"][0]


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


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"nonsense", 400, "must be JSON"),
        (b'{"instances": [1]}', 400, "text must be a string. Received: 1."),
        (b'{"signature_name": "x", "instances": []}', 400, "no signature 'x'"),
        (json.dumps({"instances": ["a"] * 33}).encode(), 400, "at most 32 rows"),
    ],
)
def test_a_bad_request_is_told_why(port, body, status, message):
    found, _, text = call(port, "POST", PREDICT, body)
    assert found == status
    assert message in json.loads(text)["error"]


def test_what_never_reaches_the_application_is_told_in_json_too(port):
    for path, body, status, message in (
        (PREDICT, b"x" * 20_000, 400, "must be JSON"),
        (PREDICT, b"x" * 20_001, 413, "must have at most 20000 bytes (--max-body)."),
        ("/" + "x" * 20_000, None, 431, "Request Header Fields Too Large: exceeds max_header"),
    ):
        found, headers, text = call(port, "POST", path, body)
        assert (found, headers["Content-Type"]) == (status, "application/json")
        assert message in json.loads(text)["error"]


def test_too_much_work_is_refused_for_now(start):
    crowded = start(Limits(), waiting=1)
    connection = call(crowded, "POST", PREDICT, json.dumps({"instances": ["a", "b"]}))
    assert connection[0] == 503
    assert connection[1]["Retry-After"] == "1"
    assert predict(crowded, "a")[0] == 200


def test_an_answer_that_takes_too_long_is_given_up(start):
    hurried = start(Limits(deadline=1e-4))
    assert predict(hurried, "A long sentence of many words.")[0] == 504


def test_a_computation_that_takes_too_long_is_ended(session, make_lanes):
    lanes = make_lanes(deadline=1e-2)
    client = make_app(one_version(session, lanes), "small", Limits(deadline=60)).test_client()
    answer = client.post(PREDICT, data=json.dumps({"instances": ["A dog. " * 50] * 32}))
    assert answer.status_code == 504
    lanes.close()


def test_a_prefix_that_no_translation_can_have_is_refused(port):
    row = {"text": "A dog.", "alpha": -1.0, "max_length": 5, "prefix": "Ein Hund. " * 1_000}
    status, answer = predict(port, row, signature="with_options")
    assert status == 400
    assert re.match(
        r"`prefix` must have at most 1073 tokens, .* Received: \d{4} tokens", answer["error"]
    )


class Broken:
    """A session with an error of ours in it."""

    def __init__(self, session) -> None:
        self.signatures, self.signature = session.signatures, session.signature
        self.tokenizers = session.tokenizers

    def run(self, signature, inputs, timeout):
        raise RuntimeError("a secret of the server")


def test_an_error_of_ours_is_not_shown(session, caplog):
    broken = Broken(session)
    lanes = Lanes(broken, Meter(broken, TokenLimits(1_074, 1_024)), BatchLimits())
    client = make_app(one_version(broken, lanes), "small", Limits()).test_client()
    answer = client.post(PREDICT, data=json.dumps({"instances": ["a"]}))
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret" in caplog.text
    lanes.close()


def test_a_closed_server_is_unavailable_for_now(session, make_lanes):
    lanes = make_lanes()
    lanes.close()
    client = make_app(one_version(session, lanes), "small", Limits()).test_client()
    answer = client.post(PREDICT, data=json.dumps({"instances": ["a"]}))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


# --- What an operator sees --------------------------------------------------------------


def test_health_and_readiness(port):
    assert [call(port, "GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_server_without_a_version_yet_is_alive_but_not_ready():
    client = make_app(LoadedVersions(dict, None, "small"), "small", Limits()).test_client()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert client.get("/v1/models/small").json == {"model_version_status": []}
    answer = client.post(PREDICT, data=json.dumps({"instances": ["a"]}))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_metrics_count_what_was_asked(start):
    log = io.StringIO()
    port = start(Limits(), access_log=AccessLog("all", log))
    predict(port, "The dog.", "A cat.")
    call(port, "POST", PREDICT, b"nonsense", **{"X-Request-Id": "mine-7"})
    call(port, "GET", "/nowhere", **{"X-Request-Id": 'not "plain"'})
    status, headers, text = call(port, "GET", "/monitoring/prometheus/metrics")
    assert (status, headers.get_content_type()) == (200, "text/plain")
    values = {
        f"{each.name}{sorted(each.labels.values())}": each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }
    for name, value in {
        "requests_total['200', 'serving_default']": 1,
        "requests_total['400', 'predict']": 1,
        "requests_total['404', 'unknown']": 1,
        "refused_total['bad request']": 1,
        "request_seconds_count['serving_default']": 1,
        "batch_rows_sum[]": 2,
        "waiting_rows['short']": 0,
        "version[]": 1,
    }.items():
        assert values[f"tf_transformer_{name}"] == value, name
    assert values["tf_transformer_tokens_read_total[]"] >= 4
    assert values["tf_transformer_tokens_written_total[]"] >= 2
    assert values["process_resident_memory_bytes[]"] > 1e6

    good, bad, lost, _ = map(json.loads, log.getvalue().splitlines())
    assert (good["status"], good["signature"], good["path"]) == (
        200,
        "serving_default",
        PREDICT,
    )
    assert (bad["status"], bad["request_id"]) == (400, "mine-7")
    assert bad["error"].startswith("The body must be JSON")
    assert re.fullmatch("[0-9a-f]{32}", lost["request_id"])


@pytest.mark.parametrize(("level", "logged"), [("off", []), ("errors", [400])])
def test_the_access_log_has_levels(level, logged):
    stream = io.StringIO()
    log = AccessLog(level, stream)
    log.write(200, {"path": "/"})
    log.write(400, {"path": "/", "error": None})
    log.write(503, {"path": "/readyz"})
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == logged


# --- The page ----------------------------------------------------------------------------


def test_the_page_may_ask_nobody_but_this_server(port):
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
def test_a_hostile_client_is_shut_out_and_others_served(port, attack):
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


# --- The command -------------------------------------------------------------------------


def test_a_request_that_waits_for_a_thread_is_no_event(port):
    assert not logging.getLogger("waitress.queue").isEnabledFor(logging.WARNING)
    assert not logging.getLogger("waitress").isEnabledFor(logging.WARNING)


def test_serve_follows_versions_and_ends_when_told(exported, tmp_path):
    """A version beside the first, without a gap; then SIGTERM during a long computation."""
    model = tmp_path / "small"
    shutil.copytree(exported, model / "1")
    shutil.copytree(exported, tmp_path / "next")
    command = [*TF_TRANSFORMER, "serve", str(model), "--port", "0", "--grace", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment()
    ) as process, ThreadPoolExecutor() as pool:  # fmt: skip
        line = "".join(process.stdout.readline().decode() for _ in range(2))
        serving = r"serving small version {} on http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n"
        found = re.fullmatch(f"loading {model / '1'}\n{serving.format(1)}", line)
        if not found:
            process.kill()
        assert found, line + process.stderr.read().decode()
        port = int(found[1])
        (tmp_path / "next").rename(model / "2")
        second = pool.submit(process.stdout.readline)
        while not second.done():
            assert predict(port, "A dog.")[0] == 200
        assert re.fullmatch(serving.format(2), second.result().decode())
        states = json.loads(call(port, "GET", "/v1/models/small")[2])["model_version_status"]
        assert [(each["version"], each["state"]) for each in states] == [
            ("2", "AVAILABLE"), ("1", "AVAILABLE"),
        ]  # fmt: skip

        slow = pool.submit(predict, port, *["The dog. " * 400] * 32, signature="nbest")
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert slow.result(60)[0] == 503
        assert process.wait(30) == 0
        assert time.monotonic() - start < 15
        *lines, logged, last = process.stdout.read().decode().splitlines()
        assert lines == [
            "stopping: requests to answer: 1", "requests not answered in 0.5 s: 1",
        ]  # fmt: skip
        assert json.loads(logged)["status"] == 503
        assert last == "stopped"
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--port -1", "--port must be an int from 0 to 65535. Received: -1"),
        ("--port 65536", "--port must be an int from 0 to 65535. Received: 65536"),
        ("--deadline 0", "--deadline must be from 0.001 to 86400.0. Received: 0.0"),
        ("--deadline nan", "--deadline must be from 0.001 to 86400.0. Received: nan"),
        ("--deadline inf", "--deadline must be from 0.001 to 86400.0. Received: inf"),
        ("--max-body 0", "--max-body must be an int from 1 to "),
        ("--max-waiting 0", "--max-waiting must be an int from 1 to "),
        ("--grace -1", "--grace must be from 0.0 to 86400.0. Received: -1.0"),
        ("--port 0 --host no.such.host.invalid", "Cannot listen on no.such.host.invalid:0: "),
        ("--port 0 --host ''", "--host must not be empty"),
        ("--port 0 --name 'a b'", "A model's name must consist of letters, .*Received: 'a b'"),
        ("--port TAKEN", "Cannot listen on 127.0.0.1:[0-9]+: Address already in use"),
    ],
)
def test_serve_refuses_what_it_cannot_do(exported, port, arguments, message, capsys):
    arguments = shlex.split(arguments.replace("TAKEN", str(port)))
    assert status_of(["serve", str(exported), *arguments]) in (1, 2)
    assert re.fullmatch(f"error: .*{message}.*\n", capsys.readouterr().err)


def test_a_host_of_several_addresses_is_refused():
    with pytest.raises(UserError, match="resolves to 127.0.0.1 and ::1. Give --host"):
        make_server(None, "", 0, Limits())


def test_an_end_before_the_beginning_leaves_no_batcher(exported, port):
    before = set(threading.enumerate())
    assert main(["serve", str(exported), "--port", str(port)]) == 1
    begun = [one.name for one in set(threading.enumerate()) - before]
    assert "batcher" not in begun


def test_the_folder_of_several_exports_is_refused_with_the_name_of_one(exported, capsys):
    model = exported.parent
    assert main(["serve", str(model.parent)]) == 1
    assert capsys.readouterr().err == (
        f"error: {model.parent} is neither a run directory nor an export. Give an export in "
        f"it, such as {model}.\n"
    )


def test_serve_says_at_once_that_a_run_is_exported(trained_run, monkeypatch, capsys):
    """Before TensorFlow is imported; the name of a missing host ends it early."""
    path = trained_run.path
    assert main(["serve", str(path), "--port", "0", "--host", "no.such.host.invalid"]) == 1
    first = f"exporting {path} and testing the export: about a minute"
    assert capsys.readouterr().out.splitlines()[0] == first


def test_serve_names_what_it_needs(exported):
    """In a process in which flask cannot be imported."""
    script = (
        "import sys; sys.modules['flask'] = None\n"
        "from tf_transformer.cli.main import main\n"
        "sys.exit(main(['serve', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(exported)],
        capture_output=True, text=True, cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: serve needs flask, which is not installed: "
        'pip install "tf-transformer[serve]"\n'
    )


@pytest.mark.parametrize("of_task", ["exported_parser", "exported_classifier"])
def test_exports_of_other_tasks_are_served(request, of_task):
    """Over the REST paths, and as `client` reads the answers."""
    path = request.getfixturevalue(of_task)
    texts = ["the dog sees a cat .", "", "we saw the cat . " * 40]
    version = load_version(1, path, BatchLimits())
    app = make_app(one_version(version.session, version.lanes), "other", Limits())

    class Client:
        def predict(self, signature, inputs):
            body = {"signature_name": signature, "inputs": inputs}
            return app.test_client().post("/v1/models/other:predict", json=body).json["outputs"]

    loaded = load(path)
    ask = loaded.parse if of_task == "exported_parser" else loaded.classify
    assert best_answers(Client(), texts) == [str(each) for each in ask(texts)]
    version.close()
