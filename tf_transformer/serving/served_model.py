"""The served version of a model, loaded while the server already listens; and documents."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.base.errors import UserError, reason
from tf_transformer.base.parallel import at_once
from tf_transformer.decoding.interface import Translation, column
from tf_transformer.decoding.streams import most_streams
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.loading.exports import open_engine, translator_of
from tf_transformer.run.checkpoints import Arrays
from tf_transformer.serving import rest
from tf_transformer.serving.queue import (
    MAX_ROWS,
    QueueFullError,
    RequestQueue,
    Telemetry,
    TokenCounter,
)
from tf_transformer.terms.kept import KeptTranslations, translate_kept
from tf_transformer.terms.protection import Protection
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

_DOCUMENTS = 16  # at a time, since each keeps a connection for long
_FILLER = Translation("", float(np.finfo(np.float32).min), 0.0, 0)  # where fewer were found


class UnknownVersionError(Exception):
    """The server has another version."""


class NotReadyError(Exception):
    """The version is still being loaded."""


class LoadedVersion:
    """A version that answers requests: its engines, and the queue in front of them.

    A `translator` of the same run computes `serving_default` and `nbest` in place of the
    export, by its engine, and checks the time only between batches; so does an export for
    LiteRT, which has `threads`. `languages`, codes of source and target, replace those of the
    settings.

    Raises UserError if the export cannot be loaded or used, or does not translate text.
    """

    def __init__(
        self,
        path: Path,
        telemetry: Telemetry,
        max_waiting: int = 256,
        translator: Translator | None = None,
        threads: int | None = None,
        languages: tuple[str, ...] = (),
    ) -> None:
        self._closed = False
        self.export = open_engine(path, threads=threads)
        self.translator = translator or translator_of(self.export, self.export.decoding)
        if languages:
            self.translator.language, self.translator.target_language = languages
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
        if not n_best or (engine is self.export and not isinstance(engine, LiteEngine)):
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
        values: dict[str, Any] = {"string": np.array(b"a", object), "float32": np.float32(0.5)}

        def run(name: str) -> None:
            inputs = {}
            for key, info in self.export.inputs[name].items():
                value = values.get(info.type, np.int32(5))
                inputs[key] = np.full([1] * info.rank, value, value.dtype)
            self.run(name, inputs)

        try:
            with ThreadPoolExecutor() as pool:  # TensorFlow prepares each on one core
                list(pool.map(run, self.export.inputs))
        except Exception as error:  # any error that a client would get
            raise UserError(
                f"{self.export.path} can be loaded but not used: {reason(error)}. Export it "
                "again."
            ) from None


class ServedModel:
    """A model and the version of it that answers, once `load` has loaded it.

    `load` raises UserError if it cannot; `url` is where the model is served, for the log.
    """

    def __init__(
        self,
        name: str,
        number: int,
        load: Callable[[], LoadedVersion],
        telemetry: Telemetry,
        url: str = "",
    ) -> None:
        self.name, self.number, self._load, self._url = name, number, load, url
        self.failure: Exception | None = None  # why the version could not be loaded
        self._version: LoadedVersion | None = None
        telemetry.version.labels(name).set_function(lambda: number if self._version else 0)
        telemetry.waiting_rows.labels(name).set_function(
            lambda: self._version.queue.waiting if self._version else 0
        )

    @property
    def ready(self) -> bool:
        """True while the version is loaded and its streams are running."""
        return self._version is not None and self._version.queue.alive

    @property
    def alive(self) -> bool:
        """True unless the version could not be loaded, or a stream of it failed."""
        return self.failure is None and (self.ready or self._version is None)

    @property
    def state(self) -> str:
        """The state of the version in TF Serving's words."""
        return "AVAILABLE" if self._version else "LOADING"

    def require(self, number: int | None) -> None:
        """Raises UnknownVersionError if a number is given and not that of the version."""
        if number not in (None, self.number):
            raise UnknownVersionError(
                f"There is no version {number} of {self.name}. There is: {self.number}."
            )

    def version(self, number: int | None = None) -> LoadedVersion:
        """Returns the version; raises UnknownVersionError, or NotReadyError."""
        self.require(number)
        if self._version is None:
            raise NotReadyError
        return self._version

    def start(self) -> threading.Thread:
        """Starts a thread that loads the version."""

        def load() -> None:
            try:
                self._version = self._load()
            except Exception as error:
                self.failure = error
                return
            text = "serving %s version %d on %s (Ctrl-C ends it)"
            logger.info(text, self.name, self.number, self._url)

        thread = threading.Thread(target=load, name="loading", daemon=True)
        thread.start()
        return thread

    def refuse(self) -> None:
        """Stops accepting requests; queued ones are still computed."""
        if self._version:
            self._version.queue.refuse()

    def close(self) -> None:
        """Ends running computations, for which it waits a second, and frees the model."""
        if self._version:
            self._version.close()


class Documents:
    """Translates documents, some at a time, through the queues of models.

    `splitting` lets one of them be split at a time, so that others never wait for several.
    """

    def __init__(self, telemetry: Telemetry, deadline: float) -> None:
        self._telemetry, self._deadline = telemetry, deadline
        self._places, self.splitting = threading.Semaphore(_DOCUMENTS), threading.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Holds one of the places; QueueFullError if all are taken."""
        if not self._places.acquire(blocking=False):  # before any work
            raise QueueFullError
        try:
            yield
        finally:
            self._places.release()

    def answer(
        self,
        version: LoadedVersion,
        signature: str,
        inputs: Arrays,
        is_document: bool = False,
    ) -> Arrays:
        """Computes a request in its turn; a document's waits for that as long as it takes."""
        queued = version.queue.submit(signature, inputs, self._deadline, is_document)
        try:
            outputs = queued.result(None if is_document else self._deadline)
        finally:
            queued.cancel()  # not computed if nobody waits for it any more
        self._telemetry.tokens_written.inc(version.counter.written(outputs))
        return outputs

    def translate(
        self, version: LoadedVersion, sentences: list[str], kept: Protection, n_best: int = 1
    ) -> KeptTranslations:
        """Returns up to `n_best` translations of each sentence, around what is kept."""
        cut = 0

        def search(rows, texts, begins, several) -> list[list[Translation]]:
            nonlocal cut
            translations, number = self._ranked(version, texts, n_best)
            cut += number
            return translations

        own = version.translator
        found = translate_kept(sentences, kept, own.engine, search, own.decoding, n_best)
        if cut:
            found.notes.append(f"Sentences that were too long and were cut: {cut}")
        return found

    def _ranked(
        self, version: LoadedVersion, sentences: list[str], n_best: int
    ) -> tuple[list[list[Translation]], int]:
        """Returns the translations of sentences, and how many of these were cut.

        Sentences of similar length are queued together, as many as a request may have, some at
        a time: other clients are answered between them. Each such batch has the deadline.
        """
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        batches = [order[start : start + MAX_ROWS] for start in range(0, len(order), MAX_ROWS)]
        signature = "serving_default" if n_best == 1 else "nbest"

        def compute_rows(rows: list[int]) -> tuple[Arrays, Arrays]:
            inputs = {"text": column([sentences[row] for row in rows])}
            return inputs, self.answer(version, signature, inputs, is_document=True)

        found, cut = dict[int, list[Translation]](), 0
        for rows, (inputs, outputs) in at_once(batches, compute_rows, version.streams):
            ranked = rest.ranked_translations(version.counter, inputs, outputs, n_best)
            found |= zip(rows, ranked, strict=True)
            cut += int(outputs["source_cut"].sum())
        return [found[row] for row in range(len(sentences))], cut
