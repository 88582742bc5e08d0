"""serving/load_test.py where no server is."""

import dataclasses
import json
import runpy

from command_line import ROOT

from tf_transformer.serving.client import RestClient


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
