"""An engine that searches in LiteRT; it scores and aligns with the model in TensorFlow."""

import numpy as np

from tf_transformer.config import PAD_ID, DecodingConfig, SamplingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.candidates import Grammar
from tf_transformer.decoding.engine import Find, GraphEngine
from tf_transformer.decoding.streams import most_streams
from tf_transformer.litert.interpreter import LiteModel
from tf_transformer.litert.search import host_search
from tf_transformer.models.ensemble import only_model
from tf_transformer.models.transformer import Transformer


class LiteEngine(GraphEngine):
    """Searches in LiteRT; scores and aligns with the model in TensorFlow.

    Args:
        model: a trained `Transformer` in float32.
        tokenizer: the tokenizer that it was trained with.
        lite: its LiteRT file.
        streams: batches searched at the same time; None for as many as the cores allow.
    """

    name, instead = "LiteRT", "leave out `litert`"

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        lite: LiteModel,
        *,
        streams: int | None = None,
    ) -> None:
        super().__init__(model, tokenizer, streams=streams or most_streams(lite.threads))
        self.lite = lite

    def _compile(
        self,
        decoding: DecodingConfig,
        number: int = 1,
        sampling: SamplingConfig | None = None,
        prefixed: bool = False,
        grammar: Grammar | None = None,
        alphas: tuple[float, ...] = (),
    ) -> Find:
        if sampling:
            self.refuse("sample")
        codec, window = self.codec(decoding), only_model(self.model).config.attention_window

        def find(source: np.ndarray, options: dict[str, np.ndarray]) -> Hypotheses:
            lengths = np.count_nonzero(source != PAD_ID, axis=1).astype(np.int32)
            limits = np.asarray(codec.limits(lengths)), np.asarray(codec.min_lengths(lengths))
            with self.lite.interpreter() as interpreter:
                step = interpreter.encode(source, window)
                return host_search(step, decoding, number, *limits, options.get("prefix"))

        return find
