"""The number of threads that decodes fastest, measured once per machine and model.

Waking a thread can take longer than its share of a small model's step, so more threads are not
always faster. Cores that they leave idle compute other batches at the same time: N threads per
operation on C cores allow C // N streams, 4 at most. TensorFlow fixes N when it first computes.
So each number is measured before that, in a forked process, which need not import TensorFlow
again.
"""

import json
import logging
import math
import os
import platform
import select
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tf_transformer.config import Config, ModelConfig
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.errors import UserError
from tf_transformer.files import cache_folder, parse_json, replacing

logger = logging.getLogger(__name__)

MAX_THREADS = 1_024
_MAX_STREAMS = 4  # each needs memory, and more streams mean smaller batches
ONE, MANY = 1, 32  # sentences decoded at once
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, by Linux control groups
_SECONDS = 0.08  # for measuring one batch size, after the warm-up
_TIMEOUT = 10.0  # seconds for one measurement


def numbers_to_try() -> list[int]:
    """Returns the numbers of threads to measure: on Linux 1, 4 and all cores, else all cores.

    The environment variable TF_NUM_INTRAOP_THREADS overrides them.
    """
    decided = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    if decided.isdecimal() and int(decided):
        return [int(decided)]
    cores = _cores()
    if sys.platform != "linux":
        return [cores]
    return sorted({1, min(4, cores), cores})


def most_streams(threads: int | None = None) -> int:
    """Returns how many batches the cores can compute at the same time.

    Args:
        threads: threads per operation; by default TensorFlow's present number, and one batch at
            a time with a GPU.
    """
    if threads is None:
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            return 1
        decided = tf.config.threading.get_intra_op_parallelism_threads()
        threads = decided or numbers_to_try()[-1]
    return max(1, min(_cores() // threads, _MAX_STREAMS))


def streams_for(sentences: int, most: int | None = None) -> int:
    """Returns the number of batches to split sentences into, at most `most`, or `most_streams`.

    Each has at least four sentences, since a few cost hardly more than one.
    """
    parts = sentences // 4
    return max(1, min(most or most_streams(), parts)) if parts > 1 else 1


def _cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # without a limit the file begins with "max"
        microseconds, period = map(int, _CPU_LIMIT.read_text("utf-8").split())
        cores = min(cores, math.ceil(microseconds / period))
    return cores


def check_threads(threads: int | None) -> None:
    """Raises UserError if a number of threads is out of range."""
    if threads is not None:
        Setting(int, Bounds(low=1, high=MAX_THREADS)).check("threads", threads)


def use_threads(threads: int | None, config: Config | None, sentences: Sequence[int]) -> None:
    """Sets the number of threads that share an operation of TensorFlow.

    Args:
        threads: the number; None measures it, unless something else has decided: the
            environment variable TF_NUM_INTRAOP_THREADS, an earlier setting or computation of
            this process, or a GPU.
        config: configuration of the model and its search; if None, nothing is measured.
        sentences: batch sizes to measure, in sentences, which count equally.

    Raises:
        UserError: if `threads` is out of range, or TensorFlow has started with another number.
    """
    import tensorflow as tf

    threading = tf.config.threading
    check_threads(threads)
    if threads is not None:
        try:
            threading.set_intra_op_parallelism_threads(threads)
        except RuntimeError:
            raise UserError(
                "The number of threads must be set before TensorFlow computes. Received: "
                f"{threads}, after TensorFlow has started. Set it first, or in a new process."
            ) from None
        return
    numbers = numbers_to_try()
    decided = threading.get_intra_op_parallelism_threads()
    if config is None or decided or len(numbers) == 1 or tf.config.list_physical_devices("GPU"):
        return
    with suppress(RuntimeError):  # TensorFlow has started
        threading.set_intra_op_parallelism_threads(numbers[-1])
        fastest = _fastest(config.model, config.decoding.beam_size, sentences, numbers)
        threading.set_intra_op_parallelism_threads(fastest)


def _fastest(
    model: ModelConfig, beam_size: int, sentences: Sequence[int], numbers: list[int]
) -> int:
    """Returns the fastest number of threads, from the cache if it is known."""
    cores = numbers[-1]
    file = cache_folder() / "threads.json"
    sizes = model.d_model, model.d_ff, model.vocab_size, model.num_decoder_layers
    parts = [_processor(), "x", cores, "model", *sizes, "beam", beam_size, "of", *sentences]
    key = " ".join(map(str, parts))
    kept = _read(file)
    number = kept.get(key)
    if type(number) is int and 1 <= number <= cores:  # neither true nor 1.0
        return number
    start = time.perf_counter()
    times = {n: _measured(n, model, beam_size, sentences) for n in numbers}
    fastest = min(times, key=lambda number: times[number])
    if math.isinf(times[fastest]):
        logger.warning("the fastest number of threads could not be measured: using all")
        return cores
    if os.getloadavg()[0] <= max(1, cores / 2):  # on a busy machine the result may not last
        with suppress(UserError), replacing(file) as temporary:
            temporary.write_text(json.dumps(kept | {key: fastest}, indent=2) + "\n", "utf-8")
        seconds = time.perf_counter() - start
        text = "threads: %d of %d, the fastest for this model (measured in %.1f s, see %s)"
        logger.info(text, fastest, cores, seconds, file)
    return fastest


def _read(file: Path) -> dict:
    try:
        kept = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _measured(
    threads: int, model: ModelConfig, beam_size: int, sentences: Sequence[int]
) -> float:
    """Returns the product of the step times, measured in a fork; inf on failure."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            seconds = _seconds(threads, model, beam_size, sentences)
            os.write(writer, json.dumps(seconds).encode())
        finally:
            os._exit(0)  # without the exit handlers, which are the parent's
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], _TIMEOUT)
        answer = os.read(reader, 4096) if ready else b""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return math.prod(json.loads(answer)) if answer else math.inf


def _seconds(
    threads: int, model: ModelConfig, beam_size: int, sentences: Sequence[int]
) -> list[float]:
    """Returns the time of a decoding step's matrix products, in seconds, for each batch size.

    A batch is split into streams, as in decoding.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    width, inner = model.d_model, model.d_ff
    shapes = [(width, 3 * width), *[(width, width)] * 3, (width, inner), (inner, width)]
    kernels = [tf.zeros(shape) for shape in shapes]
    output = tf.zeros([width, model.vocab_size])

    @tf.function(input_signature=[tf.TensorSpec([None, width])], autograph=False)
    def step(x):
        for _ in range(model.num_decoder_layers):
            attended = tf.matmul(x, kernels[0])[:, :width]
            for kernel in kernels[1:4]:
                attended = tf.matmul(attended, kernel)
            x += attended
            x += tf.matmul(tf.nn.relu(tf.matmul(x, kernels[4])), kernels[5])
        return tf.nn.softmax(tf.matmul(x, output))

    def best(number: int) -> float:
        streams = streams_for(number, most_streams(threads))
        parts = [tf.zeros([beam_size * number // streams, width])] * streams
        times: list[float] = []
        with ThreadPoolExecutor(streams) as pool:
            run = map if streams == 1 else pool.map
            list(run(step, parts))
            end = time.perf_counter() + _SECONDS
            while time.perf_counter() < end or len(times) < 3:
                start = time.perf_counter()
                list(run(step, parts))
                times.append(time.perf_counter() - start)
        return min(times)

    return [best(number) for number in sentences]
