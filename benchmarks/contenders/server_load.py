"""`tf-transformer serve` under load: clients that send requests at the same time."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from harness.child import serve, status_bytes

from tf_transformer.base.errors import UserError
from tf_transformer.data import builtin

SECONDS_TO_START = 300


def setup(run: str, clients: int) -> dict:
    """Args:
    run: a run that translates from English.
    clients: number of requests at the same time.
    """
    log = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115
    command = [sys.executable, "-m", "tf_transformer.cli.main", "serve", run, "--port", "0"]
    environment = os.environ | {"TF_TRANSFORMER_PARENT": str(os.getpid())}
    server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    url = f"{_address(server, Path(log.name))}v1/models/{Path(run).name}:predict"
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(f"{builtin.write_splits(Path(folder))['train']}.en").read_text("utf-8")
    sentences, used = lines.splitlines(), {"cpu_seconds": 0.0, "faults": 0}

    def ask(seed: int) -> None:
        chosen = random.Random(seed)
        rows = [{"text": each} for each in chosen.sample(sentences, chosen.randint(1, 4))]
        body = json.dumps({"instances": rows}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            answers = json.load(answer)["predictions"]
        if len(answers) != len(rows):
            raise UserError(f"Expected {len(rows)} translations. Received: {len(answers)}.")

    def work(requests: int) -> dict:
        with ThreadPoolExecutor(clients) as pool:
            for _ in pool.map(ask, range(requests)):
                pass
        return {"requests": requests, "resident": status_bytes("VmRSS:", server.pid)}

    def of_server() -> dict:
        """Returns what the server has used since the last call, instead of this process."""
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])  # utime and stime
        now = {"cpu_seconds": ticks / os.sysconf("SC_CLK_TCK"), "faults": int(fields[7])}
        since = {name: value - used[name] for name, value in now.items()}
        used.update(now)
        return since | {"peak_bytes": status_bytes("VmHWM:", server.pid)}

    def forget() -> dict:
        with suppress(OSError):
            Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        return {}

    return {"work": work, "memory": of_server, "forget_peak": forget}


def _address(server: subprocess.Popen, log: Path) -> str:
    for _ in range(10 * SECONDS_TO_START):
        if found := re.search(r"http://\S+:\d+/", log.read_text("utf-8")):
            return found[0]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise UserError(f"The server did not start:\n{log.read_text('utf-8')}")


if __name__ == "__main__":
    serve(setup, "tensorflow")
