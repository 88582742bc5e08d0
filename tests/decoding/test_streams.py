"""Sentences batched by length, several batches at a time, and the threads they share."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from command_line import environment

from tf_transformer import load
from tf_transformer.base import parallel
from tf_transformer.decoding import streams as module
from tf_transformer.decoding.streams import (
    by_length,
    in_batches,
    lite_beams,
    lite_threads,
    most_streams,
    padded,
    use_threads,
)


@pytest.mark.parametrize("positions", [0, 7, 40, 1000])
def test_every_row_is_in_one_batch_of_bounded_size(positions):
    lengths = np.random.default_rng(0).integers(1, 30, 200).tolist()
    batches = list(by_length(lengths, positions))
    assert sorted(row for rows in batches for row in rows) == list(range(200))
    longest = [lengths[rows[0]] for rows in batches]
    assert longest == sorted(longest, reverse=True)
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= positions


def test_rows_are_padded_at_the_end():
    rows = [np.array([5, 6, 3]), np.array([3]), np.array([], "int32")]
    assert padded(rows).tolist() == [[5, 6, 3], [3, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_every_row_is_computed_and_reported_in_order(streams):
    lengths, done = np.random.default_rng(1).integers(1, 30, 57).tolist(), []
    results = in_batches(lengths, 100, tuple, done.append, streams=streams)
    rows = []
    for batch, result in results:
        assert result == tuple(batch)
        rows += batch
    assert sorted(rows) == list(range(57))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    assert done == sorted(set(done)) and done[-1] == 57


def test_streams_compute_at_the_same_time_and_share_the_positions():
    both, sizes = threading.Barrier(2, timeout=20), []

    def compute(rows):
        sizes.append(len(rows))
        both.wait()  # returns only when two batches are being computed

    lengths = [24, 22, 20, 18, 16, 14, 12, 10, 9, 8]
    assert len(list(in_batches(lengths, 1_000, compute, streams=2))) == 2
    assert sizes == [5, 5]
    sizes.clear()
    list(in_batches([5] * 16, 40, compute, streams=2))
    assert sizes == [4, 4, 4, 4]
    both = threading.Barrier(1)
    assert len(list(in_batches([5] * 7, 1_000, compute, streams=2))) == 1  # too few for two
    for streams in (1, 2):
        sizes.clear()
        list(in_batches([5] * 10, 1_000, compute, streams=streams, most_rows=4))
        assert sorted(sizes) == [2, 4, 4]


def test_after_an_error_no_waiting_batch_is_started():
    begun, failed = [], threading.Event()

    def compute(rows):
        begun.append(rows)
        if len(begun) == 1:
            raise ValueError("broken")
        assert failed.wait(20)

    def consume():
        for _ in in_batches([1] * 4_000, 8, compute, streams=2):
            pass

    threading.Timer(0.3, failed.set).start()
    with pytest.raises(ValueError, match="broken"):
        consume()
    assert len(begun) <= 3


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_a_stream_has_at_least_four_sentences(streams):
    numbers = [module.streams_for(sentences, streams) for sentences in (0, 1, 7, 8, 1_000)]
    assert numbers == [1, 1, 1, min(2, streams), streams]


def test_the_cpu_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "_CPU_LIMIT", tmp_path / "cpu.max")
    all_cores = parallel.usable_cores()  # there is no such file
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert parallel.usable_cores() == all_cores
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert parallel.usable_cores() == 1


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

# In another process, since TensorFlow computes in this one, and then keeps its number.
USE_THREADS = """
import json, sys
import tensorflow as tf
from tf_transformer.cli.main import main
from tf_transformer.decoding import streams
for cores, number in json.loads(sys.argv[1]):
    streams.usable_cores = lambda: cores
    streams.use_threads(number)
    print(tf.config.threading.get_intra_op_parallelism_threads(), streams.most_streams())
streams.usable_cores = lambda: 12
main(["translate", sys.argv[2]])
print(tf.config.threading.get_intra_op_parallelism_threads(), streams.most_streams())
"""


def test_commands_share_the_cores_among_streams_and_the_threads_of_an_operation(trained_run):
    done = subprocess.run(
        [sys.executable, "-c", USE_THREADS, json.dumps([*RULE]), str(trained_run.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert lines == [*RULE.values(), (3, 4)]


def test_load_leaves_the_threads_to_the_program(trained_run, monkeypatch):
    called = []
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", called.append)
    load(trained_run.path)
    assert called == []
    use_threads(7)
    assert called == [7]


def test_once_tensorflow_has_computed_its_number_stays():
    assert tf.ones([]) == 1
    before = tf.config.threading.get_intra_op_parallelism_threads()
    use_threads()
    use_threads(7)
    assert tf.config.threading.get_intra_op_parallelism_threads() == before


def test_a_gpu_computes_one_stream_with_the_threads_of_tensorflow(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", None)
    use_threads()
    assert most_streams() == 1


@pytest.mark.parametrize(
    ("cores", "width", "threads"), [(1, 512, 1), (2, 1024, 2), (8, 512, 4), (8, 256, 1)]
)
def test_in_litert_only_wide_models_use_several_threads(cores, width, threads, monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    assert lite_threads(width) == threads
    assert (lite_beams(4, width // 4) == 64) == (width >= 512)
