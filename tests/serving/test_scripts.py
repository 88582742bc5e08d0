"""The scripts in serving/: load test, soak test, dashboard and the proof of an export."""

import dataclasses
import http.server
import importlib.util
import json
import re
import runpy
import subprocess
import sys
import threading

import numpy as np
import pytest
from command_line import ROOT
from http_calls import predict

pytest.importorskip("flask")
pytest.importorskip("matplotlib")
pytest.importorskip("prometheus_client")
pytest.importorskip("tensorflow_serving.apis")

sys.path.insert(0, str(ROOT / "serving"))
import dashboard
import load_test
import proof
import run_savedmodel
import script
import soak_test

SERVING = ROOT / "serving"


# --- load_test.py and run_savedmodel.py --------------------------------------------------


def test_latencies_are_null_if_nothing_was_answered(tmp_path):
    client = script.Client("http://127.0.0.1:1", "small")
    point = load_test.measure(client, ["a"], clients=2, size=1, seconds=0.05)
    assert point.errors > 0
    record = json.loads(json.dumps(dataclasses.asdict(point), allow_nan=False))
    assert [record[name] for name in ("p50", "p95", "p99")] == [None] * 3
    assert record["sentences_a_second"] == record["requests"] == 0
    load_test.draw([point], tmp_path / "load.png")
    assert (tmp_path / "load.png").stat().st_size > 0


ODD = "one\u2028still one\x85and\x0bon\r\ntwo\n"  # five lines to str.splitlines


def test_a_text_is_split_only_at_newlines(tmp_path, monkeypatch):
    """The server records the first request, up to eight lines of the file, and refuses it."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_error(500)

        def log_message(self, *_):
            pass

    (tmp_path / "in.en").write_bytes(ODD.encode())
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        arguments = ["load_test.py", url, "small", str(tmp_path / "in.en")]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match=f"^error: {url} does not answer: 500"):
            runpy.run_path(str(SERVING / "load_test.py"), run_name="__main__")
    assert asked[0]["inputs"]["text"] == ["one\u2028still one\x85and\x0bon", "two"]


def test_run_savedmodel_answers_line_by_line(exported):
    program = [sys.executable, str(SERVING / "run_savedmodel.py"), str(exported)]
    text = ODD.encode().replace(b"\n", b"\r\n", 1)
    done = subprocess.run(program, input=text, capture_output=True, check=True)
    assert len(done.stdout.split(b"\n")) == 2 + 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"\xef\xbb\xbfone\r\ntwo", [b"one", b"two"]),
        (ODD.encode(), [b"one\xe2\x80\xa8still one\xc2\x85and\x0bon", b"two"]),
    ],
)
def test_run_savedmodel_splits_lines_as_translate_does(text, lines):
    assert run_savedmodel._lines(text) == lines


def test_run_savedmodel_needs_a_model(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run_savedmodel.py"])
    with pytest.raises(SystemExit, match="^usage: "):
        run_savedmodel.main()


def test_run_savedmodel_needs_tensorflow_text(exported, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run_savedmodel.py", str(exported)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="tensorflow_text is not installed"):
        run_savedmodel.main()


# --- The client of script.py -------------------------------------------------------------


OK, BUSY = (200, {"outputs": {"translation": ["ein Text"], "score": [-1.0]}}), (503, {})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([BUSY, OK], OK[1]["outputs"]),
        ([BUSY], "503"),
        ([(404, {})], "404"),
        ([(200, {"outputs": {"translation": []}})], "ValueError"),
        ([(200, {"error": ""})], "KeyError"),
    ],
)
def test_only_a_busy_server_is_asked_again(answers, expected, monkeypatch):
    """The last answer is repeated."""
    monkeypatch.setattr(script.time, "sleep", lambda seconds: None)
    sent = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = answers[min(len(sent), len(answers) - 1)]
            sent.append(status)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        client = script.Client(f"http://127.0.0.1:{server.server_address[1]}", "small")
        try:
            found = script.patiently(lambda: client.predict({"text": ["a text"]}), 0.05)
        except script.ServerError as error:
            found = error.code
        server.shutdown()
    assert found == expected
    assert (len(sent) > 1) == (BUSY in answers)


# --- A user's mistakes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("load_test.py URL small none.en", "none.en cannot be read: No such file"),
        ("load_test.py URL small blank.en", "blank.en must have a line of text."),
        ("soak_test.py URL small blank.en", "blank.en must have a line of text."),
        ("soak_test.py URL small in.en", "URL/monitoring.* must be .*metrics. .*refused"),
        ("dashboard.py URL --picture x.png", "URL/monitoring.* must be a server's metrics. "),
        ("dashboard.py nothing --picture x.png", "nothing/monitoring.* Received: unknown url"),
    ],
)
def test_scripts_report_a_mistake_on_one_line(command, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.en").write_text(" \n\n")
    (tmp_path / "in.en").write_text("a dog\n")
    script, *arguments = command.replace("URL", "http://127.0.0.1:1").split()
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SERVING / script), run_name="__main__")
    expected = message.replace("URL", "http://127.0.0.1:1")
    assert re.match(f"error: .*{expected}[^\n]*$", str(end.value.code)), end.value.code


# --- dashboard.py and soak_test.py -------------------------------------------------------


@pytest.fixture(scope="module")
def port(start) -> int:
    return start(max_body=1 << 16)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_quantile_is_in_its_bucket(share):
    times = np.random.default_rng(4).exponential(0.3, 5_000)
    bounds = np.array([0.1, 0.2, 0.5, 1.0, 2.0, np.inf])
    counts = np.array([(times <= bound).sum() for bound in bounds])
    exact = np.quantile(times, share)
    row = np.searchsorted(bounds, exact)
    low = bounds[row - 1] if row else 0.0
    assert low <= dashboard.quantile(bounds, counts, share) <= bounds[row]
    assert np.isnan(dashboard.quantile(bounds, counts * 0, share))
    even = np.array([10, 20, 50, 100, 200, 200]) * 1.0  # uniform up to 2
    assert dashboard.quantile(bounds, even, share) == pytest.approx(2 * share)


def test_a_recording_counts_the_requests(port, tmp_path):
    with dashboard.Recorder(f"http://127.0.0.1:{port}", every=60.0) as recorder:
        for _ in range(3):
            predict(port, "a", "b")
        predict(port, 1)
    metrics = dashboard.Metrics(recorder.times, recorder.samples)
    seconds = recorder.times[-1] - recorder.times[0]
    answers = metrics.rate("tf_transformer_requests_total", "status")
    assert answers["400"][-1] * seconds == pytest.approx(1)
    assert answers["200"][-1] * seconds == pytest.approx(3 + 1)  # the reading itself
    assert metrics.mean("tf_transformer_batch_rows")[-1] == pytest.approx(2)
    latency = metrics.quantiles("tf_transformer_request_seconds", "serving_default", (0.5,))
    assert latency["p50"][-1] > 0
    dashboard.draw(recorder.times, recorder.samples, tmp_path / "board.png")
    assert (tmp_path / "board.png").read_bytes().startswith(b"\x89PNG")


def test_a_load_counts_every_request_once(port):
    client = script.Client(f"http://127.0.0.1:{port}", "small")
    load = soak_test.Load(client, ["a dog", "two cats"], requests=12)
    hostile = soak_test.Hostile(f"http://127.0.0.1:{port}", "small", ["a dog"])
    others = hostile.start()
    load.run()
    while not (hostile.outcomes["broken"] and hostile.outcomes["too large"]):
        assert any(thread.is_alive() for thread in others)
    hostile.end.set()
    for thread in others:
        thread.join()
    assert load.done() == load.outcomes["answered"] == len(load.seconds) == 12
    assert set(hostile.outcomes["broken"]) == {"400"}
    assert set(hostile.outcomes["too large"]) <= {"413", "closed by the server"}
    again = soak_test.request_texts(["a dog", "two cats"], 5)
    assert again == soak_test.request_texts(["a dog", "two cats"], 5) and 1 <= len(again) <= 8


def test_watching_ends_when_no_client_is_alive(port, capsys):
    url = f"http://127.0.0.1:{port}"
    load = soak_test.Load(script.Client(url, "small"), ["a dog"], requests=10)
    with dashboard.Recorder(url, every=60.0) as recorder:
        soak_test.watch(load, recorder, 10, [threading.Thread()])  # not alive: never started
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["requests"] for report in reports] == [0] * 5


# --- proof.py ----------------------------------------------------------------------------


def test_a_proof_that_passes_is_reported(port, exported, trained_run, monkeypatch):
    monkeypatch.setattr(proof, "REST", f"http://127.0.0.1:{port}")
    lines = trained_run.lines("dev.en")[:10]
    text, passed = proof.prove(exported.parent, lines, "an image", seconds=0.2)
    assert passed
    assert text.startswith("# TF Serving with small\n\nan image; ")
    assert (
        "- 12 requests of the warm-up; outputs that differ from TensorFlow here: none" in text
    )
    assert "- 2 requests of the text; outputs that differ from TensorFlow here: none" in text
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 1 + 3


def test_outputs_that_differ_are_named(port, exported):
    class Tampered(script.Client):
        def predict(self, inputs, signature):
            outputs = super().predict(inputs, signature)
            if signature == "score":
                outputs["log_prob"] = [value + 0.1 for value in outputs["log_prob"]]
            return outputs

    client = Tampered(f"http://127.0.0.1:{port}", "small")
    wrong = proof.differences(client, exported, proof.warm_up_requests(exported))
    assert set(wrong) == {"score: log_prob"}


def test_without_docker_one_line_says_so(tmp_path):
    command = [sys.executable, str(SERVING / "proof.py"), "exported/mine", "in.en"]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "The proof needs Docker, which this machine lacks: nothing was run.\n"
