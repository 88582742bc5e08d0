"""Checks an export in TF Serving's own image; needs Docker.

    python serving/proof.py exported/mine in.en --report serving-proof.md

Starts the image with docker-run.sh, sends the warm-up requests and the text over REST, compares
the answers with TensorFlow's, runs a short load test and writes a report.
"""

import argparse
import contextlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from load_test import Point, measure
from script import Client, patiently, run

from tf_transformer.data.text import read_lines
from tf_transformer.errors import UserError
from tf_transformer.export.versions import find_export
from tf_transformer.files import write_text

HERE = Path(__file__).resolve().parent
REST = "http://127.0.0.1:8501"
SECONDS_TO_START = 300
ROWS = 8  # per request

Request = tuple[str, Mapping[str, np.ndarray]]  # a signature and its inputs


@contextlib.contextmanager
def started(base: Path) -> Iterator[Path]:
    """Runs the server; yields its log file once the model is available."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            command = ["sh", str(HERE / "docker-run.sh"), str(base)]
            server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait(server, base.name, log)
            yield log
        finally:
            server.terminate()
            server.wait(60)


def _wait(server: subprocess.Popen, name: str, log: Path) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError):
            state = urllib.request.urlopen(f"{REST}/v1/models/{name}", timeout=5).read()
            if b"AVAILABLE" in state:
                return
        time.sleep(1.0)
    last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    raise UserError(f"TF Serving did not make {name} available. Its last line: {last}")


def warm_up_requests(folder: Path) -> list[Request]:
    """Returns the requests of an export's warm-up file."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    from tf_transformer.export.warmup import FILE

    records = tf.data.TFRecordDataset(str(folder / FILE))
    requests = [
        PredictionLog.FromString(record.numpy()).predict_log.request for record in records
    ]
    return [
        (
            request.model_spec.signature_name,
            {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()},
        )
        for request in requests
    ]


def text_requests(lines: list[str]) -> list[Request]:
    """Returns the requests for a text, in batches of `ROWS` lines."""
    batches = [lines[start : start + ROWS] for start in range(0, len(lines), ROWS)]
    return [("serving_default", {"text": np.array(batch, object)}) for batch in batches]


def differences(client: Client, folder: Path, requests: list[Request]) -> list[str]:
    """Returns the outputs that differ from TensorFlow's."""
    from tf_transformer.export.session import SavedModelSession, plain_lists

    wrong = []
    with SavedModelSession(folder) as session:
        for signature, inputs in requests:
            columns = {name: plain_lists(array.tolist()) for name, array in inputs.items()}
            received = patiently(lambda c=columns, s=signature: client.predict(c, s), 60.0)
            for name, values in session.run(signature, inputs).items():
                if not _same(plain_lists(values.tolist()), received.get(name)):
                    wrong.append(f"{signature}: {name}")
    return wrong


def _same(expected: list, received: list | None) -> bool:
    if received is None or np.shape(expected) != np.shape(received):
        return False
    if np.asarray(expected).dtype.kind != "f":
        return expected == received
    return bool(np.allclose(expected, received, rtol=1e-4, atol=1e-3))


def report(
    name: str, version: str, checks: dict[str, tuple[int, list[str]]], points: list[Point]
) -> str:
    """Returns the report as Markdown."""
    rows = [
        f"| {p.clients} | {p.sentences_a_request} | {p.requests} | {p.errors} | {p.p50:.0f} ms "
        f"| {p.p99:.0f} ms | {p.sentences_a_second:.1f} |"
        for p in points
        if p.p50 is not None and p.p99 is not None
    ]
    compared = [
        f"- {number:,} requests {kind}; outputs that differ from TensorFlow here: "
        f"{', '.join(wrong) or 'none'}"
        for kind, (number, wrong) in checks.items()
    ]
    return "\n".join([
        f"# TF Serving with {name}", "",
        f"{version}; {platform.machine()}, {time.strftime('%Y-%m-%d')}.", "", *compared, "",
        "| clients | sentences a request | requests | errors | p50 | p99 | sentences/s |",
        "|---|---|---|---|---|---|---|", *rows, "",
    ])  # fmt: skip


def prove(base: Path, lines: list[str], version: str, seconds: float) -> tuple[str, bool]:
    """Runs all checks at `REST`; returns the report, and whether all passed."""
    folder = find_export(base)
    if folder is None:
        raise UserError(f"{base} must be an export. Received: a run. Export it first.")
    client = Client(REST, base.name)
    requests = {"of the warm-up": warm_up_requests(folder), "of the text": text_requests(lines)}
    checks = {
        kind: (len(group), differences(client, folder, group))
        for kind, group in requests.items()
    }
    points = [measure(client, lines, n, ROWS, seconds) for n in (1, 4, 16)]
    passed = not any(wrong for _, wrong in checks.values())
    passed = passed and not any(point.errors for point in points)
    return report(base.name, version, checks, points), passed


def main() -> None:
    """Runs the checks; exits with 1 if something differs, or there is no Docker."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="folder of the versions of an export")
    parser.add_argument("text", type=Path, help="a file of sentences")
    parser.add_argument("--report", type=Path, default=Path("serving-proof.md"))
    parser.add_argument("--seconds", type=float, default=5.0, help="per load")
    options = parser.parse_args()
    if not shutil.which("docker"):
        sys.exit("The proof needs Docker, which this machine lacks: nothing was run.")
    base = options.model.resolve()
    with started(base) as log:
        text, passed = prove(base, list(read_lines(options.text)), _image(), options.seconds)
        warm = re.findall(r".*[Ww]arm-?up.*", log.read_text("utf-8", "replace"))
    write_text(options.report, "\n".join([text, "```", *warm, "```", ""]))
    print(f"{'all passed' if passed else 'something differs'}: {options.report}")
    sys.exit(0 if passed else 1)


def _image() -> str:
    """Returns the image with its digest."""
    script = (HERE / "docker-run.sh").read_text("utf-8")
    (image,) = re.findall(r"tensorflow/serving:\S+", script)
    command = ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", image]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    run(main)
