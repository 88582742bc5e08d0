"""Commands share the cores among batches computed at the same time; `load` leaves it alone."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf
from command_line import environment

from tf_transformer.decoding import threads as module
from tf_transformer.decoding.threads import lite_threads, most_streams, use_threads

# By cores and --threads: threads of an operation, and streams.
RULE = {
    (1, None): (1, 1),
    (2, None): (1, 2),
    (4, None): (1, 4),
    (6, None): (1, 4),
    (8, None): (2, 4),
    (64, None): (16, 4),
    (8, 3): (3, 2),
    (64, 1): (1, 4),
    (2, 9): (9, 1),
}

# Each runs in another process, since TensorFlow computes in this one.
USE_THREADS = """
import json, sys
import tensorflow as tf
from tf_transformer.decoding import threads
for cores, number in json.loads(sys.argv[1]):
    threads._cores = lambda: cores
    threads.use_threads(number)
    print(tf.config.threading.get_intra_op_parallelism_threads(), threads.most_streams())
"""
COMMAND = "main(['translate', sys.argv[1]])"
LOAD = "load(sys.argv[1]).translate('Good morning.')"
NUMBER = """
import sys
import tensorflow as tf
from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.decoding import threads
threads._cores = lambda: 12
{}
print(tf.config.threading.get_intra_op_parallelism_threads())
"""


def printed(code: str, argument: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        input="Good morning.\n",
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return done.stdout.splitlines()


def test_streams_and_the_threads_of_an_operation_share_the_cores():
    lines = printed(USE_THREADS, json.dumps([*RULE]))
    assert [tuple(map(int, line.split())) for line in lines] == [*RULE.values()]


@pytest.mark.parametrize(("use", "number"), [(COMMAND, "3"), (LOAD, "0")])
def test_commands_set_the_threads_and_load_does_not(trained_run, use, number):
    assert printed(NUMBER.format(use), str(trained_run.path))[-1] == number  # 0: all cores


def test_once_tensorflow_has_computed_its_number_stays():
    assert tf.ones([]) == 1
    before = tf.config.threading.get_intra_op_parallelism_threads()
    use_threads()
    use_threads(7)
    assert tf.config.threading.get_intra_op_parallelism_threads() == before


def test_a_gpu_computes_one_stream_with_the_threads_of_tensorflow(monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: 8)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", None)
    use_threads()
    assert most_streams() == 1


@pytest.mark.parametrize(
    ("cores", "width", "threads"), [(1, 512, 1), (2, 1024, 2), (8, 512, 4), (8, 256, 1)]
)
def test_in_litert_only_wide_models_use_several_threads(cores, width, threads, monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: cores)
    assert lite_threads(width) == threads
