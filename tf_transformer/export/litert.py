"""LiteRT: exports for phones and other programs, and served searches for `serve --litert`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.batches import most_streams
from tf_transformer.decoding.engine import GraphEngine, only_model
from tf_transformer.decoding.lite import LiteEngine, LiteModel, Sizes, lite_file
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.export.publishing import facts, write_card
from tf_transformer.export.saved_model import Arrays, ClosedError, SavedModelSession
from tf_transformer.export.self_test import fitting_texts
from tf_transformer.export.signatures import sizes
from tf_transformer.export.versions import CARD, LITE_MODEL, new_version


def export_lite(
    engine: GraphEngine,
    decoding: DecodingConfig,
    base: Path,
    version: int | None,
    card: dict[str, Any],
    fixed: bool = False,
) -> Path:
    """Writes BASE/VERSION/ with the file, the tokenizer and a card; returns that folder.

    Args:
        engine: its LiteRT file is written if it has one, else its model in float32.
        decoding: settings of the search, for which fixed shapes are made.
        base: the folder of the model's versions.
        version: version number; None for the next free one.
        card: content of the card.
        fixed: whether to fix the shapes, for a single source up to the limit of `decoding`.

    Raises:
        UserError: if the version exists or cannot be written, the model is in bfloat16, or
            LiteRT in float32 translates differently.
        ValueError: if the model is an ensemble.
    """
    model = only_model(engine.model)
    if model.compute_dtype != "float32":
        raise UserError(
            f"LiteRT needs a model in float32 or int8. Received: {model.compute_dtype}."
        )
    with new_version(base, version) as (final, folder):
        codec, lite = engine.codec(decoding), None
        if isinstance(engine, LiteEngine):
            lite = engine.lite
        if fixed or not lite:
            width, longest = decoding.beam_size, codec.target_limit
            columns = min(longest, model.config.attention_window or longest)
            fixed_sizes = Sizes(1, codec.source_limit, width, columns)
            precision = lite.precision if lite else "float32"
            content = lite_file(model, precision, fixed_sizes if fixed else Sizes())
            lite = LiteModel(content, 1, precision)
        (folder / LITE_MODEL).write_bytes(lite.content)
        card = card | {"translated_as_in_float32": _compare(engine, decoding, lite)}
        engine.tokenizer.copy(folder / "tokenizer.model")
        card |= facts([model], engine.tokenizer, sizes(codec))
        write_card(folder / CARD.name, card)
    return final


def _compare(engine: GraphEngine, decoding: DecodingConfig, lite: LiteModel) -> str:
    """Returns how many of a few texts LiteRT translates like the model: "9 of 9 texts"."""
    model, tokenizer = only_model(engine.model), engine.tokenizer
    texts = fitting_texts(tokenizer, engine.codec(decoding).source_limit)
    expected = GraphEngine(model, tokenizer).translate(texts, decoding)
    in_lite = LiteEngine(model, tokenizer, lite)
    # Fixed shapes allow only one at a time.
    received = [in_lite.translate([text], decoding)[0] for text in texts]
    pairs = zip(texts, expected, received, strict=True)
    wrong = [text for text, (one,), (other,) in pairs if one != other]
    if wrong and lite.precision == "float32":
        raise UserError(
            f"LiteRT translates {quoted(wrong[0])} differently from TensorFlow. Nothing was "
            "written."
        )
    return f"{len(texts) - len(wrong)} of {len(texts)} texts"


class LiteSession(SavedModelSession):
    """Answers `serving_default` and `nbest` with LiteRT, other signatures with the SavedModel.

    Args:
        path: the folder of the SavedModel.
        engine: LiteRT with the model of the same run.
        decoding: settings of the search.
    """

    def __init__(self, path: Path, engine: LiteEngine, decoding: DecodingConfig) -> None:
        super().__init__(path)
        self.streams = most_streams(engine.lite.threads)
        self._engine = LiteEngine(
            only_model(engine.model), engine.tokenizer, engine.lite, streams=1
        )
        self._decoding = decoding
        self._numbers = {"serving_default": 1, "nbest": decoding.beam_size}

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """Computes like `SavedModelSession.run`, but checks the time only between batches."""
        if signature not in self._numbers:
            return super().run(signature, inputs, outputs, timeout)
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        until = float("inf") if timeout is None else time.monotonic() + timeout

        def check(done: int) -> None:
            if self._closed:
                raise ClosedError
            if done < len(texts) and time.monotonic() > until:
                raise TimeoutError(f"{signature} took more than {timeout:g} s")

        number = self._numbers[signature]
        ranked = self._engine.translate(texts, self._decoding, number, progress=check)
        arrays = _n_best(ranked, number)
        if signature == "serving_default":
            best, scores = arrays["translations"][:, 0], arrays["scores"][:, 0]
            arrays = {"translation": best, "score": scores}
        _, cut = self._engine.codec(self._decoding).encode(tf.constant(texts, tf.string))
        arrays["source_cut"] = cut.numpy()
        return {name: arrays[name] for name in outputs or self.signatures[signature].outputs}


def _n_best(translations: list[list[Translation]], number: int) -> Arrays:
    """Returns the outputs of `nbest`, in which fillers follow those that were found."""
    texts = np.full([len(translations), number], b"", object)
    scores = np.full(texts.shape, np.finfo(np.float32).min, np.float32)
    for row, ranked in enumerate(translations):
        texts[row, : len(ranked)] = [each.encode() for each in ranked]
        scores[row, : len(ranked)] = [each.score for each in ranked]
        if not ranked[0].num_tokens:  # a blank text
            scores[row] = 0
    counts = np.array([len(ranked) for ranked in translations], np.int32)
    return {"translations": texts, "scores": scores, "count": counts}
