"""A SavedModel loaded as TF Serving loads it: a session and the signatures' tensor names."""

import importlib.util
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import UserError
from tf_transformer.serving.versions import check_readable

Arrays = dict[str, np.ndarray]


class BadRequestError(ValueError):
    """A request that no model could answer: its message is meant for the client."""


class ClosedError(Exception):
    """The session was closed before the answer was computed."""


class SavedModelSession:
    """Runs the signatures of a SavedModel, without Keras and without Python's loader.

    Requests may come from several threads.

    Attributes:
        signatures: the SignatureDef of each name.
        tokenizers: the SentencePiece models in the graph, each once.

    Raises:
        UserError: if `path` holds no SavedModel that can be loaded.
    """

    def __init__(self, path: Path) -> None:
        check_readable(path)
        load_text_operations()
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        try:
            with graph.as_default():
                meta = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        except (OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"{path} holds no SavedModel that can be loaded: {reason}"
            ) from None
        self.signatures = {
            name: signature
            for name, signature in sorted(meta.signature_def.items())
            if not name.startswith("__")  # TensorFlow's own: how to initialise
        }
        self.tokenizers = _tokenizers(meta.graph_def)
        self._closed = False

    def __enter__(self) -> "SavedModelSession":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model; what is being computed ends with ClosedError."""
        self._closed = True
        self._session.close()

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """The outputs asked for, or all.

        Raises:
            BadRequestError: if a name, type or rank is not the signature's.
            TimeoutError: if it takes longer than `timeout` seconds; it is ended then.
            ClosedError: if the session is closed, or is closed meanwhile.
        """
        definition = self.signature(signature)
        check_names("inputs", inputs, definition.inputs, exactly=True)
        check_names("outputs", outputs, definition.outputs)
        feed = {}
        for name, info in definition.inputs.items():
            feed[info.name] = checked(f"{signature}: {name}", np.asarray(inputs[name]), info)
        names = list(outputs or definition.outputs)
        fetch = [definition.outputs[name].name for name in names]
        limit = None
        if timeout is not None:
            limit = tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(1000 * timeout)))
        try:
            found = self._session.run(fetch, feed, limit)
        except tf.errors.InvalidArgumentError as error:
            reason = error.message.removeprefix("Graph execution error:").strip()
            raise BadRequestError(reason.splitlines()[0]) from None
        except tf.errors.DeadlineExceededError:
            raise TimeoutError(f"{signature} took more than {timeout:g} s") from None
        except (tf.errors.CancelledError, RuntimeError):
            if self._closed:
                raise ClosedError from None
            raise
        return dict(zip(names, found, strict=True))

    def signature(self, name: str):
        """The SignatureDef of a name."""
        if name not in self.signatures:
            raise BadRequestError(
                f"There is no signature {name!r}. There are: {', '.join(self.signatures)}."
            )
        return self.signatures[name]


def try_signatures(session: SavedModelSession, path: Path) -> None:
    """Asks each signature of the model in `path` for one small row, which also prepares it.

    Raises:
        UserError: if one fails: the model could be loaded, and is damaged all the same.
    """

    def ask(name: str) -> str:
        inputs = session.signatures[name].inputs
        try:
            session.run(name, {key: _small_row(info) for key, info in inputs.items()})
        except Exception as error:  # whatever it is, a client would get it as well
            return f"{name}: {str(error).partition(chr(10))[0]}"
        return ""

    with ThreadPoolExecutor() as pool:  # an executor is built for each, on one core
        failed = [reason for reason in pool.map(ask, session.signatures) if reason]
    if failed:
        raise UserError(
            f"{path} can be loaded but not used: {failed[0]}. It is damaged: export it again."
        )


def _small_row(info) -> np.ndarray:
    value = {tf.string: b"a", tf.float32: 0.5}.get(tf.as_dtype(info.dtype), 5)
    kind = tf.as_dtype(info.dtype).as_numpy_dtype
    return np.full([1] * len(info.tensor_shape.dim), value, kind)


def _tokenizers(graph) -> list[bytes]:
    functions = [node for function in graph.library.function for node in function.node_def]
    nodes = [node for node in [*graph.node, *functions] if node.op == "SentencepieceOp"]
    return list(dict.fromkeys(node.attr["model"].s for node in nodes))


def checked(name: str, values: np.ndarray, info) -> np.ndarray:
    """The values in the type of a TensorInfo; BadRequestError for another type or rank."""
    expected = tf.as_dtype(info.dtype)
    rank = len(info.tensor_shape.dim)
    if values.size == 0 and values.ndim == rank:  # nothing has no type of its own
        return values.astype(expected.as_numpy_dtype)
    if values.ndim != rank:
        raise BadRequestError(f"{name} must be of rank {rank}. Received: {values.ndim}.")
    if not _converts(values, expected):
        raise BadRequestError(f"{name} must be {expected.name}. Received: {values.dtype}.")
    if expected == tf.string:
        return np.array([_utf8(text) for text in values.flat], object).reshape(values.shape)
    return values.astype(expected.as_numpy_dtype)


def _utf8(text: str | bytes) -> bytes:
    """JSON may hold half a surrogate pair, which the tokenizer takes as U+FFFD."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _converts(values: np.ndarray, expected: tf.DType) -> bool:
    """Whether nothing is lost: text to strings, whole numbers to any type of number."""
    if expected == tf.string:
        return values.dtype.kind in "SU" or (
            values.dtype.kind == "O" and all(isinstance(v, (str, bytes)) for v in values.flat)
        )
    if expected.is_integer:
        limits = np.iinfo(expected.as_numpy_dtype)
        fits = values.dtype.kind in "iu"
        return fits and limits.min <= values.min() and values.max() <= limits.max
    return values.dtype.kind in "iuf"


def check_names(kind: str, given, known, exactly: bool = False) -> None:
    """BadRequestError for a name that is not known or, if exactly, one that is missing."""
    wrong = set(given) ^ set(known) if exactly else set(given) - set(known)
    if wrong:
        raise BadRequestError(
            f"The {kind} must be {', '.join(sorted(known))}. "
            f"Received: {', '.join(sorted(given)) or 'none'}."
        )


def load_text_operations() -> None:
    """Registers SentencePiece's operations, without the rest of TensorFlow Text."""
    package = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    tf.load_op_library(str(Path(package, "python", "ops", "_sentencepiece_tokenizer.so")))
