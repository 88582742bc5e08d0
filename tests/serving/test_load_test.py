"""serving/load_test.py where no server is."""

import dataclasses
import http.server
import json
import runpy
import subprocess
import sys
import threading

import pytest
from command_line import ROOT

from tf_transformer.serving.client import RestClient, ServerError


def test_a_load_that_nobody_answers_is_no_number(tmp_path):
    program = runpy.run_path(str(ROOT / "serving" / "load_test.py"))
    client = RestClient("http://127.0.0.1:1", "small", 5.0)
    point = program["measure"](client, ["a"], clients=2, size=1, seconds=0.05)
    assert point.errors > 0
    record = json.loads(json.dumps(dataclasses.asdict(point), allow_nan=False))
    assert [record[name] for name in ("p50", "p95", "p99")] == [None] * 3
    assert record["sentences_a_second"] == record["requests"] == 0
    program["draw"]([point], tmp_path / "load.png")
    assert (tmp_path / "load.png").stat().st_size > 0


ODD = "one\u2028still one\x85and\x0bon\r\ntwo\n"  # what str.splitlines takes for six lines


def test_a_text_is_split_at_line_ends_alone(tmp_path, monkeypatch):
    """The first request asks for eight lines of the file; a server that keeps it refuses it."""
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
        with pytest.raises(ServerError):
            runpy.run_path(str(ROOT / "serving" / "load_test.py"), run_name="__main__")
    assert asked[0]["inputs"]["text"] == ["one\u2028still one\x85and\x0bon", "two"]


def test_a_saved_model_is_asked_for_a_line_a_line(exported):
    """With TensorFlow alone, as a machine without the package has it."""
    program = [sys.executable, str(ROOT / "serving" / "run_savedmodel.py"), str(exported)]
    done = subprocess.run(program, input=ODD.encode(), capture_output=True, check=True)
    assert len(done.stdout.split(b"\n")) == 2 + 1
