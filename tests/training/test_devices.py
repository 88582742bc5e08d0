"""Devices, the chief, the rows that replicas get, and the decisions of workers."""

import json
import re
import signal

import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy_of

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.training import devices, sessions
from tf_transformer.training.devices import Workers
from tf_transformer.training.sessions import Stopper

WORKERS = ["one:12345", "two:12345"]


def tf_config(index: object, workers: object = WORKERS, **others: object) -> str:
    cluster = {"worker": workers, **others}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


@pytest.mark.parametrize(
    ("text", "workers", "chief"),
    [
        (None, 1, True),
        ("", 1, True),
        (tf_config(0), 2, True),
        (tf_config(1), 2, False),
        (tf_config(0, WORKERS[:1]), 1, True),
        (tf_config(2, ["a:1", "b:1", "c:1"]), 3, False),
    ],
)
def test_tf_config_determines_workers_and_chief(monkeypatch, text, workers, chief):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    assert (sessions.num_workers(), sessions.is_chief()) == (workers, chief)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"cluster": {"worker": 2}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}}',  # no task
        tf_config(2),
        tf_config("0"),
        tf_config(0, ps=["three:12345"]),
    ],
)
def test_an_invalid_tf_config_is_a_user_error(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="^TF_CONFIG cannot be used: .*Received: ") as error:
        sessions.num_workers()
    assert quoted(text) in str(error.value)
    with pytest.raises(UserError, match="TF_CONFIG"):
        devices.make_strategy()


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="counts CPUs")
@pytest.mark.parametrize("number", [None, 1, 2, 4])
def test_a_cpu_is_one_device_or_split_as_requested(number):
    strategy = devices.make_strategy(number)
    assert strategy.num_replicas_in_sync == (number or 1)
    assert isinstance(strategy, tf.distribute.MirroredStrategy) is ((number or 1) > 1)
    expected = rf"^CPU \(\d+ cores{f', split in {number}' if (number or 1) > 1 else ''}\)$"
    assert re.match(expected, devices.describe(strategy))


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="splits the CPU")
def test_devices_are_chosen_before_the_first_computation():
    tf.constant(0)
    with pytest.raises(UserError, match="restart the kernel. Received: devices=64, too late"):
        devices.make_strategy(64)


ROWS = [7, 1, 4]


def shares(replicas, num_replicas: int) -> tf.data.Dataset:
    """Makes batches whose row i of batch b is 100 b + i; each share is a separate element."""

    def elements():
        for batch, rows in enumerate(ROWS):
            ids = 100 * batch + np.arange(rows)
            for replica in replicas:
                yield ids[replica::num_replicas]

    spec = tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(elements, output_signature=spec)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_row_of_a_batch_goes_to_exactly_one_replica(replicas):
    strategy = strategy_of(replicas)
    iterator = iter(devices.distribute(strategy, shares))
    for batch, rows in enumerate(ROWS):
        parts = [np.array(p) for p in strategy.experimental_local_results(next(iterator))]
        assert len(parts) == replicas
        for replica, part in enumerate(parts):
            wanted = [100 * batch + row for row in range(replica, rows, replicas)]
            assert part.tolist() == wanted
        assert sorted(np.concatenate(parts)) == [100 * batch + row for row in range(rows)]


# --- Workers -----------------------------------------------------------------------------


def test_one_worker_decides_alone_and_waits_for_nobody():
    workers, stopper = Workers(strategy_of(2)), Stopper()
    assert workers.all_reduce(3.5) == [3.5]
    assert workers.from_chief(7) == 7
    assert workers.vote(stopper, save=True) == (False, True)
    stopper.reason = "Ctrl-C"
    assert workers.vote(stopper) == (True, False)
    reached = False
    with workers.chief_first():
        reached = True
    assert reached


@pytest.fixture(scope="module")
def pair() -> Workers:
    """Two workers in one process: both replicas hold the same numbers."""
    return Workers(strategy_of(2), number=2)


def test_sums_are_over_workers_not_over_replicas(pair):
    assert pair.all_reduce(3.5, 1.0) == [7.0, 2.0]
    assert Workers(strategy_of(4), number=2).all_reduce(3.5) == [7.0]


@pytest.mark.parametrize("save", [True, False])
@pytest.mark.parametrize("status", [None, 0, 128 + signal.SIGTERM])
def test_a_vote_is_one_decision_and_keeps_the_reason(pair, save, status):
    stopper = Stopper()
    if status is not None:
        stopper.reason, stopper.status = "its reason", status
    assert pair.vote(stopper, save) == (status is not None, save)
    expected = ("", 0) if status is None else ("its reason", status)
    assert (stopper.reason, stopper.status) == expected


def test_only_the_chief_decides_on_saving_and_shares_values():
    """Clocks differ: another worker's does not decide when to save."""
    workers = Workers(strategy_of(2), number=2)
    workers.is_chief = False  # neither of the two is
    assert workers.vote(Stopper(), save=True) == (False, False)
    assert workers.from_chief(7) == 0


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        (tf.errors.UnavailableError, UserError),
        (tf.errors.ResourceExhaustedError, tf.errors.ResourceExhaustedError),
    ],
)
def test_only_a_lost_worker_is_explained_as_one(monkeypatch, kind, raised):
    monkeypatch.setenv("TF_CONFIG", tf_config(0))
    with pytest.raises(raised), devices.lost_workers_explained():
        raise kind(None, None, "for this test")
