"""Metrics and the access log, for the operator of a server."""

import io
import json
import re

import pytest
from http_calls import PREDICT, call, predict

pytest.importorskip("flask")
pytest.importorskip("waitress")

from prometheus_client.parser import text_string_to_metric_families

from tf_transformer.serving.server import Limits
from tf_transformer.serving.telemetry import AccessLog


def test_metrics_and_access_log_record_requests(start):
    log = io.StringIO()
    port = start(Limits(), access_log=AccessLog("all", log))
    predict(port, "The dog.", "A cat.")
    call(port, "POST", PREDICT, b"nonsense", **{"X-Request-Id": "mine-7"})
    call(port, "GET", "/nowhere", **{"X-Request-Id": 'not "plain"'})
    status, headers, text = call(port, "GET", "/monitoring/prometheus/metrics")
    assert (status, headers.get_content_type()) == (200, "text/plain")
    values = {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
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
    assert (good["status"], good["signature"]) == (200, "serving_default")
    assert good["path"] == PREDICT
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


@pytest.mark.parametrize("reason", ["No space left on device", "I/O operation on closed file"])
def test_an_access_log_that_cannot_be_written_changes_no_answer(start, reason, capsys):
    class Lost(io.StringIO):
        def flush(self):
            raise OSError(28, reason)

    log = Lost()
    if "closed" in reason:
        log.close()
    port = start(Limits(), AccessLog("all", log))
    assert [predict(port, text)[0] for text in ("The dog.", 1)] == [200, 400]
    assert call(port, "GET", "/nowhere")[0] == 404
    text = f"cannot write the access log: {reason}. Requests are still answered.\n"
    assert capsys.readouterr().err == text
