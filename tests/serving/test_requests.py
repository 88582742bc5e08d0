"""The storm of requests, on a server with a small model."""

import itertools
import shutil

import pytest

from tools.storm import requests
from tools.storm.lab import Lab

pytest.importorskip("flask")
pytest.importorskip("waitress")


def test_a_server_withstands_every_kind_of_request(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "SESSION", 8)
    shutil.copytree(exported, tmp_path / "model" / "1")
    outcomes = list(itertools.islice(requests.tries(Lab(tmp_path, 1)), 8 + 2))
    assert [one for one in outcomes if not one.held] == []
    kinds = {"malformed", "mutated", "huge", "held", "many", "memory", "end"}
    assert {one.what for one in outcomes} == kinds
