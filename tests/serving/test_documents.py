"""The guides and the files in serving/ agree with the package and with each other."""

import re
import shutil
import subprocess

import pytest
from command_line import ROOT

from tf_transformer.cli.main import command_parser
from tf_transformer.export.publish import BATCHING_PARAMETERS

SERVING = ROOT / "serving"


def test_the_guide_names_every_input_and_output(session):
    text = (ROOT / "docs" / "guides" / "exporting.md").read_text("utf-8")
    for name, signature in session.signatures.items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|(.*)\|$", text, re.MULTILINE)
        for cell, known in zip(row, (signature.inputs, signature.outputs), strict=True):
            named = set(re.findall(r"`(\w+)`", cell)) - {"nbest"}
            if "as `nbest`" in cell:
                named |= set(session.signatures["nbest"].outputs)
            assert named == set(known), name


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


def test_all_files_start_the_server_with_the_same_flags():
    flag = re.compile(r"--(?:enable|tensorflow|batching|monitoring|model_config|allow)[\w./=]*")
    flags = {name: set(flag.findall(text)) for name, text in launch_files().items()}
    assert flags["compose.yaml"] == flags["kubernetes.yaml"] > flags["docker-run.sh"]
    assert "--tensorflow_intra_op_parallelism=2" in flags["docker-run.sh"]
    for text in launch_files().values():
        assert "tensorflow/serving:2.19.1" in text


def test_configuration_is_mounted_as_a_folder():
    mounted = {"models.config", "monitoring.config", "batching_params.pbtxt"}
    assert {path.name for path in (SERVING / "config").iterdir()} == mounted
    for name, text in launch_files().items():
        named = set(re.findall(r"=/config/([\w.]+)", text))
        assert named == mounted - ({"models.config"} if name == "docker-run.sh" else set())
    batching = (SERVING / "config" / "batching_params.pbtxt").read_text("utf-8")
    assert batching == BATCHING_PARAMETERS


def test_the_limits_of_containers_agree_with_each_other_and_the_guide():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((SERVING / "compose.yaml").read_text("utf-8"))["services"]
    deployment, *_ = yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text("utf-8"))
    pod = deployment["spec"]["template"]["spec"]
    assert service["serving"]["mem_limit"] == "6g"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "6Gi"}
    assert service["serving"]["cpus"] == 2
    assert service["serving"]["stop_grace_period"] == "45s"
    assert pod["terminationGracePeriodSeconds"] == 45
    assert "--cpus 2 --memory 6g --stop-timeout 45" in launch_files()["docker-run.sh"]
    page = (ROOT / "docs" / "guides" / "serving.md").read_text("utf-8")
    for said in ("| 6 GB of memory |", "| 2 CPUs, and ", "| 45 s to shut down |"):
        assert said in page
    for one in service.values():
        assert all(port.startswith("127.0.0.1:") for port in one["ports"])
        assert re.search(r":v?\d+\.\d+\.\d+$", one["image"])
        assert not [source for source in one["volumes"] if re.match(r"\.[\w./]*\.\w+:", source)]


def test_the_guide_names_every_option_of_serve():
    parser = command_parser("serve")
    options = {name for action in parser._actions for name in action.option_strings}
    page = (ROOT / "docs" / "guides" / "serving.md").read_text("utf-8")
    assert not [name for name in options - {"-h", "--help", "--name"} if f"`{name}" not in page]


def test_kubernetes_accepts_every_object():
    """According to the OpenAPI schemas of two releases, in which unknown fields are errors."""
    validate = pytest.importorskip("kubernetes_validate").validate
    yaml = pytest.importorskip("yaml")
    objects = list(yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text("utf-8")))
    assert [item["kind"] for item in objects] == [
        "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget",
        "NetworkPolicy",
    ]  # fmt: skip
    for item in objects:
        for release in ("1.29", "1.34"):
            validate(item, release, strict=True)


def test_docker_accepts_the_compose_file():
    compose = ["docker", "compose"]
    if not shutil.which("docker") or subprocess.run([*compose, "version"]).returncode:
        pytest.skip("needs docker with compose")
    subprocess.run([*compose, "-f", SERVING / "compose.yaml", "config", "-q"], check=True)
