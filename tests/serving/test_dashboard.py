"""The dashboard of a server's metrics, and the long load that draws it."""

import json
import sys
import threading

import numpy as np
import pytest
from command_line import ROOT
from http_calls import predict

pytest.importorskip("flask")
pytest.importorskip("matplotlib")
pytest.importorskip("prometheus_client")

from tf_transformer.serving.client import RestClient
from tf_transformer.serving.server import Limits

sys.path.insert(0, str(ROOT / "serving"))
import dashboard
import soak_test


@pytest.fixture(scope="module")
def port(start) -> int:
    return start(Limits(body_bytes=1 << 16))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_quantile_is_in_the_bucket_of_that_share(share):
    times = np.random.default_rng(4).exponential(0.3, 5_000)
    bounds = np.array([0.1, 0.2, 0.5, 1.0, 2.0, np.inf])
    counts = np.array([(times <= bound).sum() for bound in bounds])
    exact = np.quantile(times, share)
    row = np.searchsorted(bounds, exact)
    low = bounds[row - 1] if row else 0.0
    assert low <= dashboard.quantile(bounds, counts, share) <= bounds[row]
    assert dashboard.quantile(bounds, counts * 0, share) != 0  # NaN
    even = np.array([10, 20, 50, 100, 200, 200]) * 1.0  # uniform up to 2
    assert dashboard.quantile(bounds, even, share) == pytest.approx(2 * share)


def test_a_recording_has_what_was_asked(port, tmp_path):
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
    client = RestClient(f"http://127.0.0.1:{port}", "small", 60.0)
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


def test_a_load_without_a_living_client_ends(port, capsys):
    url = f"http://127.0.0.1:{port}"
    load = soak_test.Load(RestClient(url, "small", 60.0), ["a dog"], requests=10)
    with dashboard.Recorder(url, every=60.0) as recorder:
        soak_test.watch(load, recorder, 10, [threading.Thread()])  # as one that has died
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["requests"] for report in reports] == [0] * 5
