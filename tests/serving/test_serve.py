"""The command `serve`: the newest version, shutdown, and refusals."""

import contextlib
import gc
import itertools
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from command_line import ROOT, TF_TRANSFORMER, environment, status_of
from http_calls import call, predict

from tf_transformer import serving
from tf_transformer.cli import serve
from tf_transformer.cli.main import main
from tf_transformer.cli.serve import host_and_port
from tf_transformer.loading import translators
from tools.storm import requests
from tools.storm.lab import Lab

pytest.importorskip("flask")
pytest.importorskip("waitress")


def test_serve_has_the_newest_version_and_stops_on_sigterm(exported, tmp_path):
    """SIGTERM comes during a long computation."""
    model = tmp_path / "small"
    shutil.copytree(exported, model / "2")
    (model / "1").mkdir()
    command = [*TF_TRANSFORMER, "serve", str(model), "--port", "0", "--grace", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment()
    ) as process, ThreadPoolExecutor() as pool:  # fmt: skip
        line = "".join(process.stdout.readline().decode() for _ in range(2))
        serving = r"serving small version 2 on http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n"
        found = re.fullmatch(f"loading {model / '2'}\n{serving}", line)
        if not found:
            process.kill()
        assert found, line + process.stderr.read().decode()
        port = int(found[1])
        states = json.loads(call(port, "GET", "/v1/models/small")[2])["model_version_status"]
        assert [(state["version"], state["state"]) for state in states] == [("2", "AVAILABLE")]

        slow = pool.submit(predict, port, *["The dog. " * 400] * 32, signature="nbest")
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert slow.result(60)[0] == 503
        assert process.wait(30) == 0
        assert time.monotonic() - start < 15
        *lines, logged, last = process.stdout.read().decode().splitlines()
        assert lines == [
            "stopping: requests to answer: 1", "requests not answered in 0.5 s: 1",
        ]  # fmt: skip
        assert json.loads(logged)["status"] == 503
        assert last == "stopped"
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--port -1", "--port must be an int from 0 to 65535. Received: -1"),
        ("--deadline nan", "--deadline must be from 0.001 to 86400.0. Received: nan"),
        ("--grace -1", "--grace must be from 0.0 to 86400.0. Received: -1.0"),
        ("--port 0 --host ''", "--host must not be empty"),
        ("--litert", "`litert` is not for an export, but for the run it was made from"),
        ("--precision bfloat16", "`precision` is not for an export, but for the run"),
        ("--port TAKEN", "Cannot listen on 127.0.0.1:[0-9]+: Address already in use"),
    ],
)
def test_serve_refuses_wrong_options(exported, port, arguments, message, capsys):
    arguments = shlex.split(arguments.replace("TAKEN", str(port)))
    assert status_of(["serve", str(exported), *arguments]) in (1, 2)
    assert re.fullmatch(f"error: .*{message}.*\n", capsys.readouterr().err)


def test_a_folder_of_exports_is_refused_and_one_of_them_named(exported, capsys):
    model = exported.parent
    assert main(["serve", str(model.parent)]) == 1
    assert capsys.readouterr().err == (
        f"error: {model.parent} is neither a run directory nor an export. Give an export in "
        f"it, such as {model}.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--name 'a b'", "A model's name must consist of letters, .*Received: 'a b'"),
        ("--host no.such.host.invalid", "Cannot listen on no.such.host.invalid:8501: "),
    ],
)
def test_a_wrong_name_or_address_is_refused_before_a_run_is_exported(
    trained_run, arguments, message, capsys
):
    command = ["serve", str(trained_run.path), *shlex.split(arguments)]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert re.fullmatch(f"error: {message}.*\n", printed.err)
    assert printed.out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_export_of_a_run_leaves_no_file(
    trained_run, number, tmp_path, monkeypatch, capsys
):
    received = []
    before = signal.signal(number, lambda *_: received.append(number))  # not the end of pytest
    handler = signal.getsignal(number)

    def begin(output):
        output.mkdir()
        signal.raise_signal(number)
        pytest.fail("the export went on")

    monkeypatch.setattr(
        translators, "load_translator", lambda *_, **__: SimpleNamespace(export=begin)
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = trained_run.path
    try:
        assert status_of(["serve", str(path), "--port", "0"]) == 128 + number
        assert signal.getsignal(number) == handler and not received
    finally:
        signal.signal(number, before)
    assert not list(tmp_path.iterdir())
    line = f"exporting {path} and testing the export: about a minute\n"
    assert capsys.readouterr().out == line


def test_a_url_has_brackets_around_an_ipv6_address():
    assert host_and_port("::1", 8501) == "[::1]:8501"
    assert host_and_port("127.0.0.1", 8501) == "127.0.0.1:8501"


@pytest.mark.parametrize("kind", ["export", "run"])
def test_serve_names_a_missing_package_before_it_exports_a_run(
    exported, trained_run, kind, monkeypatch, capsys
):
    model = exported if kind == "export" else trained_run.path
    monkeypatch.setattr(
        translators, "load_translator", lambda *_, **__: pytest.fail("it exports")
    )
    monkeypatch.setitem(sys.modules, "flask", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "tf_transformer.serving.server", raising=False)
    monkeypatch.delattr(serving, "server", raising=False)
    assert main(["serve", str(model), "--port", "0"]) == 1
    assert capsys.readouterr().err == (
        "error: serve needs flask, which is not installed: "
        'pip install "tf-transformer[serve]"\n'
    )


@pytest.fixture
def temporary_export(monkeypatch, tmp_path) -> Callable:
    """Exports a run whose translator `load` makes, with or without LiteRT."""

    def export(load: Callable, litert: bool) -> contextlib.AbstractContextManager:
        monkeypatch.setattr(translators, "load_translator", load)
        for name in ("given_options", "decoding_config", "advise_litert"):
            monkeypatch.setattr(serve, name, Mock(return_value={}))
        return serve._temporary_export(tmp_path, SimpleNamespace(litert=litert))

    return export


def test_no_model_is_kept_beside_the_export_of_a_run(temporary_export):
    """Its weights would be in memory twice."""
    kept = []

    def load(*_, **__) -> Mock:
        model = Mock(**{"export.return_value": "folder"})
        model.engine.compiles.return_value = False
        kept.extend(map(weakref.ref, (model, model.engine)))
        return model

    with temporary_export(load, litert=False):
        gc.collect()
        assert [model() for model in kept] == [None, None]


def test_a_run_that_searches_in_litert_is_loaded_once(temporary_export):
    exported, model = [], Mock()
    lite, model.export = model.engine, lambda _: exported.append(model.engine)
    load = Mock(return_value=model)
    with temporary_export(load, litert=True) as (_, translator):
        assert translator.engine is lite
    assert exported == [lite.graph] and load.call_count == 1


def test_a_server_withstands_every_kind_of_request(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "SESSION", 5)
    monkeypatch.setattr(requests, "GRACE", 0.5)  # of long requests, which nobody reads
    shutil.copytree(exported, tmp_path / "model" / "1")
    outcomes = list(itertools.islice(requests.tries(Lab(tmp_path, 1)), 5 + 2))
    assert [one for one in outcomes if not one.held] == []
    kinds = {"malformed", "mutated", "huge", "held", "many", "memory", "end"}
    assert {one.what for one in outcomes} == kinds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--languages en:de,de:en", "--languages must have SOURCE:TARGET of each model, 1,"),
        ("--languages en-de", "--languages must have SOURCE:TARGET .* Received: 'en-de'"),
        ("EXPORT", "Each model must have its own name. Received: small, small"),
    ],
)
def test_languages_and_names_of_several_models_are_checked(
    exported, arguments, message, capsys
):
    arguments = arguments.replace("EXPORT", str(exported)).split()
    assert main(["serve", str(exported), *arguments, "--port", "0"]) == 1
    assert re.match(f"error: {message}", capsys.readouterr().err)


def test_two_models_are_served_by_their_languages(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "back" / "1")
    command = [*TF_TRANSFORMER, "serve", str(exported), str(tmp_path / "back"), "--port", "0"]
    command += ["--languages", "en:de,de:en"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=environment()
    ) as process:
        lines = "".join(process.stdout.readline().decode() for _ in range(4))
        ports = {*re.findall(r"serving \w+ version 1 on http://127\.0\.0\.1:(\d+)/", lines)}
        assert len(ports) == 1, lines
        port = int(ports.pop())
        records = json.loads(call(port, "GET", "/languages")[2])
        assert {one["code"]: one["targets"] for one in records} == {"en": ["de"], "de": ["en"]}
        body = json.dumps({"q": "The dog runs.", "source": "en", "target": "de"})
        sent = {"Content-Type": "application/json"}
        status, _, text = call(port, "POST", "/translate", body, **sent)
        assert status == 200 and json.loads(text)["translatedText"]
        assert call(port, "GET", "/v1/models/back")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
