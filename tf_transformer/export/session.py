"""A SavedModel loaded as in TF Serving: a session, and the tensor names of signatures."""

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.decoding.batches import most_streams
from tf_transformer.errors import UserError, one_line, quoted, shortened
from tf_transformer.export.versions import check_readable

Arrays = dict[str, np.ndarray]

_IN_JSON = {
    tf.string: "a string",
    tf.int32: "a whole number (int32)",
    tf.float32: "a number (float32)",
}


class BadRequestError(ValueError):
    """An invalid request; its message is meant for the client."""


class ClosedError(Exception):
    """The session was closed before the answer was computed."""


class SavedModelSession:
    """Runs the signatures of a SavedModel, without Keras or TensorFlow's Python loader.

    It may be used from several threads.

    Attributes:
        signatures: SignatureDef by name.
        tokenizers: the distinct SentencePiece models in the graph.
        streams: number of calls that can run at the same time without slowing each other down.

    Raises:
        UserError: if `path` holds no SavedModel that can be loaded.
    """

    def __init__(self, path: Path) -> None:
        check_readable(path)
        load_text_operations()
        self.streams = most_streams()
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=_quick_start())
        try:
            with graph.as_default():
                meta = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        except (OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
            raise UserError(
                f"{path} holds no SavedModel that can be loaded: {reason(error)}"
            ) from None
        self.signatures = {
            name: signature
            for name, signature in sorted(meta.signature_def.items())
            if not name.startswith("__")  # TensorFlow's initialisation
        }
        self.tokenizers = _tokenizers(meta.graph_def)
        self._closed = False

    def __enter__(self) -> "SavedModelSession":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model; running requests end with ClosedError."""
        self._closed = True
        self._session.close()

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """Computes the requested outputs of a signature, by default all.

        Raises:
            BadRequestError: if a name, type or rank does not match the signature.
            TimeoutError: if it takes longer than `timeout` seconds and is cancelled.
            ClosedError: if the session is closed before the outputs are computed.
        """
        definition, arrays = self.check(signature, inputs, outputs)
        feed = {definition.inputs[name].name: array for name, array in arrays.items()}
        names = list(outputs or definition.outputs)
        fetch = [definition.outputs[name].name for name in names]
        limit = None
        if timeout is not None:
            limit = tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(1000 * timeout)))
        try:
            arrays = self._session.run(fetch, feed, limit)
        except tf.errors.InvalidArgumentError as error:
            raise BadRequestError(reason(error)) from None
        except tf.errors.DeadlineExceededError:
            raise TimeoutError(f"{signature} took more than {timeout:g} s") from None
        except (tf.errors.CancelledError, RuntimeError):
            if self._closed:
                raise ClosedError from None
            raise
        return dict(zip(names, arrays, strict=True))

    def check(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]
    ) -> tuple[Any, Arrays]:
        """Returns the SignatureDef, and the inputs converted to its types.

        Raises:
            BadRequestError: if a name, type or rank does not match the signature.
        """
        definition = self.signature(signature)
        check_names("inputs", inputs, definition.inputs, exactly=True)
        check_names("outputs", outputs, definition.outputs)
        return definition, {
            name: checked(f"{signature}: {name}", np.asarray(inputs[name]), info)
            for name, info in definition.inputs.items()
        }

    def signature(self, name: str):
        """Returns the SignatureDef of a name; raises BadRequestError for an unknown one."""
        if name not in self.signatures:
            raise BadRequestError(
                f"There is no signature {name!r}. There are: {', '.join(self.signatures)}."
            )
        return self.signatures[name]


def reason(error: Exception) -> str:
    """Returns the whole message of an error in one line, without TensorFlow's heading."""
    line = " ".join(str(error).split())
    return one_line(line.removeprefix("Graph execution error: "))


def _quick_start() -> tf.compat.v1.ConfigProto:
    """Returns options that optimise the graph of each set of outputs once instead of twice.

    A second pass speeds up no search, and takes a quarter of the time of a first request.
    """
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.meta_optimizer_iterations = type(rewrites).ONE
    return config


def _tokenizers(graph) -> list[bytes]:
    functions = [node for function in graph.library.function for node in function.node_def]
    nodes = [node for node in [*graph.node, *functions] if node.op == "SentencepieceOp"]
    return list(dict.fromkeys(node.attr["model"].s for node in nodes))


def checked(name: str, values: np.ndarray, info) -> np.ndarray:
    """Converts values to the type of a TensorInfo; BadRequestError for a wrong type or rank."""
    expected = tf.as_dtype(info.dtype)
    rank = len(info.tensor_shape.dim)
    if values.size == 0 and values.ndim == rank:  # an empty list has no type
        return values.astype(expected.as_numpy_dtype)
    if values.ndim != rank:
        raise BadRequestError(f"{name} must be of rank {rank}. Received: {values.ndim}.")
    if not _converts(values, expected):
        wanted = _IN_JSON.get(expected, expected.name)
        raise BadRequestError(f"{name} must be {wanted}. Received: {_wrong(values, expected)}.")
    if expected == tf.string:
        return np.array([_utf8(text) for text in values.flat], object).reshape(values.shape)
    return values.astype(expected.as_numpy_dtype)


def _utf8(text: str | bytes) -> bytes:
    """Encodes lone surrogates too, which JSON may contain; the tokenizer reads U+FFFD."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _converts(values: np.ndarray, expected: tf.DType) -> bool:
    """Returns whether values convert: text to strings, integers to any number type."""
    if expected == tf.string:
        return values.dtype.kind in "SU" or (
            values.dtype.kind == "O" and all(isinstance(v, (str, bytes)) for v in values.flat)
        )
    if expected.is_integer:
        limits = np.iinfo(expected.as_numpy_dtype)
        fits = values.dtype.kind in "iu"
        return fits and limits.min <= values.min() and values.max() <= limits.max
    return values.dtype.kind in "iuf"


def _wrong(values: np.ndarray, expected: tf.DType) -> str:
    """Returns the first value that does not convert, as JSON."""
    flat = values.ravel()
    index = next((i for i in range(flat.size) if not _converts(flat[i : i + 1], expected)), 0)
    value = flat[index : index + 1].tolist()[0]
    try:
        return shortened(json.dumps(value), 200)
    except TypeError:
        return quoted(value)


def plain_lists(value: Any) -> Any:
    """Replaces bytes by text in a nest of lists, for JSON."""
    if isinstance(value, list):
        return [plain_lists(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def check_names(
    kind: str, names: Iterable[str], known: Iterable[str], exactly: bool = False
) -> None:
    """Raises BadRequestError for an unknown name or, if `exactly`, a missing one."""
    wrong = set(names) ^ set(known) if exactly else set(names) - set(known)
    if wrong:
        raise BadRequestError(
            f"The {kind} must be {', '.join(sorted(known))}. "
            f"Received: {', '.join(sorted(names)) or 'none'}."
        )


def load_text_operations() -> None:
    """Registers SentencePiece's operations, without the rest of TensorFlow Text."""
    package = importlib.util.find_spec("tensorflow_text")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The package tensorflow_text is not installed.")
    folder = Path(package.origin).parent
    tf.load_op_library(str(folder / "python" / "ops" / "_sentencepiece_tokenizer.so"))
