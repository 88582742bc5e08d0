"""Workers that train together: they vote, wait for one another and share sums."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from tf_transformer.errors import UserError
from tf_transformer.training import devices
from tf_transformer.training.interruption import Stopper

_SECONDS_TO_FETCH = 5  # time for all workers to read the last all-reduce

# Errors that TensorFlow raises in the remaining workers when one is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)


class Workers:
    """This process as one of the workers of a strategy, each on its own machine.

    Every method that waits must be called by all workers; with a single one it returns at once.

    Args:
        strategy: made by `devices.make_strategy`; by default that of a single device.
        number: number of workers; by default that of TF_CONFIG.

    Attributes:
        is_chief: whether this worker writes the files.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, number: int | None = None
    ) -> None:
        self.strategy = strategy or tf.distribute.get_strategy()
        self.number = number or devices.num_workers()
        self.is_chief = devices.is_chief()

    def vote(self, stopper: Stopper, save: bool = False) -> tuple[bool, bool]:
        """Returns one decision for all workers: (stop, save).

        They stop if any of them has a reason to, and save when the chief wants to.
        """
        stop = bool(stopper.reason)
        if self.number == 1:
            return stop, save
        stops, saves, signals = self.all_reduce(
            stop, save and self.is_chief, stopper.status > 0
        )
        if stops:
            stopper.join(by_signal=signals > 0)
        return stops > 0, saves > 0

    def from_chief(self, value: float) -> float:
        """Returns the chief's value in every worker, exact for whole numbers below 2**24."""
        return self.all_reduce(value if self.is_chief else 0)[0]

    def barrier(self) -> None:
        """Waits until all workers have reached this point."""
        self.all_reduce(0.0)

    def final_barrier(self) -> None:
        """Keeps every worker alive until all have read the last all-reduce."""
        if self.number > 1:
            self.barrier()
            time.sleep(_SECONDS_TO_FETCH)

    @contextmanager
    def chief_first(self) -> Iterator[None]:
        """Makes the other workers wait until the chief has run the block."""
        if not self.is_chief:
            self.barrier()
        yield
        if self.is_chief:
            self.barrier()

    def all_reduce(self, *values: float) -> list[float]:
        """Returns the sums of the values over all workers."""
        if self.number == 1:
            return list(values)
        copies = self.strategy.num_replicas_in_sync // self.number
        sums = _sum_function(self.strategy)(tf.constant(values, "float32"))
        return (self.strategy.experimental_local_results(sums)[0].numpy() / copies).tolist()


@functools.cache
def _sum_function(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the all-reduce of a vector, traced only once since it runs at every step."""

    def in_replica(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def sums(values: tf.Tensor) -> tf.Tensor:
        return strategy.run(in_replica, args=(values,))

    return sums


@contextmanager
def lost_workers_explained() -> Iterator[None]:
    """Turns TensorFlow's errors about a lost worker into a UserError."""
    try:
        yield
    except _LOST as error:
        if devices.num_workers() == 1:
            raise
        raise UserError(
            f"Another worker has ended or cannot be reached ({type(error).__name__}). Restart "
            "all workers with the same command: training resumes from the last checkpoint."
        ) from error
