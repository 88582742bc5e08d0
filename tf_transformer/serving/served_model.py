"""The served version of a model: loaded, tried, swapped in, and freed when it is replaced.

A request uses one version from start to end, so that no answer mixes two.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.decoding.interface import Translation
from tf_transformer.decoding.streams import most_streams
from tf_transformer.export.saved_model import column, open_export, reason
from tf_transformer.loading.translators import translator_of
from tf_transformer.run.checkpoints import Arrays
from tf_transformer.serving.queue import RequestQueue, Telemetry, TokenCounter
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
_FILLER = Translation("", float(np.finfo(np.float32).min), 0.0, 0)  # where fewer were found


class UnknownVersionError(Exception):
    """There is no such version."""


class NotReadyError(Exception):
    """No version is loaded at the moment."""


class LoadedVersion:
    """A version that answers requests: its engines, and the queue in front of them.

    A `translator` of the same run computes `serving_default` and `nbest` in place of the
    export, by its engine, and checks the time only between batches.

    Raises UserError if the export cannot be loaded or used, or does not translate text.
    """

    def __init__(
        self,
        number: int,
        path: Path,
        telemetry: Telemetry,
        max_waiting: int = 256,
        translator: Translator | None = None,
    ) -> None:
        self.number, self.users, self._closed = number, 0, False
        self.export = open_export(path)
        self.translator = translator or translator_of(self.export, self.export.decoding)
        try:
            self._warm_up()
            self.counter = TokenCounter(self.export)
        except BaseException:
            self.export.close()
            raise
        self.streams = self.translator.engine.streams or most_streams()
        self.queue = RequestQueue(self.run, self.streams, self.counter, telemetry, max_waiting)

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float | None = None
    ) -> Arrays:
        """Computes all outputs of a signature; see `ExportEngine.run`."""
        engine, decoding = self.translator.engine, self.translator.decoding
        n_best = {"serving_default": 1, "nbest": decoding.beam_size}.get(signature)
        if engine is self.export or not n_best:
            return self.export.run(signature, inputs, timeout=timeout)
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        ranked = engine.answer(texts, decoding, n_best, timeout, lambda: self._closed)
        rows = [  # a blank text has blank fillers
            [*some, *[_FILLER if some[0].num_tokens else some[0]] * (n_best - len(some))]
            for some in ranked
        ]
        found = column([each for row in rows for each in row]).reshape(-1, n_best)
        scores = np.array([[each.score for each in row] for row in rows], np.float32)
        scores = scores.reshape(found.shape)
        limit, _ = engine.limits(decoding)
        cut = np.array([engine.count_tokens(text) > limit for text in texts], bool)
        if signature == "serving_default":
            return {"translation": found[:, 0], "score": scores[:, 0], "source_cut": cut}
        counts = np.array([*map(len, ranked)], np.int32)
        return {"translations": found, "scores": scores, "count": counts, "source_cut": cut}

    def close(self) -> None:
        """Ends running computations, for which it waits a second, and frees the model."""
        self.queue.refuse()
        self._closed = True
        self.export.close()
        self.queue.close(1.0)

    def _warm_up(self) -> None:
        """Runs each signature: the first time takes long, and a damaged model fails."""
        values = {tf.string: b"a", tf.float32: 0.5}

        def run(name: str) -> None:
            inputs = {}
            for key, info in self.export.signatures[name].inputs.items():
                dtype, rank = tf.as_dtype(info.dtype), len(info.tensor_shape.dim)
                inputs[key] = np.full([1] * rank, values.get(dtype, 5), dtype.as_numpy_dtype)
            self.run(name, inputs)

        try:
            with ThreadPoolExecutor() as pool:  # TensorFlow prepares each on one core
                list(pool.map(run, self.export.signatures))
        except Exception as error:  # any error that a client would get
            raise UserError(
                f"{self.export.path} can be loaded but not used: {reason(error)}. Export it "
                "again."
            ) from None


class ServedModel:
    """Follows the version folders of a model: the newest that can be loaded answers.

    A new version is loaded while the current one answers, and then replaces it. The same holds
    for changed files of the current version, and for the previous folder when the newest is
    deleted. A version that cannot be loaded is tried again when its files change.

    `find` returns the folders by number; `load` loads one of them, and raises UserError if it
    cannot; `url` is where the model is served, for the log.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], dict[int, Path]],
        load: Callable[[int, Path], LoadedVersion],
        telemetry: Telemetry,
        url: str = "",
    ) -> None:
        self.name, self._find, self._load, self._url = name, find, load, url
        self.failure: Exception | None = None  # why no version could be loaded
        self._current: LoadedVersion | None = None
        self._stamp: object = None  # of the current version's files
        self._loading: int | None = None
        self._refused: dict[int, tuple[object, str]] = {}  # files' stamp, and the reason
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        telemetry.version.set_function(lambda: self._current.number if self._current else 0)
        telemetry.refused_versions.set_function(lambda: len(self._refused))
        telemetry.waiting_rows.set_function(
            lambda: self._current.queue.waiting if self._current else 0
        )

    @property
    def ready(self) -> bool:
        """True while a version is loaded and its streams are running."""
        version = self._current
        return version is not None and version.queue.alive

    @property
    def alive(self) -> bool:
        """True unless no version could be loaded, or a stream of the current one failed."""
        return self.failure is None and (self.ready or self._current is None)

    def states(self) -> dict[int, tuple[str, str]]:
        """Returns the state of each version in TF Serving's words, and its error or ""."""
        refused, current = self._refused, self._current
        states = {number: ("END", why) for number, (_, why) in refused.items()}
        if self._loading is not None:
            states[self._loading] = ("LOADING", "")
        if current:  # its files may have been replaced by others that cannot be loaded
            states[current.number] = ("AVAILABLE", refused.get(current.number, ("", ""))[1])
        return states

    @contextmanager
    def use(self, number: int | None = None) -> Iterator[LoadedVersion]:
        """Yields the current version, which is not freed inside the block.

        Raises UnknownVersionError if `number` is another's, NotReadyError if none is loaded.
        """
        with self._changed:
            version = self._current
            if version is None:
                raise NotReadyError
            if number not in (None, version.number):
                raise UnknownVersionError(
                    f"There is no version {number} of {self.name}. Loaded: {version.number}."
                )
            version.users += 1
        try:
            yield version
        finally:
            with self._changed:
                version.users -= 1
                self._changed.notify_all()

    def follow(self) -> threading.Thread:
        """Starts a thread that calls `update` every `POLL_SECONDS` until `refuse`."""

        def watch() -> None:
            try:
                while not self._stopped.is_set():
                    self.update()
                    self._stopped.wait(POLL_SECONDS)
            except Exception as error:
                self.failure = error

        thread = threading.Thread(target=watch, name="versions", daemon=True)
        thread.start()
        return thread

    def update(self) -> None:
        """Loads the newest folder that can be loaded, unless it is the current version.

        If no version is loaded, raises UserError if none can be, and OSError if the folders
        cannot be listed.
        """
        try:
            folders = self._find()
        except OSError:  # such as a network error, or a folder that is just being removed
            if not self._current:
                raise
            return
        stamps = {number: _stamp(folder) for number, folder in folders.items()}
        self._refused = {
            number: refused
            for number, refused in self._refused.items()
            if number in stamps and stamps[number] == refused[0]
        }
        current = self._current.number if self._current else -1
        for number in sorted(stamps.keys() - self._refused.keys(), reverse=True):
            is_same = number == current and stamps[number] in (self._stamp, None)
            if is_same or (current in stamps and number < current):
                return
            if self._replace(number, folders[number], stamps[number]):
                return
        if not self._current and self._refused:
            raise UserError(self._refused[min(self._refused)][1])

    def _replace(self, number: int, folder: Path, stamp: object) -> bool:
        """Loads a version and swaps it in; returns whether that worked.

        The previous version is freed when nobody uses it any more.
        """
        self._loading = number
        try:
            version = self._load(number, folder)
        except UserError as error:
            self._refused |= {number: (stamp, str(error))}
            logger.warning("version %d of %s is not used: %s", number, self.name, error)
            return False
        finally:
            self._loading = None
        with self._changed:
            previous, self._current, self._stamp = self._current, version, stamp
        text = "serving %s version %d on %s (Ctrl-C ends it)"
        logger.info(text, self.name, number, self._url)
        if previous:
            with self._changed:
                self._changed.wait_for(lambda: not previous.users or self._stopped.is_set())
            previous.close()
            logger.info("version %d of %s is freed", previous.number, self.name)
        return True

    def refuse(self) -> None:
        """Stops accepting requests and new versions; queued requests are still computed."""
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
            if self._current:
                self._current.queue.refuse()

    def close(self) -> None:
        """Ends running computations, for which it waits a second, and frees the model."""
        self.refuse()
        if self._current:
            self._current.close()


def _stamp(path: Path) -> object:
    """Returns a value that changes when the files in a folder do."""
    try:
        files = [(str(file), file.stat()) for file in sorted(path.rglob("*"))]
    except OSError:  # the folder is just being removed
        return None
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
