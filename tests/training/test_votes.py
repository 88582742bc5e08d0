"""Workers: one decides alone, several decide together."""

import signal

import pytest
from replicas import strategy_of

from tf_transformer.training.interruption import Stopper
from tf_transformer.training.workers import Workers


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


def test_sums_are_over_workers_and_not_over_replicas(pair):
    assert pair.all_reduce(3.5, 1.0) == [7.0, 2.0]
    assert Workers(strategy_of(4), number=2).all_reduce(3.5) == [7.0]


@pytest.mark.parametrize("save", [True, False])
@pytest.mark.parametrize("status", [None, 0, 128 + signal.SIGTERM])
def test_a_vote_is_one_decision_and_keeps_a_workers_reason(pair, save, status):
    stopper = Stopper()
    if status is not None:
        stopper.reason, stopper.status = "its reason", status
    assert pair.vote(stopper, save) == (status is not None, save)
    expected = ("", 0) if status is None else ("its reason", status)
    assert (stopper.reason, stopper.status) == expected


def test_only_the_chief_has_states_saved_and_values_taken():
    """Clocks differ: a worker whose time to save has come does not make the others wait."""
    workers = Workers(strategy_of(2), number=2)
    workers.is_chief = False  # both of the two, so nobody is
    assert workers.vote(Stopper(), save=True) == (False, False)
    assert workers.from_chief(7) == 0
