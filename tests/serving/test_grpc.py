"""The guide's lines for TF Serving's gRPC, against a PredictionService with its real protos."""

import pytest
from helpers import snippets

pytest.importorskip("tensorflow_serving.apis")

import prediction_service

from tf_transformer.export.translations import requests


def test_the_guide_translates_over_grpc(exported, session, translator, capsys):
    (snippet,) = snippets("docs/guides/serving.md")
    server, service, port = prediction_service.start(exported, session)
    try:
        assert service.warm == len(requests(translator.engine, translator.decoding)) > 6
        exec(snippet.replace("8500", str(port)).replace('"mine"', '"small"'), {})
    finally:
        server.stop(0)
    expected = translator.translate(["The dog.", "A cat."])
    assert capsys.readouterr().out == f"{expected}\n"
