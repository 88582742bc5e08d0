"""The HTTP server on a real socket: what it answers, and what it survives."""

import dataclasses
import json
import os
import re
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
import pytest
from helpers import assert_nothing_moved, hostile_lines
from http_calls import PREDICT, body_of, call, one_version, predict, queue_of
from prometheus_client.parser import text_string_to_metric_families
from trained import quick_export

from tf_transformer.cli.serve import bound_socket
from tf_transformer.config import DecodingConfig
from tf_transformer.data.documents import NO_JOIN
from tf_transformer.decoding.interface import LONG, REASONS
from tf_transformer.export.card import CARD, card_of, read_card
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.loading.exports import load_exported_translator
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.serving.queue import Telemetry, TokenCounter
from tf_transformer.serving.served_model import ServedModel
from tf_transformer.serving.server import Listener, make_app

pytest.importorskip("flask")
pytest.importorskip("waitress")

TRANSLATE = PREDICT.replace("predict", "translateText")


@pytest.fixture(scope="module")
def port(start) -> int:
    return start(max_body=20_000, idle=2)


@pytest.fixture
def client_of(counter):
    """`client_of(session, max_waiting=1)`: a client of the application, without a network."""
    queues = []

    def client_of(session, deadline: float = 30.0, max_waiting: int = 256):
        telemetry = Telemetry()
        queues.append(queue_of(session, counter, telemetry, max_waiting))
        model = one_version(session, counter, queues[-1], telemetry)
        return make_app(model, telemetry, deadline=deadline).test_client()

    yield client_of
    for queue in queues:
        queue.close(60)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/small", 200), ("GET", "/v1/models/small/versions/1", 200),
        ("GET", "/v1/models/small/metadata", 200),
        ("GET", "/v1/models/small/versions/1/metadata", 200),
        ("GET", "/v1/models/small/versions/2", 404), ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/small/versions/2:predict", 404), ("GET", PREDICT, 405),
        ("POST", "/v1/models/small", 405), ("GET", "/../../etc/passwd", 404),
        ("GET", "/" + "x" * 5_000, 404),
    ],
)  # fmt: skip
def test_paths_are_those_of_tf_serving(port, method, path, status):
    found, _, text = call(port, method, path)
    assert found == status
    assert ("error" in json.loads(text)) == (status != 200)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v1/models/sma", "There is no path '/v1/models/sma'. There are: .*/small,"),
        (
            "POST",
            "/v1/models/small:translate",
            r"There is no path .*/small:predict, .*/small:translateText\.$",
        ),
        ("GET", "/nowhere", "There is no path '/nowhere'. There are: /, /detect, .*metrics,"),
        ("GET", PREDICT, "The method is not allowed for the requested URL."),
    ],
)
def test_a_wrong_path_gets_the_ones_there_are(port, method, path, message):
    assert re.match(message, json.loads(call(port, method, path)[2])["error"])


def test_texts_of_several_lines_are_named_in_the_answer(port):
    """They are valid: the answer is that of TF Serving, with one field more."""
    assert "Texts of several lines" not in str(predict(port, "A dog.\n", "A cat.")[1])
    status, answer = predict(port, "A dog.\nA cat.", "A cat.", "a\r\n\r\nb")
    assert (status, len(answer["predictions"])) == (200, 3)
    warning, *_ = answer["warnings"]
    assert warning.startswith("Texts of several lines: 2, taken as one sentence each.")


def test_documents_keep_spans_and_the_terms_of_a_glossary(keeper, session, client_of, tmp_path):
    signatures = "serving_default", "score", "places"
    with_slots = ExportEngine(quick_export(keeper, tmp_path / "e", *signatures))
    counter, telemetry = TokenCounter(with_slots), Telemetry()
    queue = queue_of(with_slots, counter, telemetry)
    model = one_version(with_slots, counter, queue, telemetry)
    client = make_app(model, telemetry).test_client()
    text, terms = "Order 4711 and <b>two</b> nets.\n\nTo <3>\n", {"nets": "Netze"}
    body = {"text": text, "language": "en", "glossary": terms}
    answer = client.post(TRANSLATE, data=json.dumps(body)).json
    expected = keeper.translate_text(text, language="en", glossary=terms)
    assert answer["text"] == expected
    for span in ("4711", "<b>", "</b>", "Netze", "<3>"):
        assert answer["text"].count(span) == 1
    slots = answer["parts"][0]["slots"]
    assert slots["source"] == "Order <1> and <2> two <3> nets<4>."
    assert {*re.findall("<[1-9]>", slots["translation"])} == {f"<{n}>" for n in range(1, 5)}
    raw = client.post(TRANSLATE, json=body | {"glossary": {}, "protect": "none"}).json
    assert raw["text"] == keeper.translate_text(text, language="en", protect="none")
    other = client_of(session)
    assert other.post(TRANSLATE, json=body | {"glossary": {}}).status_code == 200
    for asked, wrong, message in (
        (client, {"glossary": ["a"]}, '"glossary" must be an object of terms'),
        (client, {"glossary": {"a": " "}}, '"glossary" must have a term and its translation'),
        (client, {"protect": "all"}, '"protect" "default" or "none"'),
        (other, {"glossary": terms}, "`glossary` needs a model trained with `data.slots`"),
    ):
        answer = asked.post(TRANSLATE, data=json.dumps(body | {"glossary": {}} | wrong))
        assert answer.status_code == 400 and message in answer.json["error"]
    queue.close(60)
    with_slots.close()


def test_every_door_gives_the_same_reasons_of_what_looks_wrong(
    exported, trained_run, translator, tmp_path, caplog, monkeypatch
):
    """A run, its export, LiteRT and the server, which counts them."""
    found = translator.translate(lines := trained_run.lines("train.en")[:12])
    means = sorted(one.log_prob / one.num_tokens for one in found)
    limit = (means[5] + means[6]) / 2
    monkeypatch.setitem(REASONS, "improbable", lambda _, one: one.is_less_probable_than(limit))
    caplog.set_level("INFO")
    run = Run.open(trained_run.path)
    shutil.copytree(exported, tmp_path / "1")
    card = read_card(exported) | card_of(run, "best")()
    card["decoding"] = dataclasses.asdict(DecodingConfig())
    (tmp_path / "1" / CARD).write_text(json.dumps(card))
    texts = [" and ".join(line.rstrip(".!?") for line in lines), "", *lines]
    expected = translator.translate(texts)
    reasons = [one.warnings for one in expected]
    assert reasons[0][:2] == (LONG, "too short") and reasons[1] == ()
    assert {*reasons[2:]} == {(), ("improbable",)}
    in_lite = load_translator(run, "best", decoding=DecodingConfig(), litert=True)
    caplog.clear()
    for other in (load_exported_translator(tmp_path / "1"), in_lite):
        assert [one.warnings for one in other.translate(texts)] == reasons
    message = f"texts longer than any in training, {run.longest_source} tokens: 1"
    assert caplog.messages.count(message) == 2

    session, telemetry = ExportEngine(tmp_path / "1"), Telemetry()
    counter = TokenCounter(session)
    queue = queue_of(session, counter, telemetry)
    model = one_version(session, counter, queue, telemetry)
    client = make_app(model, telemetry, access_log="all").test_client()
    doubtful = [(row, *one) for row, one in enumerate(reasons) if one]
    options = {"alpha": 0.6, "max_length": 0, "prefix": ""}
    for signature, more in (("serving_default", {}), ("nbest", {}), ("with_options", options)):
        instances = [{"text": text, **more} for text in texts]
        body = json.dumps({"signature_name": signature, "instances": instances})
        found = client.post(PREDICT, data=body).json["warnings"]
        assert [(one["row"], *one["reasons"]) for one in found] == doubtful
        scores = [expected[row].score for row, *_ in doubtful]
        np.testing.assert_allclose([one["score"] for one in found], scores, atol=1e-4)
    body = json.dumps({"text": "\n".join(texts), "language": "en"})
    answer = client.post(PREDICT.replace("predict", "translateText"), data=body).json
    parts, found = answer["parts"], answer["warnings"]
    sources = [(parts[one["part"]]["source"], *one["reasons"]) for one in found]
    assert sources == [(texts[row], *names) for row, *names in doubtful]
    queue.close(60)
    page = client.get("/monitoring/prometheus/metrics").text
    for name in (LONG, *REASONS):
        total = 4.0 * sum(name in one for one in reasons)
        assert f'tf_transformer_doubtful_total{{reason="{name}"}} {total}' in page
    logged = [record.get("doubtful") for record in access_log(caplog)]
    assert logged == [len(doubtful)] * 4 + [None]


def test_a_document_is_translated_sentence_by_sentence(port, translator, trained_run):
    """More sentences than a request to the model may have."""
    path, lines = TRANSLATE, trained_run.lines("train.en")[:40]
    text = "".join(f"- {line}\n\n" for line in lines) + "42\r\n\ud800"
    body = json.dumps({"text": text, "language": "en"})
    status, _, answer = call(port, "POST", path, body)
    found = json.loads(answer)
    expected = [f"- {each}\n\n" for each in translator.translate(lines)]
    assert (status, found["text"]) == (200, "".join(expected) + "42\r\n\ud800")
    first = {"source": lines[0], "translation": str(translator.translate(lines[0]))}
    assert found["parts"][:3] == ["- ", first, "\n"]
    assert not any(isinstance(warning, str) for warning in found.get("warnings", []))
    for body, message in (
        ('{"text": 3}', "a string"),
        ('{"text": "a", "n_best": 3}', 'Received: "n_best"'),
        ('{"text": "a"}', "such as de"),
        ('{"text": "a", "language": "en", "context": 0}', '"context" a number from 1'),
    ):
        status, _, answer = call(port, "POST", path, body)
        assert status == 400 and message in json.loads(answer)["error"]


def test_a_hostile_document_keeps_its_lines(port):
    for lines in (hostile_lines(60, 4), [], [("", "42", "\n")]):
        body = json.dumps({"text": "".join(map("".join, lines)), "language": "en"})
        status, _, answer = call(port, "POST", TRANSLATE, body)
        assert status == 200
        assert_nothing_moved(lines, json.loads(answer)["text"])
    assert predict(port) == (200, {"predictions": []})


def test_concurrent_requests_get_their_own_answers(port, translator, trained_run):
    lines = trained_run.lines("train.en")[:40]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda line: predict(port, line, ""), lines))
    expected = [[found, ""] for found in translator.translate(lines)]
    translations = [[row["translation"] for row in rows["predictions"]] for _, rows in answers]
    assert translations == expected


def test_refusals_give_their_reason_in_json(port):
    for path, body, status, message in (
        (PREDICT, b"x" * 20_000, 400, "must be JSON"),
        (PREDICT, body_of(*["a"] * 33), 400, "at most 32 rows"),
    ):
        found, headers, text = call(port, "POST", path, body)
        assert (found, headers["Content-Type"]) == (status, "application/json")
        assert message in json.loads(text)["error"]
    assert call(port, "POST", PREDICT, b"x" * 20_001)[0] == 413
    assert call(port, "POST", "/" + "x" * 20_000)[0] == 431


class Wrapped:
    """An export that computes by calling `run`."""

    streams = 1

    def __init__(self, session, run) -> None:
        self._session, self._run = session, run

    def __getattr__(self, name):
        return getattr(self._session, name)

    def run(self, signature, inputs, timeout):
        return self._run(signature, inputs, timeout=timeout)


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        (PREDICT, body_of("a", "b"), 2),
        (TRANSLATE, json.dumps({"text": "A dog.\n" * 40, "language": "en"}), 16),
    ],
)
def test_requests_beyond_the_queue_are_asked_to_come_back(session, client_of, path, body, most):
    """Before any work; the batches of a document wait for their turn."""
    begun, ended = threading.Semaphore(0), threading.Event()

    def run(signature, inputs, timeout):
        begun.release()
        assert ended.wait(60)
        return session.run(signature, inputs, timeout=timeout)

    client = client_of(Wrapped(session, run), max_waiting=2)
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(client.post, path, data=body)]
        assert begun.acquire(timeout=60)
        asked += [pool.submit(client.post, path, data=body) for _ in range(most)]
        refused = next(as_completed(asked)).result()  # one of those that find it occupied
        ended.set()
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert sorted(one.result().status_code for one in asked) == [*[200] * most, 503]


def test_a_computation_that_takes_too_long_is_cancelled(session, client_of):
    ended = []

    def run(signature, inputs, timeout):
        try:
            return session.run(signature, inputs, timeout=timeout)
        finally:
            ended.append(time.monotonic())

    client, begun = client_of(Wrapped(session, run), deadline=0.1), time.monotonic()
    texts = ["A dog. " * 400] * 32
    assert client.post(PREDICT, data=body_of(*texts, signature="nbest")).status_code == 504
    while not ended:
        assert time.monotonic() - begun < 60
        time.sleep(0.01)


@pytest.mark.parametrize("fault", ["batch", "stopped", "bug"])
def test_a_fault_is_logged_and_not_shown_to_clients(session, counter, fault, caplog):
    def fails(*_, **__):
        raise RuntimeError("a secret of the server")

    telemetry = Telemetry()
    computing = Wrapped(session, fails) if fault == "batch" else session
    queue = queue_of(computing, counter, telemetry)
    model = one_version(session, counter, queue, telemetry)
    if fault == "stopped":
        queue.close(60)
    if fault == "bug":
        queue.submit = fails
    answer = make_app(model, telemetry).test_client().post(PREDICT, data=body_of("a"))
    queue.close(60)
    status, again = (500, None) if fault == "bug" else (503, "1")
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, again)
    assert "secret" not in answer.text
    assert ("secret" in caplog.text) == (fault != "stopped")


def test_a_server_with_a_version_is_healthy_and_ready(port):
    assert [call(port, "GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_server_without_a_version_yet_is_alive_but_not_ready():
    telemetry = Telemetry()
    client = make_app(ServedModel("small", 1, None, telemetry), telemetry).test_client()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    (status,) = client.get("/v1/models/small").json["model_version_status"]
    assert (status["version"], status["state"]) == ("1", "LOADING")
    answer = client.post(PREDICT, data=body_of("a"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


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
def test_hostile_clients_are_disconnected_and_others_served(port, attack):
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


# --- Connections, and how serving ends ---------------------------------------------------

CONNECTIONS = 8


@pytest.fixture
def listener(session, counter):
    """A server with few connections, which is not serving yet."""
    telemetry = Telemetry()
    queue = queue_of(session, counter, telemetry)
    app = make_app(one_version(session, counter, queue, telemetry), telemetry)
    listener = Listener(app, bound_socket("localhost", 0), 1 << 20, CONNECTIONS, idle=60)
    yield listener
    listener.close()
    queue.close(60)


def begin(listener, alive=lambda: True) -> threading.Thread:
    thread = threading.Thread(target=listener.serve, args=(alive,), daemon=True)
    thread.start()
    return thread


def connect(port: int, sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    one.sendall(sent)
    return one


def ask(port: int, *texts: str, signature: str = "serving_default") -> int:
    return predict(port, *texts, signature=signature)[0]


def test_closing_the_sockets_ends_serving(listener):
    """Otherwise its thread would spin and slow down all others."""
    serving = begin(listener)
    assert ask(listener.effective_port, "A dog.") == 200
    listener.close()
    serving.join(10)
    assert not serving.is_alive()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/models/small:pre"], ids=["nothing", "a part"])
def test_held_connections_give_way_to_new_ones(listener, sent):
    begin(listener)
    held = [connect(listener.effective_port, sent) for _ in range(5 * CONNECTIONS)]
    for one in held[-CONNECTIONS // 2 :]:
        one.sendall(b"x")  # a byte now and then does not help
    start = time.monotonic()
    assert [ask(listener.effective_port, "A dog.") for _ in range(3)] == [200] * 3
    assert time.monotonic() - start < listener.adj.channel_timeout / 2
    for one in held:
        one.close()


def test_a_request_in_progress_keeps_its_connection(listener):
    begin(listener)
    port = listener.effective_port
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, port, "The dog. " * 300, signature="nbest")
        while not listener.unanswered:
            assert not slow.done() or slow.result() == 200
            time.sleep(0.001)
        held = [connect(port) for _ in range(5 * CONNECTIONS)]
        assert slow.result(60) == 200
    for one in held:
        one.close()


def test_stopping_answers_accepted_requests_and_refuses_new_ones(listener):
    serving = begin(listener)
    port = listener.effective_port
    assert ask(port, "A dog.") == 200
    while listener.unanswered:  # its thread counts it a moment longer than its client
        time.sleep(0.001)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, port, *["The dog. " * 100] * 8, signature="nbest")
        while not listener.unanswered and not slow.done():
            time.sleep(0.001)
        listener.stop()
        serving.join(60)
        listener.drain(60.0)
        assert slow.result(60) == 200
    with pytest.raises(ConnectionRefusedError):
        ask(port, "A dog.")


def test_serving_ends_when_the_model_no_longer_computes(listener):
    begin(listener, alive=lambda: False).join(10)
    with connect(listener.effective_port, b"GET / HTTP/1.0\r\n\r\n") as one:
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one.recv(1)


# --- Metrics and the access log ----------------------------------------------------------


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
        "waiting_rows['small']": 0,
        "version['small']": 1,
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


def test_texts_are_never_logged(start, caplog):
    caplog.set_level("INFO")
    port, secret = start(access_log="all"), "secret text"
    option = {"text": "a", "alpha": secret, "max_length": 0, "prefix": ""}
    for path, record in (
        (PREDICT, {"signature_name": "with_options", "instances": [option]}),
        (PREDICT, {"signature_name": secret, "instances": ["a"]}),
        (PREDICT, {"signature_name": "score", "instances": [{secret: "a"}]}),
        (PREDICT, {"instances": [[secret]]}), (PREDICT, {"instances": [{"b64": secret}]}),
        (PREDICT, {"instances": ["a"], secret: 1}), (PREDICT, {"instances": secret}),
        (PREDICT, secret), (TRANSLATE, {"text": "a", "language": f"{secret} Received: b"}),
        (TRANSLATE, {"text": "a", "language": "en", "context": secret}),
    ):  # fmt: skip
        assert call(port, "POST", path, json.dumps(record))[0] == 400
    logged = access_log(caplog)
    assert len(logged) == 10 and all(one["error"] for one in logged)
    assert "secret" not in caplog.text


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
    model = ServedModel("small", 1, None, telemetry)
    client = make_app(model, telemetry, access_log="errors").test_client()
    assert client.get("/readyz").status_code == 503
    assert client.get("/nowhere").status_code == 404
    assert [record["path"] for record in access_log(caplog)] == ["/nowhere"]


def test_page_and_documents_know_the_model_from_its_card(
    exported, trained_run, client_of, tmp_path
):
    shutil.copytree(exported, tmp_path / "1")
    card = read_card(exported) | card_of(Run.open(trained_run.path), "best")()
    card["decoding"] = dataclasses.asdict(DecodingConfig())
    (tmp_path / "1" / CARD).write_text(json.dumps(card))
    client = client_of(ExportEngine(tmp_path / "1"))
    facts = re.search(r"const facts = (.*);", client.get("/").text)
    assert json.loads(facts[1]) == {
        "name": "small", "rows": 32, "version": 1,
        "languages": ["en", "de"], "tokens": 1024, "slots": False,
    }  # fmt: skip
    for context, expected in ((1, []), (2, [NO_JOIN])):
        body = json.dumps({"text": "A dog.", "context": context})
        answer = client.post(TRANSLATE, data=body)
        warnings = answer.json.get("warnings", [])
        assert [one for one in warnings if isinstance(one, str)] == expected
