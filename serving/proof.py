"""Checks that TF Serving's image answers as TensorFlow does; needs Docker. It has never run.

    python serving/proof.py exported/mine in.en

Starts the image with docker-run.sh, sends the warm-up requests and the text over REST, and
names the outputs that differ.
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from script import Client, patiently, run, sentences

from tf_transformer.base.errors import UserError
from tf_transformer.export.versions import find_export

REST = "http://127.0.0.1:8501"
SECONDS_TO_START = 300
ROWS = 8  # per request

Request = tuple[str, Mapping[str, np.ndarray]]  # a signature and its inputs


@contextlib.contextmanager
def started(base: Path) -> Iterator[None]:
    """Runs the server; begins when the model is available."""
    script = Path(__file__).resolve().with_name("docker-run.sh")
    with subprocess.Popen(["sh", str(script), str(base)]) as server:
        try:
            end = time.monotonic() + SECONDS_TO_START
            while not _is_available(base.name):
                if server.poll() is not None or time.monotonic() > end:
                    raise UserError(f"TF Serving did not make {base.name} available.")
                time.sleep(1.0)
            yield
        finally:
            server.terminate()


def _is_available(name: str) -> bool:
    with contextlib.suppress(OSError):
        answer = urllib.request.urlopen(f"{REST}/v1/models/{name}", timeout=5)
        return b"AVAILABLE" in answer.read()
    return False


def warm_up_requests(folder: Path) -> list[Request]:
    """Returns the requests of an export's warm-up file."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    from tf_transformer.export.publishing import WARM_UP

    requests = []
    for record in tf.data.TFRecordDataset(str(folder / WARM_UP)):
        one = PredictionLog.FromString(record.numpy()).predict_log.request
        inputs = {name: tf.make_ndarray(proto) for name, proto in one.inputs.items()}
        requests.append((one.model_spec.signature_name, inputs))
    return requests


def text_requests(lines: list[str]) -> list[Request]:
    """Returns the requests for a text, in batches of `ROWS` lines."""
    batches = [lines[start : start + ROWS] for start in range(0, len(lines), ROWS)]
    return [("serving_default", {"text": np.array(batch, object)}) for batch in batches]


def differences(client: Client, folder: Path, requests: list[Request]) -> list[str]:
    """Returns the outputs that differ from TensorFlow's."""
    from tf_transformer.decoding.interface import plain_lists
    from tf_transformer.export.saved_model import ExportEngine

    wrong = []
    with ExportEngine(folder) as session:
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


def main() -> None:
    """Runs the checks; exits with 1 if something differs, or there is no Docker."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="folder of the versions of an export")
    parser.add_argument("text", type=Path, help="a file of sentences")
    options = parser.parse_args()
    if not shutil.which("docker"):
        sys.exit("The proof needs Docker, which this machine lacks: nothing was run.")
    base = options.model.resolve()
    folder = find_export(base)
    if folder is None:
        raise UserError(f"{base} must be an export. Received: a run. Export it first.")
    requests = warm_up_requests(folder) + text_requests(sentences(options.text))
    with started(base):
        wrong = differences(Client(REST, base.name), folder, requests)
    print(f"{len(requests)} requests; outputs that differ: {', '.join(wrong) or 'none'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    run(main)
