"""The number of threads is measured before TensorFlow computes, and cached."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tf_transformer.config.presets import PRESETS
from tf_transformer.decoding.threads import numbers_to_try, use_threads
from tf_transformer.errors import UserError

MOST = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
has_choice = pytest.mark.skipif(MOST < 2, reason="a single core, or no Linux")

# Runs in another process, since this one has already computed. It imports TensorFlow but never
# computes: a fork of it answers each line, a load and an environment.
SCRIPT = """
import json, os, sys
import tensorflow as tf
from tf_transformer.config.presets import PRESETS
from tf_transformer.decoding.threads import use_threads
for line in sys.stdin:
    if not os.fork():
        load, environment = json.loads(line)
        os.environ.update(environment)
        os.getloadavg = lambda: (load, 0.0, 0.0)  # whatever else is running
        use_threads(None, PRESETS["tiny"], [1, 32])
        print(tf.config.threading.get_intra_op_parallelism_threads(), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit("the fork has failed")
"""


@pytest.fixture(scope="module")
def number_used() -> Iterator[Callable[..., int]]:
    """`number_used(folder, load, ...)`: the number that a new process with this cache uses."""
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def number(folder, load: float = 0.0, **environment: str) -> int:
            asked = [load, {"XDG_CACHE_HOME": str(folder)} | environment]
            print(json.dumps(asked), file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield number


@has_choice
def test_a_measured_number_is_cached_for_the_next_process(number_used, tmp_path):
    first = number_used(tmp_path)
    assert first in {1, min(4, MOST), MOST}
    file = tmp_path / "tf_transformer" / "threads.json"
    (key,) = kept = json.loads(file.read_text("utf-8"))
    assert kept == {key: first}
    file.write_text(json.dumps({key: MOST + 1 - first}))
    assert number_used(tmp_path) == MOST + 1 - first  # read, not measured
    file.write_text(json.dumps({key: True}))
    assert number_used(tmp_path) in {1, min(4, MOST), MOST}
    assert type(json.loads(file.read_text("utf-8"))[key]) is int  # measured again


@has_choice
def test_a_number_set_by_the_user_or_measured_on_a_busy_machine_is_not_cached(
    number_used, tmp_path
):
    assert number_used(tmp_path, load=9.0 * MOST) in {1, min(4, MOST), MOST}
    assert number_used(tmp_path, TF_NUM_INTRAOP_THREADS="3") == 0  # TensorFlow reads it
    assert not (tmp_path / "tf_transformer").exists()


def test_the_environment_leaves_no_choice(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert numbers_to_try() == [3]


def test_after_tensorflow_has_started_a_number_is_refused_and_none_is_measured(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level(logging.INFO)
    import tensorflow as tf

    assert tf.ones([]) == 1  # TensorFlow has started
    before = tf.config.threading.get_intra_op_parallelism_threads()
    use_threads(None, PRESETS["tiny"], [1])
    assert tf.config.threading.get_intra_op_parallelism_threads() == before
    assert not list(tmp_path.iterdir()) and not caplog.records
    with pytest.raises(UserError, match="before TensorFlow computes. Received: 7"):
        use_threads(7, PRESETS["tiny"], [1])
    with pytest.raises(UserError, match="`threads` must be an int from 1 to 1024"):
        use_threads(0, None, [1])
