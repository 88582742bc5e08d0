"""The folder serving/: its scripts, and files that agree with the package and the guides."""

import configparser
import dataclasses
import http.server
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from command_line import ROOT
from http_calls import call, predict
from packaging.requirements import Requirement
from prometheus_client.parser import text_string_to_metric_families

from tf_transformer.cli.main import command_parser
from tf_transformer.export import saved_model
from tf_transformer.export.publishing import BATCHING_PARAMETERS

pytest.importorskip("flask")
pytest.importorskip("matplotlib")
pytest.importorskip("tensorflow_serving.apis")

sys.path.insert(0, str(ROOT / "serving"))
import load_test
import proof
import run_savedmodel
import script

SERVING = ROOT / "serving"
Answer = Callable[[dict], tuple[int, dict]]  # a request's record to a status and a record


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serves `answer` over HTTP; yields the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, record = answer(json.loads(body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(record).encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


# --- load_test.py and run_savedmodel.py --------------------------------------------------


def test_latencies_are_null_if_nothing_was_answered(tmp_path):
    client = script.Client("http://127.0.0.1:1", "small")
    point = load_test.measure(client, ["a"], clients=2, size=1, seconds=0.05)
    assert point.errors > 0
    record = json.loads(json.dumps(dataclasses.asdict(point), allow_nan=False))
    assert [record[name] for name in ("p50", "p95", "p99")] == [None] * 3
    assert record["sentences_a_second"] == record["requests"] == 0
    load_test.draw([point], tmp_path / "load.png")
    assert (tmp_path / "load.png").stat().st_size > 0


ODD = "one\u2028still one\x85and\x0bon\r\ntwo\n"  # five lines to str.splitlines


def test_a_text_is_split_only_at_newlines(tmp_path, monkeypatch):
    """The first request has up to eight lines of the file."""
    asked = []

    def refuse(record: dict) -> tuple[int, dict]:
        asked.append(record["inputs"]["text"])
        return 500, {}

    (tmp_path / "in.en").write_bytes(ODD.encode())
    with answering(refuse) as url:
        arguments = ["load_test.py", url, "small", str(tmp_path / "in.en")]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match=f"^error: {url} does not answer: 500"):
            runpy.run_path(str(SERVING / "load_test.py"), run_name="__main__")
    assert asked[0] == ["one\u2028still one\x85and\x0bon", "two"]


def test_run_savedmodel_answers_line_by_line(exported):
    program = [sys.executable, str(SERVING / "run_savedmodel.py"), str(exported)]
    text = b"\xef\xbb\xbf" + ODD.encode()
    done = subprocess.run(program, input=text, capture_output=True, check=True)
    assert len(done.stdout.split(b"\n")) == 2 + 1
    assert run_savedmodel._lines(b"") == []


def test_run_savedmodel_needs_a_model_and_tensorflow_text(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run_savedmodel.py"])
    with pytest.raises(SystemExit, match="^usage: "):
        run_savedmodel.main()
    monkeypatch.setattr(sys, "argv", ["run_savedmodel.py", "model"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="tensorflow_text is not installed"):
        run_savedmodel.main()


# --- The client of script.py, and proof.py -----------------------------------------------


OK, BUSY = (200, {"outputs": {"translation": ["ein Text"], "score": [-1.0]}}), (503, {})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([BUSY, OK], OK[1]["outputs"]),
        ([BUSY], "503"),
        ([(404, {})], "404"),
        ([(200, {"outputs": {"translation": []}})], "ValueError"),
        ([(200, {"error": ""})], "KeyError"),
    ],
)
def test_only_a_busy_server_is_asked_again(answers, expected, monkeypatch):
    """The last answer is repeated."""
    monkeypatch.setattr(script.time, "sleep", lambda seconds: None)
    sent = []

    def answer(_: dict) -> tuple[int, dict]:
        sent.append(answers[min(len(sent), len(answers) - 1)])
        return sent[-1]

    with answering(answer) as url:
        client = script.Client(url, "small")
        try:
            found = script.patiently(lambda: client.predict({"text": ["a text"]}), 0.05)
        except script.ServerError as error:
            found = error.code
    assert found == expected
    assert (len(sent) > 1) == (BUSY in answers)


@pytest.mark.parametrize(
    ("file", "message"),
    [("none.en", "none.en cannot be read: No such file"), ("blank.en", "must have a line")],
)
def test_a_mistake_is_reported_on_one_line(file, message, tmp_path, monkeypatch):
    (tmp_path / "blank.en").write_text(" \n\n")
    monkeypatch.setattr(sys, "argv", ["load_test.py", "http://127.0.0.1:1", "small", file])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SERVING / "load_test.py"), run_name="__main__")
    assert re.match(f"error: .*{message}[^\n]*$", str(end.value.code))


def test_a_proof_names_the_outputs_that_differ(
    port, exported, session, trained_run, monkeypatch
):
    """TensorFlow's answers come from the session behind the server, to prepare it once."""
    monkeypatch.setattr(saved_model, "ExportEngine", lambda _: nullcontext(session))

    class Tampered(script.Client):
        def predict(self, inputs, signature):
            outputs = super().predict(inputs, signature)
            if signature == "score":
                outputs["log_prob"] = [value + 0.1 for value in outputs["log_prob"]]
            return outputs

    url, warm = f"http://127.0.0.1:{port}", proof.warm_up_requests(exported)
    requests = warm + proof.text_requests(trained_run.lines("dev.en")[:10])
    assert len(requests) == 12 + 2
    assert proof.differences(script.Client(url, "small"), exported, requests) == []
    some = [one for one in warm if one[0] in ("score", "tokens")]
    wrong = proof.differences(Tampered(url, "small"), exported, some)
    assert set(wrong) == {"score: log_prob"}


def test_without_docker_one_line_says_so(tmp_path):
    command = [sys.executable, str(SERVING / "proof.py"), "exported/mine", "in.en"]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "The proof needs Docker, which this machine lacks: nothing was run.\n"


# --- The guides, and the files that start TF Serving -------------------------------------


def test_the_guide_names_every_input_and_output(session):
    text = (ROOT / "docs" / "guides" / "exporting.md").read_text("utf-8")
    for name, signature in session.signatures.items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|(.*)\|$", text, re.MULTILINE)
        for cell, known in zip(row, (signature.inputs, signature.outputs), strict=True):
            named = set(re.findall(r"`(\w+)`", cell)) - {"nbest"}
            if "as `nbest`" in cell:
                named |= set(session.signatures["nbest"].outputs)
            assert named == set(known), name


def test_the_guide_names_every_option_of_serve():
    parser = command_parser("serve")
    options = {name for action in parser._actions for name in action.option_strings}
    options -= {"-h", "--help", "--name", "--traceback"}
    page = (ROOT / "docs" / "guides" / "serving.md").read_text("utf-8")
    assert not [name for name in options if f"`{name}" not in page]


def test_tf_serving_can_read_the_version_labels():
    config = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    from google.protobuf import text_format

    text = (SERVING / "config" / "models.config").read_text("utf-8")
    (model,) = text_format.Parse(text, config.ModelServerConfig()).model_config_list.config
    versions = set(model.model_version_policy.specific.versions)
    assert set(model.version_labels.values()) <= versions
    assert set(model.version_labels) == {"stable", "canary"}


def launch_files() -> dict[str, str]:
    """Returns the text of each file that starts TF Serving."""
    names = ("compose.yaml", "docker-run.sh", "kubernetes.yaml")
    return {name: (SERVING / name).read_text("utf-8") for name in names}


def test_all_files_start_the_server_with_the_same_flags_and_configuration():
    flag = re.compile(r"--(?:enable|tensorflow|batching|monitoring|model_config|allow)[\w./=]*")
    flags = {name: set(flag.findall(text)) for name, text in launch_files().items()}
    assert flags["compose.yaml"] == flags["kubernetes.yaml"] > flags["docker-run.sh"]
    assert "--tensorflow_intra_op_parallelism=2" in flags["docker-run.sh"]
    mounted = {path.name for path in (SERVING / "config").iterdir()}
    for name, text in launch_files().items():
        assert "tensorflow/serving:2.20.0" in text
        named = set(re.findall(r"=/config/([\w.]+)", text))
        assert named == mounted - ({"models.config"} if name == "docker-run.sh" else set())
    batching = (SERVING / "config" / "batching_params.pbtxt").read_text("utf-8")
    assert batching == BATCHING_PARAMETERS


def test_the_limits_of_containers_agree_with_each_other_and_the_guide():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((SERVING / "compose.yaml").read_text("utf-8"))["services"]
    deployment, _ = yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text("utf-8"))
    pod = deployment["spec"]["template"]["spec"]
    assert (service["serving"]["mem_limit"], service["serving"]["cpus"]) == ("6g", 2)
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "6Gi"}
    assert service["serving"]["stop_grace_period"] == "45s"
    assert pod["terminationGracePeriodSeconds"] == 45
    assert "--cpus 2 --memory 6g --stop-timeout 45" in launch_files()["docker-run.sh"]
    page = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    for said in ("| 6 GB of memory |", "| 2 CPUs, and ", "| 45 s to shut down |"):
        assert said in page
    for one in service.values():
        assert all(port.startswith("127.0.0.1:") for port in one["ports"])


def test_kubernetes_accepts_every_object():
    """According to the OpenAPI schemas of two releases, in which unknown fields are errors."""
    validate = pytest.importorskip("kubernetes_validate").validate
    yaml = pytest.importorskip("yaml")
    objects = list(yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text("utf-8")))
    assert [item["kind"] for item in objects] == ["Deployment", "Service"]
    for item in objects:
        for release in ("1.29", "1.34"):
            validate(item, release, strict=True)


def test_compose_accepts_the_file():
    """According to the Compose Specification's schema, in which unknown fields are errors."""
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    file = SERVING / "compose.yaml"
    subprocess.run([*command, "vendor.compose-spec", str(file)], check=True)


# --- The files that start and watch the built-in server ----------------------------------


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.light"])
def test_image_and_unit_start_serve_and_leave_it_time_to_answer(name):
    image = (SERVING / name).read_text("utf-8")
    (entry,), command = (
        json.loads(re.search(rf"^{word} (.*)", image, re.MULTILINE)[1])
        for word in ("ENTRYPOINT", "CMD")
    )
    unit = configparser.ConfigParser()
    unit.read_string((SERVING / "tf-transformer.service").read_text("utf-8"))
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert (entry, Path(program).name) == ("tf-transformer",) * 2
    for (first, *given), most in (
        (command, re.search(r"--stop-timeout (\d+)", image)[1]),
        (arguments, unit["Service"]["TimeoutStopSec"]),
    ):
        assert first == "serve"
        assert command_parser("serve").parse_args(given).grace + 10 < int(most)
    for name in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE):
        assert all((ROOT / one).exists() for one in name.split())


def test_the_image_installs_versions_that_the_package_accepts():
    lines = (SERVING / "constraints.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    for section in (setup["options"]["install_requires"], extras["serve"], extras["plot"]):
        for text in re.findall(r"^[a-z].*", section, re.MULTILINE):
            requirement = Requirement(text)
            assert pinned[requirement.name] in requirement.specifier
    assert "-c /src/constraints.txt" in (SERVING / "Dockerfile").read_text("utf-8")
    light = (ROOT / "requirements-light.txt").read_text("utf-8")
    for text in re.findall(r"^[a-z].*", light, re.MULTILINE):
        requirement = Requirement(text)
        assert pinned[requirement.name] in requirement.specifier
    image = (SERVING / "Dockerfile.light").read_text("utf-8")
    assert "-c /src/constraints.txt -r /src/requirements-light.txt" in image


def test_systemd_accepts_the_unit(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    text = (SERVING / "tf-transformer.service").read_text("utf-8")
    unit = tmp_path / "tf-transformer.service"
    unit.write_text(text.replace("/opt/tf-transformer/bin/tf-transformer", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_alerts_are_about_metrics_that_the_server_has(port):
    """Names and labels of the page, on which a counter of refusals must be from the start."""
    yaml = pytest.importorskip("yaml")
    predict(port, "A dog.")
    page = call(port, "GET", "/monitoring/prometheus/metrics")[2]
    samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
    folder = SERVING / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    (file,) = config["rule_files"]
    (group,) = yaml.safe_load((folder / file).read_text("utf-8"))["groups"]
    guide = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    for rule in group["rules"]:
        assert rule["alert"] in guide
        pattern = r"\b(up|(?:process|tf_transformer)_\w+)(?:\{([^}]*)\})?"
        for metric, labels in re.findall(pattern, rule["expr"]):
            matchers = dict(re.findall(r'(\w+)=~?"([^"]*)"', labels))
            assert matchers.pop("job", job["job_name"]) == job["job_name"]
            known = [one.labels for one in samples if one.name == metric]
            assert known or metric == "up", metric
            for label, values in matchers.items():
                assert set(values.split("|")) <= {one[label] for one in known}, rule["alert"]
