"""Metrics and the access log, for the operator of a server."""

import io
import json
import logging
import re

import pytest
from http_calls import PREDICT, call, predict

pytest.importorskip("flask")
pytest.importorskip("waitress")

from prometheus_client.parser import text_string_to_metric_families

from tf_transformer.cli import console
from tf_transformer.serving.loaded import ServedModel
from tf_transformer.serving.server import make_app
from tf_transformer.serving.telemetry import Telemetry


def access_log(caplog) -> list[dict]:
    messages = [record.message for record in caplog.records]
    return [json.loads(message) for message in messages if message.startswith("{")]


def test_metrics_and_access_log_record_requests(start, caplog):
    caplog.set_level("INFO")
    port = start(access_log="all")
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
        "waiting_rows[]": 0,
        "version[]": 1,
        "refused_versions[]": 0,
    }.items():
        assert values[f"tf_transformer_{name}"] == value, name
    assert values["tf_transformer_tokens_read_total[]"] >= 4
    assert values["tf_transformer_tokens_written_total[]"] >= 2
    assert values["process_resident_memory_bytes[]"] > 1e6

    good, bad, lost, _ = access_log(caplog)
    assert (good["status"], good["signature"]) == (200, "serving_default")
    assert good["path"] == PREDICT
    assert (bad["status"], bad["request_id"]) == (400, "mine-7")
    assert bad["error"].startswith("The body must be JSON")
    assert re.fullmatch("[0-9a-f]{32}", lost["request_id"])


@pytest.mark.parametrize(("level", "logged"), [("off", []), ("errors", [400])])
def test_the_access_log_has_levels(start, level, logged, caplog):
    caplog.set_level("INFO")
    port = start(access_log=level)
    assert predict(port, "The dog.")[0] == 200
    assert predict(port, 1)[0] == 400
    assert [record["status"] for record in access_log(caplog)] == logged


def test_failed_probes_are_no_errors_in_the_access_log(caplog):
    caplog.set_level("INFO")
    telemetry = Telemetry()
    model = ServedModel("small", dict, None, telemetry)
    client = make_app(model, telemetry, access_log="errors").test_client()
    assert client.get("/readyz").status_code == 503
    assert client.get("/nowhere").status_code == 404
    assert [record["path"] for record in access_log(caplog)] == ["/nowhere"]


@pytest.mark.parametrize("reason", ["No space left on device", "Broken pipe"])
def test_an_access_log_that_cannot_be_written_changes_no_answer(start, reason, monkeypatch):
    class Lost(io.StringIO):
        def flush(self):
            raise BrokenPipeError if "pipe" in reason else OSError(28, reason)

    monkeypatch.setattr(console, "abandon_output", lambda stream: None)
    port = start(access_log="all")
    logger = logging.getLogger("tf_transformer")
    before = logger.handlers[:], logger.level, logger.propagate
    console._log_to(Lost())
    try:
        assert [predict(port, text)[0] for text in ("The dog.", 1)] == [200, 400]
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
