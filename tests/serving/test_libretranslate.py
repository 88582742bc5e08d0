"""LibreTranslate's API: its own client, what other clients send, and several models."""

import json
import threading
import urllib.error

import pytest
from http_calls import call, one_version, queue_of
from trained import quick_export

from tf_transformer.cli.serve import bound_socket
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.serving.queue import Telemetry, TokenCounter
from tf_transformer.serving.served_model import ServedModel

pytest.importorskip("flask")
pytest.importorskip("waitress")

TEXT = "- The dog runs. A cat sleeps.\n\n- Two men."


@pytest.fixture(scope="module")
def back(keeper, tmp_path_factory):
    """An export with slots and weights at random, which is to be from German to English."""
    folder = tmp_path_factory.mktemp("back") / "e"
    with ExportEngine(quick_export(keeper, folder, "serving_default", "nbest")) as engine:
        yield engine


@pytest.fixture(scope="module")
def served(session, back):
    """`served(("en", "de"), ("de", "en"))`: a client of a server with models for these."""
    from tf_transformer.serving.server import make_app

    queues, telemetry = [], Telemetry()

    def served(*pairs):
        models = []
        for engine, pair in zip((session, back), pairs, strict=False):
            counter = TokenCounter(engine)
            queues.append(queue_of(engine, counter, telemetry))
            model = one_version(engine, counter, queues[-1], telemetry)
            model.name = f"{model.name}-{len(models)}"
            translator = model.version().translator
            translator.language, translator.target_language = pair
            models.append(model)
        return make_app(models[0], telemetry, others=models[1:])

    yield served
    for queue in queues:
        queue.close(60)


@pytest.fixture(scope="module")
def both(served):
    return served(("en", "de"), ("de", "en")).test_client()


def test_its_own_client_gets_translations_languages_and_errors(served, translator):
    libretranslatepy = pytest.importorskip("libretranslatepy")
    from tf_transformer.serving.server import Listener

    server = Listener(served(("en", "de")), bound_socket("localhost", 0), 1 << 20)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        port = server.effective_port
        client = libretranslatepy.LibreTranslateAPI(f"http://127.0.0.1:{port}", "a key")
        expected = translator.translate_text(TEXT, language="en")
        assert client.translate(TEXT, "en", "de") == expected != TEXT
        assert client.translate(TEXT, "auto", "de") == expected
        assert client.detect("A dog.") == [{"confidence": 0.0, "language": "en"}]
        assert [(one["code"], one["targets"]) for one in client.languages()] == [
            ("en", ["de"]), ("de", []),
        ]  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as caught:
            client.translate("A dog.", "en", "fr")
        assert caught.value.code == 400
        assert json.load(caught.value)["error"].startswith("There is no model for these")
        assert json.loads(call(port, "GET", "/health")[2]) == {"status": "ok"}
        assert call(port, "POST", "/translate", "q=A+dog&source=en&target=de")[0] == 400
    finally:
        server.close()


def test_each_model_answers_for_its_languages(both, translator, keeper):
    records = both.get("/languages").json
    assert [(one["code"], one["targets"]) for one in records] == [
        ("en", ["de"]),
        ("de", ["en"]),
    ]
    pytest.importorskip("babel")
    assert [one["name"] for one in records] == ["English", "German"]
    for pair, engine in ((("en", "de"), translator), (("DE", "EN"), keeper)):
        body = {"q": "write to", "source": pair[0], "target": pair[1]}
        answer = both.post("/translate", json=body).json
        assert answer["translatedText"] == engine.translate_text("write to", language="en")
    assert both.get("/v1/models/small-1").json["model_version_status"]
    for path in ("/translate", "/detect"):
        answer = both.post(path, json={"q": "Hund", "source": "auto", "target": "nl"})
        assert answer.status_code == 400
    assert "one of de, en." in both.post("/detect", json={"q": "Hund"}).json["error"]
    auto = both.post("/translate", json={"q": ["Hund"], "source": "auto", "target": "en"}).json
    assert auto["detectedLanguage"] == [{"confidence": 0.0, "language": "de"}]


def test_a_list_gets_lists_and_alternatives_are_other_translations(both, translator):
    body = {"q": ["A dog runs.", "", TEXT], "source": "en", "target": "de", "alternatives": 2}
    answer = both.post("/translate", json=body).json
    expected = translator.translate_text(body["q"], language="en")
    assert answer["translatedText"] == expected
    first, blank, document = answer["alternatives"]
    ranked = translator.translate("A dog runs.", n_best=3)
    assert first == [" ".join(one.split()) for one in ranked[1:]] and blank == []
    for other in document:
        assert other != expected[2] and other.startswith("- ") and other.count("\n") == 2
    one = both.post("/translate", json=body | {"q": "A dog runs.", "alternatives": 99}).json
    assert one["translatedText"] == ranked[0] and len(one["alternatives"]) <= 3
    assert one["alternatives"][:2] == first
    form = body | {"q": "A dog runs.", "alternatives": "2"}
    assert both.post("/translate", data=form).json["alternatives"] == first


def test_html_comes_back_with_its_tags(both, translator):
    pytest.importorskip("html5lib")
    page = (
        '<p class="a"><b>%s</b></p>\n<ul><li>%s</li></ul><!-- A dog runs. -->'
        "<script>dogs()</script><p translate=no>A dog runs.</p>"
    )
    texts = ["A dog runs.", "The cat sleeps."]
    body = {"q": page % (*texts,), "source": "en", "target": "de", "format": "html"}
    answer = both.post("/translate", json=body | {"alternatives": 1}).json
    assert answer["translatedText"] == page % (*translator.translate(texts),)
    assert answer["alternatives"] == [] and "A dog runs." in answer["translatedText"]
    left = "<p>two <b>dogs</b> and <i>no</i> span at all</p>"
    reverse = body | {"source": "de", "target": "en", "q": [left, "<p>write to order"]}
    answer = both.post("/translate", json=reverse).json
    for tag in ("<p>", "<b>", "</b>", "<i>", "</i>", "</p>"):
        assert answer["translatedText"][0].count(tag) == 1
    large = body | {"q": "<p>A dog runs.</p>" + "<br>" * 200_000}
    assert both.post("/translate", data=large).status_code == 200  # larger than Flask's limit
    wrong = both.post("/translate", json=body | {"q": "<html lang=fr><p>chien"})
    assert wrong.status_code == 400 and "from fr, the model from en" in wrong.json["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": ""}, '"q" is missing.'), ({"q": []}, '"q" is missing.'),
        ({"q": ["a", 1]}, '"q" must be a string or a list of strings.'),
        ({"q": {"a": 1}}, '"q" must be a string or'),
        ({"source": None}, '"source" is missing.'),
        ({"target": ["de"]}, '"target" must be a string.'),
        ({"format": "rtf"}, "\"format\" must be text or html. Received: 'rtf'."),
        ({"alternatives": "two"}, '"alternatives" must be a number.'),
        ({"target": "en"}, "There is no model for these languages. There are: en to de, de to"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_400_and_the_reason(both, change, message):
    body = {"q": "A dog.", "source": "en", "target": "de"} | change
    answer = both.post("/translate", json=body)
    assert answer.status_code == 400 and answer.json["error"].startswith(message)


def test_a_body_that_is_no_object_of_json_is_refused(both):
    for content, message in (("[1]", "must be an object"), ("{", "must be JSON")):
        answer = both.post("/translate", data=content, content_type="application/json")
        assert answer.status_code == 400 and message in answer.json["error"]


def test_settings_say_what_there_is_not(both):
    record = both.get("/frontend/settings").json
    assert record["charLimit"] == -1 and record["supportedFilesFormat"] == []
    assert not any(record[name] for name in ("apiKeys", "keyRequired", "suggestions"))
    assert [record["language"][side]["code"] for side in ("source", "target")] == ["en", "de"]


def test_a_model_without_languages_is_not_offered(served):
    client = served(("", "")).test_client()
    assert client.get("/languages").json == []
    answer = client.post("/translate", json={"q": "a", "source": "en", "target": "de"})
    assert "There are: none; `tf-transformer serve --languages` names" in answer.json["error"]
    assert "none, since no model names" in client.post("/detect", json={"q": "a"}).json["error"]


def test_a_model_that_is_being_loaded_gets_503():
    from tf_transformer.serving.server import make_app

    telemetry = Telemetry()
    model = ServedModel("small", 1, lambda: None, telemetry)
    client = make_app(model, telemetry).test_client()
    assert client.get("/languages").status_code == 503
    assert client.get("/health").json == {"status": "ok"}
