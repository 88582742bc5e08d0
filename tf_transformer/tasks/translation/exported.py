"""Translator that runs an exported SavedModel, for users."""

import itertools
from pathlib import Path

import numpy as np

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.hypotheses import Translation
from tf_transformer.errors import UserError
from tf_transformer.serving.exported import ExportedModel, column, needs_run
from tf_transformer.serving.versions import read_config
from tf_transformer.tasks.translation.base import BaseTranslator, Call, search_options


class ExportedTranslator(BaseTranslator):
    """Translates and scores with an exported SavedModel, without Keras.

    The search is fixed by the export, except for the options `alpha` and `max_length`, and
    returns at most as many translations as its beam is wide. `max_length` can only lower the
    export's own limit; 0 leaves that limit. Aligning, attention and exporting need a
    `Translator`, which has the model itself.

    Args:
        path: the folder of the SavedModel.

    Raises:
        UserError: if it cannot be loaded, or does not translate text.
    """

    align = needs_run("align")
    attention = needs_run("show attention")
    export = needs_run("be exported")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model = ExportedModel(path, "translation")
        if config := read_config(path):
            self.bleu_tokenizer = config.data.bleu_tokenizer

    def _search(self, call: Call) -> list[list[Translation]]:
        texts, options = call.texts, call.options
        search_options(options, DecodingConfig(), call.sample)  # refuses invalid options
        if fixed := [*(["sample"] * call.sample), *(options.keys() - {"alpha", "max_length"})]:
            self._model.refuse(f"search with another `{fixed[0]}`")
        inputs = {
            "text": column(texts),
            "alpha": np.full(len(texts), options.get("alpha", -1.0), np.float32),
            "max_length": np.full(len(texts), options.get("max_length", 0), np.int32),
            "prefix": column(call.prefixes or [""] * len(texts)),
        }
        translations: list[list[Translation]] = []
        for answer in self._model.answers("with_options", inputs, call.progress):
            beams = answer["scores"].shape[1]
            if not 1 <= call.number <= beams:
                raise UserError(
                    f"`n_best` must be between 1 and the beam size of {self.path}, {beams}. "
                    f"Received: {call.number}."
                )
            names = ("translations", "scores", "log_probs", "num_tokens")
            columns = (answer[name].tolist() for name in names)
            for count, *row in zip(answer["count"], *columns, strict=True):
                best = itertools.islice(zip(*row, strict=True), min(count, call.number))
                translations.append(
                    [Translation(text.decode(), *figures) for text, *figures in best]
                )
        return translations

    def _score(
        self,
        sources: list[str],
        targets: list[str],
        alpha: float | None,
        progress: Progress | None,
    ) -> list[Translation]:
        if alpha is not None:
            self._model.refuse("score with another `alpha`")
        scored: list[Translation] = []
        inputs = {"source": column(sources), "target": column(targets)}
        for answer in self._model.answers("score", inputs, progress):
            names = ("score", "log_prob", "num_tokens")
            columns = (answer[name].tolist() for name in names)
            rows = targets[len(scored) : len(scored) + len(answer["score"])]
            scored += [Translation(*row) for row in zip(rows, *columns, strict=True)]
        return scored
