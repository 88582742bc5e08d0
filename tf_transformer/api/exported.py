"""Translator of an exported SavedModel, for users."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tf_transformer.api.options import search_options
from tf_transformer.api.translator import Translator
from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.hypotheses import Hypothesis, Translation
from tf_transformer.errors import UserError
from tf_transformer.serving.session import Arrays, SavedModelSession

logger = logging.getLogger(__name__)

_AT_ONCE = 256  # rows of a call: the graph itself divides them into batches


class ExportedTranslator(Translator):
    """Translates and scores with an export alone, without Keras.

    It searches as it was exported, but for the options `alpha` and `max_length`, and gives at
    most as many translations as its beam is wide. The run that it was made from does more.

    Args:
        path: the folder of the SavedModel.

    Raises:
        UserError: if it cannot be loaded, or does not take text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session = SavedModelSession(path)
        if not {"with_options", "score"} <= self._session.signatures.keys():
            raise UserError(
                f"{path} must be an export of this package that takes text. Received: one with "
                f"the signatures {', '.join(self._session.signatures)}."
            )

    def _search(
        self,
        texts: list[str],
        prefixes: list[str] | None,
        number: int,
        sample: bool,
        options: dict[str, Any],
        progress: Progress | None,
    ) -> list[list[Translation]]:
        search_options(options, DecodingConfig(), sample)  # refuses what nothing could do
        if fixed := [*(["sample"] * sample), *(options.keys() - {"alpha", "max_length"})]:
            self._refuse(f"search with another `{fixed[0]}`")
        inputs = {
            "text": _column(texts),
            "alpha": np.full(len(texts), options.get("alpha", -1.0), np.float32),
            "max_length": np.full(len(texts), options.get("max_length", 0), np.int32),
            "prefix": _column(prefixes or [""] * len(texts)),
        }
        found: list[list[Translation]] = []
        for answer in self._run("with_options", inputs, progress):
            beams = answer["scores"].shape[1]
            if not 1 <= number <= beams:
                raise UserError(
                    f"`n_best` must be between 1 and the beam size of {self.path}, {beams}. "
                    f"Received: {number}."
                )
            columns = answer["translations"], answer["scores"], answer["count"]
            for row, scores, count in zip(*columns, strict=True):
                best = zip(row[: min(count, number)], scores.tolist(), strict=False)
                found.append([Translation(text.decode(), score) for text, score in best])
        return found

    def _score(
        self,
        sources: list[str],
        targets: list[str],
        alpha: float | None,
        progress: Progress | None,
    ) -> list[Hypothesis]:
        if alpha is not None:
            self._refuse("score with another `alpha`")
        scored: list[Hypothesis] = []
        inputs = {"source": _column(sources), "target": _column(targets)}
        for answer in self._run("score", inputs, progress):
            names = ("score", "log_prob", "num_tokens")
            columns = (answer[name].tolist() for name in names)
            rows = targets[len(scored) : len(scored) + len(answer["score"])]
            scored += [Hypothesis(*row) for row in zip(rows, *columns, strict=True)]
        return scored

    def _run(
        self, signature: str, inputs: Arrays, progress: Progress | None
    ) -> Iterator[Arrays]:
        """Yields the outputs of a signature for some rows at a time; warns of cut texts."""
        rows, cut = len(next(iter(inputs.values()))), 0
        for start in range(0, rows, _AT_ONCE):
            some = {name: each[start : start + _AT_ONCE] for name, each in inputs.items()}
            answer = self._session.run(signature, some)
            cut += sum(int(answer[name].sum()) for name in answer if name.endswith("_cut"))
            yield answer
            if progress:
                progress(min(start + _AT_ONCE, rows))
        if cut:
            logger.warning("texts cut at the limits of %s: %d", self.path, cut)

    def align(self, source: Any, target: Any = None, *, layer: int | None = None) -> NoReturn:
        """Raises UserError: an export cannot align given texts."""
        self._refuse("align")

    def attention(self, source: Any, target: Any = None) -> NoReturn:
        """Raises UserError: an export holds the mean of its heads' weights alone."""
        self._refuse("show the attention of its heads")

    def export(self, *_: Any, **__: Any) -> NoReturn:
        """Raises UserError: an export is not exported again."""
        self._refuse("be exported again")

    def _refuse(self, what: str) -> NoReturn:
        raise UserError(f"The export {self.path} cannot {what}: load the run it was made from.")


def _column(texts: list[str]) -> np.ndarray:
    return np.array([text.encode("utf-8", "surrogatepass") for text in texts], object)
