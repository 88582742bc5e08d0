#!/usr/bin/env bash
# apache-beam 2.77.0: the local runner waits for ever for a worker process that was killed.
#
# Guess: with `--direct_running_mode=multi_processing`, a pipeline fails, or computes the bundle
# again, when a worker process is killed, as by the kernel for lack of memory.
# Behaviour: a thread of the runner raises "Worker subprocess exited with return code 137",
# which nobody waits for, and `pipeline.run` waits for the worker's answer for ever. A
# `threading.excepthook` learns of it, and can end the process.
# Seen:
#     holds: a thread reported RuntimeError: Worker subprocess exited with return code 137; the
#     pipeline was still waiting 60 s after its worker was killed
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet apache-beam==2.77.0
cat >"$scratch/finding.py" <<'PY'
import os
import signal
import sys
import threading
import time

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

started = os.path.join(sys.argv[1], "started")
reports, ended = [], threading.Event()


def work(number):
    with open(started, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(5)
    return number


def run():
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    options = [f"--runner={runner}", "--direct_running_mode=multi_processing"]
    options += ["--direct_num_workers=2", "--save_main_session"]
    try:
        with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
            pipeline | beam.Create(range(20)) | beam.Reshuffle() | beam.Map(work)
    finally:
        ended.set()


threading.excepthook = lambda event: reports.append(f"{event.exc_type.__name__}: {event.exc_value}")
threading.Thread(target=run, daemon=True).start()
while not (os.path.exists(started) and os.path.getsize(started)):
    time.sleep(0.1)
with open(started) as file:
    os.kill(int(file.readline()), signal.SIGKILL)
waits = not ended.wait(60)
holds = waits and any("return code 137" in report for report in reports)
print(
    "holds:" if holds else "changed:",
    f"a thread reported {reports[0] if reports else 'nothing'}; the pipeline",
    "was still waiting 60 s after its worker was killed" if waits else "ended",
    flush=True,
)
with open(started) as file:
    for pid in {int(line) for line in file}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
os._exit(not holds)
PY
"$venv/bin/python" "$scratch/finding.py" "$scratch"
