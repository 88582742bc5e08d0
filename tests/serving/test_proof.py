"""The proof of an export, on servers of ours in the place of TF Serving's image."""

import subprocess
import sys

import pytest
from command_line import ROOT

pytest.importorskip("tensorflow_serving.apis")

sys.path.insert(0, str(ROOT / "serving"))
import proof


@pytest.fixture(scope="module")
def places(port, grpc_server):
    return f"http://127.0.0.1:{port}", grpc_server[1]


def test_what_holds_is_reported(places, exported, trained_run, monkeypatch):
    monkeypatch.setattr(proof, "REST", places[0])
    monkeypatch.setattr(proof, "GRPC", places[1])
    lines = trained_run.lines("dev.en")[:10]
    text, held = proof.prove(exported.parent, lines, "an image", seconds=0.2)
    assert held
    assert text.startswith("# TF Serving with small\n\nan image; ")
    assert text.count("12 warm-up requests; outputs that differ from TensorFlow here: ") == 2
    assert "10 lines of text: REST and gRPC agree" in text
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 1 + 3


def test_what_differs_is_named(places, exported):
    class Tampered(proof.RestClient):
        def predict(self, signature, inputs):
            outputs = super().predict(signature, inputs)
            if signature == "score":
                outputs["log_prob"] = [value + 0.1 for value in outputs["log_prob"]]
            return outputs

    number, wrong = proof.differences(Tampered(places[0], "small", 60.0), exported)
    assert number == 12 and set(wrong) == {"score: log_prob"}


def test_without_docker_one_line_says_so(tmp_path):
    command = [sys.executable, str(ROOT / "serving" / "proof.py"), "exported/mine", "in.en"]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "The proof needs Docker, which this machine lacks: nothing was run.\n"
