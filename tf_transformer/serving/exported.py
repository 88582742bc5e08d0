"""A SavedModel used from Python on lists of texts, without Keras."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from tf_transformer.decoding.batches import at_once
from tf_transformer.decoding.threads import streams_for
from tf_transformer.errors import UserError
from tf_transformer.serving.session import Arrays, SavedModelSession

logger = logging.getLogger(__name__)

_AT_ONCE = 256  # rows in a call, which the graph divides into batches


class ExportedModel:
    """An export that takes text.

    Args:
        path: the folder of the SavedModel.
        output: an output of the signature `serving_default` that the caller needs.

    Raises:
        UserError: if the model cannot be loaded, or has no such output.
    """

    def __init__(self, path: Path, output: str) -> None:
        self.path = path
        self._session = SavedModelSession(path)
        signatures = self._session.signatures
        default = signatures.get("serving_default")
        if default is None or output not in default.outputs:
            raise UserError(
                f"{path} must be an export of this package that takes text and gives "
                f"`{output}`. Received: one with the signatures {', '.join(signatures)}."
            )

    def answers(
        self, signature: str, inputs: Arrays, progress: Callable[[int], None] | None = None
    ) -> Iterator[Arrays]:
        """Yields the outputs of a signature, some rows at a time; warns if texts were cut.

        Args:
            signature: name of the signature.
            inputs: arrays with the same number of rows.
            progress: called with the number of rows done so far.
        """
        rows, cut = len(next(iter(inputs.values()))), 0
        streams = streams_for(rows, self._session.streams)
        size = min(_AT_ONCE, math.ceil(rows / streams)) or 1

        def compute(start: int) -> Arrays:
            some = {name: array[start : start + size] for name, array in inputs.items()}
            return self._session.run(signature, some)

        for start, answer in at_once(range(0, rows, size), compute, streams):
            cut += sum(int(answer[name].sum()) for name in answer if name.endswith("_cut"))
            yield answer
            if progress:
                progress(min(start + size, rows))
        if cut:
            logger.warning("texts cut at the limits of %s: %d", self.path, cut)

    def refuse(self, what: str) -> NoReturn:
        """Raises UserError: the export cannot do `what`."""
        raise UserError(f"The export {self.path} cannot {what}: load the run it was made from.")


def needs_run(what: str) -> Callable[..., NoReturn]:
    """Returns a method that refuses `what`, which a run can do and its export cannot."""

    def method(self, *_: object, **__: object) -> NoReturn:
        """Raises UserError, because this needs the run."""
        model: ExportedModel = self._model
        model.refuse(what)

    return method


def column(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of bytes; lone surrogates are kept."""
    return np.array([text.encode("utf-8", "surrogatepass") for text in texts], object)
