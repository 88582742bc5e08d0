"""Beam search of tf_transformer at any size, with random weights and forced lengths."""

import functools
from types import SimpleNamespace

import keras
import numpy as np
from harness.child import resident_bytes, serve

from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.decoding.engine import GraphEngine, SearchPlan
from tf_transformer.models.transformer import Transformer


def setup(**settings) -> dict:
    """Returns the cases; `settings` replace what `Transformer` gets from their sizes."""

    @functools.lru_cache(maxsize=1)
    def model_of(vocabulary: int, width: int, layers: int) -> Transformer:
        keras.utils.set_random_seed(0)
        sizes = {
            "vocab_size": vocabulary,
            "num_layers": layers,
            "d_model": width,
            "d_ff": 4 * width,
            "num_heads": max(width // 64, 1),
        }
        return Transformer(**sizes | settings)

    @functools.lru_cache(maxsize=1)
    def searcher(model: Transformer, beam: int, output: int):
        limits = {"min_length": output, "max_length": output, "max_source_length": 2048}
        decoding = DecodingConfig(beam_size=beam, max_extra_length=output, **limits)
        vocabulary = SimpleNamespace(  # enough to search over ids
            vocab_size=model.vocab_size, model_bytes=b"", slots=lambda side: ()
        )
        return GraphEngine(model, vocabulary).search_for(SearchPlan(decoding))

    def work(
        source: int, output: int, beam: int, batch: int, vocabulary: int, **sizes: int
    ) -> dict:
        model = model_of(vocabulary, **sizes)
        search = searcher(model, beam, output)
        ids = np.random.default_rng(0).integers(EOS_ID + 1, vocabulary, (batch, source))
        ids[:, -1] = EOS_ID
        resident = resident_bytes()
        search(ids.astype("int32"), {}).tokens.numpy()
        size = model.count_params()
        return {"tokens": batch * output, "parameters": size, "resident_bytes": resident}

    return {"work": work}


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
