"""SavedModels that take text, used from Python without Keras: sessions and the engine."""

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tf_transformer.config import DecodingConfig, SamplingConfig
from tf_transformer.decoding.batches import Progress, at_once, streams_for
from tf_transformer.decoding.engine import Engine
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.errors import UserError
from tf_transformer.export.session import Arrays, SavedModelSession
from tf_transformer.export.versions import read_config

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


def column(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of bytes; lone surrogates are kept."""
    return np.array([text.encode("utf-8", "surrogatepass") for text in texts], object)


class ExportEngine(Engine):
    """Translates and scores with an exported SavedModel.

    The export has fixed the search, except for `alpha` and `max_length`, which can only lower
    the export's own limit; 0 leaves that limit.

    Args:
        path: the folder of the SavedModel.

    Attributes:
        decoding: the settings of its search.

    Raises:
        UserError: if it cannot be loaded, or does not translate text.
    """

    instead = "load the run it was made from"

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, f"The export {path}"
        self._model = ExportedModel(path, "translation")
        config = read_config(path)
        self.decoding = config.decoding if config else DecodingConfig()

    def translate(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig,
        number: int = 1,
        *,
        prefixes: Sequence[str] | None = None,
        sampling: SamplingConfig | None = None,
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """Returns the best translations of each text; see `Engine.translate`."""
        if sampling:
            self.refuse("sample")
        changed = _changes(self.decoding, decoding)
        if fixed := changed - {"alpha", "max_length"}:
            self.refuse(f"search with another `{min(fixed)}`")
        alpha = decoding.alpha if "alpha" in changed else -1.0
        inputs = {
            "text": column(texts),
            "alpha": np.full(len(texts), alpha, np.float32),
            "max_length": np.full(len(texts), decoding.max_length, np.int32),
            "prefix": column(prefixes or [""] * len(texts)),
        }
        translations: list[list[Translation]] = []
        for answer in self._model.answers("with_options", inputs, progress):
            names = ("translations", "scores", "log_probs", "num_tokens")
            columns = (answer[name].tolist() for name in names)
            for count, *row in zip(answer["count"], *columns, strict=True):
                best = itertools.islice(zip(*row, strict=True), min(count, number))
                translations.append(
                    [Translation(text.decode(), *figures) for text, *figures in best]
                )
        return translations

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability; see `Engine.score`."""
        if changed := _changes(self.decoding, decoding):
            self.refuse(f"score with another `{min(changed)}`")
        inputs = {"source": column(sources), "target": column(targets)}
        names = ("score", "log_prob", "num_tokens")
        answers = self._model.answers("score", inputs, progress)
        rows = (
            zip(*(answer[name].tolist() for name in names), strict=True) for answer in answers
        )
        figures = itertools.chain.from_iterable(rows)
        return [Translation(target, *row) for target, row in zip(targets, figures, strict=True)]


def _changes(before: DecodingConfig, after: DecodingConfig) -> set[str]:
    """Returns the names of the settings that differ."""
    names = (field.name for field in dataclasses.fields(before))
    return {name for name in names if getattr(before, name) != getattr(after, name)}
