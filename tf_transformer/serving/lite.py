"""LiteRT: exports for phones and other programs, and served searches for `serve --litert`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.decoding.ensemble import only_model
from tf_transformer.decoding.hypotheses import Translation
from tf_transformer.decoding.lite_file import Sizes, lite_file
from tf_transformer.decoding.lite_model import LiteModel
from tf_transformer.decoding.threads import most_streams
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError, quoted
from tf_transformer.files import replacing_folder
from tf_transformer.serving.publish import facts, write_card
from tf_transformer.serving.session import Arrays, ClosedError, SavedModelSession
from tf_transformer.serving.translations import sizes
from tf_transformer.serving.versions import CARD, LITE_MODEL, reserved
from tf_transformer.serving.warmup import TEXTS


def export_lite(
    translator: BatchTranslator,
    base: Path,
    version: int | None,
    card: dict[str, Any],
    fixed: bool = False,
) -> Path:
    """Writes BASE/VERSION/ with the file, the tokenizer and a card; returns that folder.

    Args:
        translator: its LiteRT model is written if it has one, else its model in float32.
        base: the folder of the model's versions.
        version: version number; None for the next free one.
        card: content of the card.
        fixed: whether to fix the shapes, for a single source up to the translator's limit.

    Raises:
        UserError: if the version exists or cannot be written, the model is in bfloat16, or
            LiteRT in float32 translates differently.
        ValueError: if the model is an ensemble.
    """
    model = only_model(translator.model)
    if model.compute_dtype != "float32":
        raise UserError(
            f"LiteRT needs a model in float32 or int8. Received: {model.compute_dtype}."
        )
    with reserved(base, version) as final, replacing_folder(final, replace=False) as folder:
        lite = translator.lite
        if fixed or not lite:
            codec, width = translator.codec, translator.decoding.beam_size
            fixed_sizes = Sizes(1, codec.source_limit, width, codec.target_limit)
            precision = lite.precision if lite else "float32"
            content = lite_file(model, precision, fixed_sizes if fixed else Sizes())
            lite = LiteModel(content, 1, precision)
        (folder / LITE_MODEL).write_bytes(lite.content)
        card = card | {"translated_as_in_float32": _compare(translator, lite)}
        translator.tokenizer.copy(folder / "tokenizer.model")
        card |= facts([model], translator.tokenizer, sizes(translator))
        write_card(folder / CARD.name, card)
    return final


def _fitting(translator: BatchTranslator, text: str) -> str:
    """Returns the longest beginning of a text that fits the source limit."""
    limit, ids = translator.codec.source_limit, translator.tokenizer.ids
    return next(text[:n] for n in range(len(text), -1, -1) if len(ids([text[:n]])[0]) < limit)


def _compare(translator: BatchTranslator, lite: LiteModel) -> str:
    """Returns how many of a few texts LiteRT translates like the model: "9 of 9 texts"."""
    texts = [_fitting(translator, text) for text in TEXTS if isinstance(text, str)]
    model, tokenizer, decoding = translator.model, translator.tokenizer, translator.decoding
    expected = BatchTranslator(model, tokenizer, decoding).translate(texts)
    in_lite = BatchTranslator(model, tokenizer, decoding, lite=lite)
    received = [in_lite.translate([text])[0] for text in texts]  # fixed shapes allow only one
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
        translator: a translator of the same run, with a LiteRT model.
    """

    def __init__(self, path: Path, translator: BatchTranslator) -> None:
        super().__init__(path)
        if translator.lite:
            self.streams = most_streams(translator.lite.threads)
        beam_size = translator.decoding.beam_size
        self._translators = {
            "serving_default": translator.with_decoding(translator.decoding, 1, streams=1),
            "nbest": translator.with_decoding(translator.decoding, beam_size, streams=1),
        }

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """Computes like `SavedModelSession.run`, but checks the time only between batches."""
        if signature not in self._translators:
            return super().run(signature, inputs, outputs, timeout)
        definition, arrays = self.check(signature, inputs, outputs)
        texts = [text.decode("utf-8", "replace") for text in arrays["text"]]
        until = float("inf") if timeout is None else time.monotonic() + timeout

        def check(done: int) -> None:
            if self._closed:
                raise ClosedError
            if done < len(texts) and time.monotonic() > until:
                raise TimeoutError(f"{signature} took more than {timeout:g} s")

        translator = self._translators[signature]
        arrays = _n_best(translator.translate(texts, check), translator.num_hypotheses)
        if signature == "serving_default":
            best, scores = arrays["translations"][:, 0], arrays["scores"][:, 0]
            arrays = {"translation": best, "score": scores}
        _, cut = translator.codec.encode(tf.constant(texts, tf.string))
        arrays["source_cut"] = cut.numpy()
        return {name: arrays[name] for name in outputs or definition.outputs}


def _n_best(translations: list[list[Translation]], num_hypotheses: int) -> Arrays:
    """Returns the outputs of `nbest`; `count` excludes fillers, and is 1 for a blank text."""
    counts = [max(1, sum(one.num_tokens > 0 for one in ranked)) for ranked in translations]
    texts = [[one.encode() for one in ranked] for ranked in translations]
    scores = [[one.score for one in ranked] for ranked in translations]
    shape = len(translations), num_hypotheses
    return {
        "translations": np.array(texts, object).reshape(shape),
        "scores": np.array(scores, np.float32).reshape(shape),
        "count": np.array(counts, np.int32),
    }
