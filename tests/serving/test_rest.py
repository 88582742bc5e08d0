"""TF Serving's REST format, as its documentation describes it."""

import base64
import json

import numpy as np
import pytest

from tf_transformer.serving.rest import (
    BadRequestError,
    format_response,
    metadata,
    parse_request,
)


def parse(session, record):
    return parse_request(json.dumps(record).encode(), session)


def test_rows_and_columns_are_the_same_request(session):
    rows = [{"source": "a", "target": "b"}, {"source": "c", "target": "d"}]
    columns = {"source": ["a", "c"], "target": ["b", "d"]}
    by_row = parse(session, {"signature_name": "score", "instances": rows})
    by_column = parse(session, {"signature_name": "score", "inputs": columns})
    assert (by_row.by_row, by_column.by_row) == (True, False)
    for request in (by_row, by_column):
        assert request.signature == "score"
        assert request.inputs["source"].tolist() == [b"a", b"c"]
        assert request.inputs["target"].tolist() == [b"b", b"d"]


@pytest.mark.parametrize(
    "record",
    [
        {"instances": ["é"]},
        {"instances": [{"text": "é"}]},
        {"instances": [{"b64": base64.b64encode("é".encode()).decode()}]},
        {"instances": [{"text": {"b64": base64.b64encode("é".encode()).decode()}}]},
        {"inputs": ["é"]},
        {"inputs": {"text": ["é"]}},
        {"signature_name": "serving_default", "inputs": ["é"]},
    ],
)
def test_a_text_can_be_written_in_many_ways(session, record):
    request = parse(session, record)
    assert request.signature == "serving_default"
    assert request.inputs["text"].tolist() == ["é".encode()]


def test_numbers_are_converted_to_the_types_of_the_signature(session):
    option = {"text": "a", "alpha": 1, "max_length": 3, "prefix": ""}
    inputs = parse(session, {"signature_name": "with_options", "instances": [option]}).inputs
    assert {name: values.dtype.name for name, values in inputs.items()} == {
        "text": "object", "alpha": "float32", "max_length": "int32", "prefix": "object",
    }  # fmt: skip


@pytest.mark.parametrize("record", [{"instances": []}, {"inputs": []}])
@pytest.mark.parametrize("signature", ["serving_default", "tokens"])
def test_a_request_may_be_empty(session, record, signature):
    request = parse(session, {"signature_name": signature} | record)
    assert all(len(values) == 0 for values in request.inputs.values())
    json.loads(format_response(session.run(signature, request.inputs), request.by_row))


WHOLE = r"must be a whole number \(int32\)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"instances": [NaN]}', "must be JSON: NaN is not a JSON number"),
        (b"[1]", "an object with"),
        (b"{}", "an object with"),
        (b'{"instances": [], "inputs": []}', "an object with"),
        (b'{"instances": ["a"], "signature": "nbest"}', 'Received: "signature"'),
        (b'{"instances": "a"}', '"instances" must be a list'),
        (b'{"instances": [["a"]]}', "text must be of rank 1, .*Received: rank 2"),
        (b'{"instances": ["a", ["b"]]}', r'text must be a string. Received: \["b"\]'),
        (b'{"instances": [null]}', "text must be a string. Received: null"),
        (b'{"instances": ["a", true]}', "text must be a string. Received: true"),
        (b'{"instances": ' + b"[" * 400 + b"]" * 400 + b"}", "text must be of rank 1"),
        (b'{"instances": [{"b64": "%"}]}', '"b64" must be base64'),
        ('{"instances": [{"b64": "é"}]}'.encode(), '"b64" must be base64'),
        (b'{"instances": [{}]}', "inputs must be text. Received: none"),
        (b'{"instances": [{"text": "a", "beam": 9}]}', "inputs must be text. Received: beam"),
        (b'{"signature_name": [], "instances": []}', '"signature_name" must be one of'),
        (b'{"signature_name": "x", "instances": []}', "must be one of .*score.* Received: 'x'"),
        (b'{"signature_name": "score", "instances": ["a"]}', "must be named: source, target"),
        (
            b'{"signature_name": "score", "inputs": {"source": ["a"], "target": ["a", "b"]}}',
            "same number of rows",
        ),
        (b'{"instances": [' + b'"a", ' * 32 + b'"a"]}', "at most 32 rows. Received: 33"),
        (b'{"signature_name": "tokens", "instances": [[1], [1, 2]]}', "equal length"),
        (b'{"signature_name": "tokens", "instances": [[1.5]]}', f"{WHOLE}. Received: 1.5"),
        (b'{"signature_name": "tokens", "instances": [[1e999]]}', WHOLE),
        (b'{"signature_name": "tokens", "instances": [[99999999999]]}', f"{WHOLE}.*: 99999"),
        (b'{"signature_name": "tokens", "instances": [[' + b"9" * 5_000 + b"]]}", "JSON"),
    ],
)
def test_malformed_requests_are_refused(session, body, message):
    with pytest.raises(BadRequestError, match=message):
        parse_request(body, session)


def test_half_a_surrogate_pair_is_translated_like_any_character(session):
    request = parse_request(b'{"instances": ["\\ud800 a"]}', session)
    assert len(session.run("serving_default", request.inputs)["translation"]) == 1


def test_answers_have_the_form_of_their_request():
    outputs = {
        "text": np.array([b"a", "ü".encode()], object),
        "score": np.array([0.5, -1], "float32"),
    }
    assert json.loads(format_response(outputs, by_row=True)) == {
        "predictions": [{"text": "a", "score": 0.5}, {"text": "ü", "score": -1.0}]
    }
    assert json.loads(format_response(outputs, by_row=False)) == {
        "outputs": {"text": ["a", "ü"], "score": [0.5, -1.0]}
    }
    only = {"text": outputs["text"]}
    assert json.loads(format_response(only, by_row=True)) == {"predictions": ["a", "ü"]}
    assert json.loads(format_response(only, by_row=False)) == {"outputs": ["a", "ü"]}


def test_metadata_names_every_tensor(session):
    record = metadata(session, "small", 3)
    assert record["model_spec"] == {"name": "small", "signature_name": "", "version": "3"}
    signatures = record["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) == set(session.signatures)
    text = signatures["serving_default"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING"
    assert text["tensor_shape"] == {"dim": [{"size": "-1"}]}
