"""A SavedModel whose searches run in LiteRT, for `serve --litert`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.decoding.hypotheses import Hypothesis
from tf_transformer.decoding.threads import most_streams
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.serving.session import Arrays, ClosedError, SavedModelSession


class LiteSession(SavedModelSession):
    """Answers `serving_default` and `nbest` in LiteRT, the rest as usual.

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
        translations = translator.translate(texts, check)
        if signature == "serving_default":
            arrays = _best(translations)
        else:
            arrays = _all(translations, translator.num_hypotheses)
        if texts:
            arrays["source_cut"] = translator.codec.encode(tf.constant(texts))[1].numpy()
        else:
            arrays["source_cut"] = np.zeros([0], bool)
        return {name: arrays[name] for name in outputs or definition.outputs}


def _best(translations: list[list[Hypothesis]]) -> Arrays:
    texts = [ranked[0].text.encode() for ranked in translations]
    scores = [ranked[0].score for ranked in translations]
    return {"translation": np.array(texts, object), "score": np.array(scores, np.float32)}


def _all(translations: list[list[Hypothesis]], num_hypotheses: int) -> Arrays:
    """Returns the outputs of `nbest`; `count` leaves out fillers, and is 1 for a blank text."""
    counts = [max(1, sum(one.num_tokens > 0 for one in ranked)) for ranked in translations]
    texts = [[one.text.encode() for one in ranked] for ranked in translations]
    scores = [[one.score for one in ranked] for ranked in translations]
    shape = len(translations), num_hypotheses
    return {
        "translations": np.array(texts, object).reshape(shape),
        "scores": np.array(scores, np.float32).reshape(shape),
        "count": np.array(counts, np.int32),
    }
