"""Starts a server with the given command line and prints its answer to a request."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

command = [*sys.argv[1:], "--port", "0", "--name", "model"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    try:
        lines = iter(server.stdout.readline, "")
        address = next(filter(None, (re.search(r"http://\S+:\d+/", line) for line in lines)))
        text = Path("in.en").read_text("utf-8").splitlines()
        body = {"signature_name": "nbest", "inputs": {"text": text}}
        url = f"{address[0]}v1/models/model:predict"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=120) as answer:
            print(json.dumps(json.load(answer), sort_keys=True))
    finally:
        server.terminate()
