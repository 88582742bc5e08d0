"""Self-test of a SavedModel before it is published: it must answer like the original model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.serving.warmup import Text

Answer = dict[str, np.ndarray]
Value = str | int | bool | float | list | np.ndarray
Expected = Mapping[str, Sequence[Value]]  # by output, a value for each text
Comparison = tuple[str, Text, Value, Any]  # signature and output, text, expected, received


class Tolerance(NamedTuple):
    """Largest allowed differences; a score needs to meet only one of the first two."""

    absolute: float
    relative: float
    attention: float


# The log-probability of a long text sums up rounding errors to more than 1e-4; with bfloat16
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
    """Writes a value in one line, arrays as lists."""
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
