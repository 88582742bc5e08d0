"""Served searches by an engine: in LiteRT, or with steps that XLA compiles."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.streams import most_streams
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.export.saved_model import Arrays, ClosedError, SavedModelSession


class EngineSession(SavedModelSession):
    """Answers `serving_default` and `nbest` with an engine, the rest with the SavedModel.

    Both are of the same run. The session is given the engine's streams, each a request.
    """

    def __init__(self, path: Path, engine: GraphEngine, decoding: DecodingConfig) -> None:
        super().__init__(path)
        self.streams, engine.streams = engine.streams or most_streams(), 1
        engine.longest_trained = None  # the server logs what is longer, once
        self._engine, self._decoding = engine, decoding
        self._n_best_of = {"serving_default": 1, "nbest": decoding.beam_size}

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """Computes like `SavedModelSession.run`, but checks the time only between batches."""
        if signature not in self._n_best_of:
            return super().run(signature, inputs, outputs, timeout)
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        until = float("inf") if timeout is None else time.monotonic() + timeout

        def check(done: int) -> None:
            if self._closed:
                raise ClosedError
            if done < len(texts) and time.monotonic() > until:
                raise TimeoutError(f"{signature} took more than {timeout:g} s")

        n_best = self._n_best_of[signature]
        ranked = self._engine.translate(texts, self._decoding, n_best, progress=check)
        arrays = _n_best(ranked, n_best)
        if signature == "serving_default":
            best, scores = arrays["translations"][:, 0], arrays["scores"][:, 0]
            arrays = {"translation": best, "score": scores}
        _, cut = self._engine.codec(self._decoding).encode(tf.constant(texts, tf.string))
        arrays["source_cut"] = cut.numpy()
        return {name: arrays[name] for name in outputs or self.signatures[signature].outputs}


def _n_best(translations: list[list[Translation]], n_best: int) -> Arrays:
    """Returns the outputs of `nbest`, in which fillers follow those that were found."""
    texts = np.full([len(translations), n_best], b"", object)
    scores = np.full(texts.shape, np.finfo(np.float32).min, np.float32)
    for row, ranked in enumerate(translations):
        texts[row, : len(ranked)] = [each.encode() for each in ranked]
        scores[row, : len(ranked)] = [each.score for each in ranked]
        if not ranked[0].num_tokens:  # a blank text
            scores[row] = 0
    counts = np.array([len(ranked) for ranked in translations], np.int32)
    return {"translations": texts, "scores": scores, "count": counts}
