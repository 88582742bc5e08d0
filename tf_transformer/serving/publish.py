"""Publishing a model as a SavedModel: atomically, after a self-test of the written files."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError
from tf_transformer.files import replacing_folder, write_text
from tf_transformer.serving.functions import Function
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.versions import CARD, check_readable, reserved
from tf_transformer.serving.warmup import Request, Text, replay, write_requests

Answer = dict[str, np.ndarray]
Value = str | int | bool | float | list | np.ndarray
Expected = Mapping[str, Sequence[Value]]  # by output, a value for each text
Comparison = tuple[str, Text, Value, Any]  # signature and output, text, expected, received

TOKENIZER = Path("assets.extra", "tokenizer.model")  # of a model that takes only ids
# TF Serving's --batching_parameters_file. One thread is enough, since a batch uses all cores.
# Requests for `tokens` differ in width, and need padding.
BATCHING_PARAMETERS = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 5000 }
max_enqueued_batches { value: 64 }
num_batch_threads { value: 1 }
pad_variable_length_inputs: true
"""


class Tolerance(NamedTuple):
    """Largest allowed differences; a score has to meet only one of the first two."""

    absolute: float
    relative: float
    attention: float


# Rounding errors in the log-probability of a long text add up to more than 1e-4; with bfloat16
# products, a graph differs from Python by 1.4e-4. An attention weight is a bfloat16, whose
# neighbours are up to 0.004 away, and the product before it may be off by such a step too.
FLOAT32 = Tolerance(absolute=1e-4, relative=1e-6, attention=1e-4)
BFLOAT16 = Tolerance(absolute=1e-3, relative=1e-3, attention=0.02)


def tolerance_of(model) -> Tolerance:
    """Returns the tolerance for the precision that a Keras model computes in."""
    return FLOAT32 if model.compute_dtype == "float32" else BFLOAT16


def self_test(comparisons: Iterable[Comparison], tolerance: Tolerance) -> None:
    """Raises UserError at the first answer of an export that is not the expected one.

    Args:
        comparisons: expected and received values of all outputs of all signatures.
        tolerance: largest allowed differences.
    """
    for output, source, expected, received in comparisons:
        if not agree(expected, received, tolerance):
            raise UserError(
                f"The exported model failed its self-test, {output} of {source!r}: expected "
                f"{_shown(expected)}, received {_shown(received)}. Nothing was published."
            )


def _shown(value: Any) -> str:
    """Returns a value on one line, with arrays as lists."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def agree(expected: Value, received: Any, tolerance: Tolerance = FLOAT32) -> bool:
    """Returns whether a served value is the expected one, up to rounding.

    A received list may be longer, and an array padded with zeros.
    """
    if isinstance(expected, np.ndarray):
        missing = np.subtract(received.shape, expected.shape)
        if (missing < 0).any():
            return False
        # The tolerance is for a mean of H heads: a single head may be off by H times as much.
        heads = expected.shape[0] if expected.ndim == 3 else 1
        expected = np.pad(expected, [(0, size) for size in missing])
        return np.allclose(received, expected, rtol=0, atol=heads * tolerance.attention)
    if isinstance(expected, list):
        return expected == received[: len(expected)].tolist()
    if isinstance(expected, float):
        return math.isclose(
            expected, received, rel_tol=tolerance.relative, abs_tol=tolerance.absolute
        )
    return expected == (received.decode() if isinstance(received, bytes) else received)


def compare(
    signature: str, texts: Sequence[Text], expected: Expected, answer: Answer
) -> Iterator[Comparison]:
    """Yields the expected and received values of the outputs, text by text."""
    for name, values in expected.items():
        for text, value, received in zip(texts, values, answer[name], strict=True):
            yield f"{signature}: {name}", text, value, received


@dataclass(frozen=True)
class Exportable:
    """A model with its signatures: everything that an export needs to know about it.

    Attributes:
        models: the Keras models whose weights the signatures use; several for an ensemble.
        tokenizer: the tokenizer of the models.
        functions: a TensorFlow function for each signature name.
        requests: warm-up requests for all signatures.
        compare: runs the signatures of a loaded export on awkward texts; yields the expected
            and received values.
        sizes: entries for "sizes" in the card, such as the longest source in tokens.
        text: whether the signatures take text; otherwise the tokenizer is copied beside the
            model.
    """

    models: Sequence[keras.Model]
    tokenizer: Tokenizer
    functions: Mapping[str, Function]
    requests: Sequence[Request]
    compare: Callable[[SavedModelSession], Iterable[Comparison]]
    sizes: Mapping[str, int]
    text: bool = True


def publish(
    exportable: Exportable,
    base: Path,
    version: int | None = None,
    card: dict[str, Any] | None = None,
    *,
    gate: Gate | None = None,
) -> Path:
    """Writes BASE/VERSION/ after a self-test of the loaded model; returns that folder.

    Args:
        exportable: the model and its signatures.
        base: the model's folder, which TF Serving watches; its name is that of the model.
        version: version number; the next free one by default.
        card: content of assets.extra/model_card.json, to which vocabulary and sizes are added.
        gate: the published model that the export must not be worse than.

    Raises:
        NotPublishedError: if the export does not pass the gate.
        UserError: if TensorFlow could not read the folder, the version exists or cannot be
            written, a warm-up request fails, or the loaded model answers differently from
            Python. Nothing is published in that case.
    """
    check_readable(base)
    with reserved(base, version) as final, replacing_folder(final, replace=False) as folder:
        # The temporary name is not a number, so TF Serving ignores the folder.
        _save(exportable, folder)
        write_requests(folder, base.name, exportable.requests)
        write_text(folder / "batching_params.pbtxt", BATCHING_PARAMETERS)
        if not exportable.text:
            exportable.tokenizer.copy(folder / TOKENIZER)
        entries = facts(exportable.models, exportable.tokenizer, exportable.sizes)
        card = (card or {}) | entries
        with SavedModelSession(folder) as session:
            replay(session, exportable.requests)
            self_test(exportable.compare(session), tolerance_of(exportable.models[0]))
            if gate:
                card["compared"] = gate.compare(session, card)
        write_card(folder / CARD, card)
    return final


def _save(exportable: Exportable, path: Path) -> None:
    module = tf.Module(name="model")  # Keras objects would save every weight a second time
    module.weights = [
        variable.value for model in exportable.models for variable in model.weights
    ]
    module.tokenizer = exportable.tokenizer if exportable.text else None
    # Saving would trace functions again, but takes concrete ones as they are.
    concrete = {name: f.get_concrete_function() for name, f in exportable.functions.items()}
    try:
        tf.saved_model.save(module, os.fspath(path), signatures=concrete)
    except tf.errors.OpError as error:
        # TensorFlow's file system raises this instead of an OSError.
        raise OSError(error.message.splitlines()[0]) from error


def facts(
    models: Sequence[keras.Model], tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the card's entries on vocabulary and sizes; see `Exportable` for arguments."""
    weights = [weight for model in models for weight in model.weights]
    parameters = sum(math.prod(weight.shape) for weight in weights)
    ids = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
    return {
        "vocabulary": {"size": tokenizer.vocab_size, "ids": ids},
        "sizes": {"parameters": parameters, **sizes},
    }


def write_card(file: Path, card: Mapping[str, Any]) -> None:
    """Writes the model card of an export."""
    write_text(file, json.dumps(card, indent=2, ensure_ascii=False) + "\n")
