"""An engine that searches in LiteRT; it scores and aligns with the model in TensorFlow."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.engine import GraphEngine, SearchOfIds, SearchPlan
from tf_transformer.decoding.rules import needs_tensorflow
from tf_transformer.decoding.streams import most_streams
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.litert.search import numpy_beam_search
from tf_transformer.models.ensemble import only_model
from tf_transformer.models.transformer import Transformer


class LiteEngine(GraphEngine):
    """Searches in LiteRT; scores and aligns with the model, in float32, in TensorFlow."""

    name, advice = "LiteRT", "leave out `litert`"

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        interpreters: InterpreterPool,
        *,
        streams: int | None = None,
        longest_trained: int | None = None,
    ) -> None:
        streams = streams or most_streams(interpreters.threads)
        super().__init__(model, tokenizer, streams=streams, longest_trained=longest_trained)
        self.interpreters = interpreters

    def fingerprint(self) -> str:
        """Returns a hash of weights and tokenizer; see `Engine.fingerprint`."""
        return f"{self.interpreters.precision} {super().fingerprint()}"

    def _search_for(self, plan: SearchPlan) -> SearchOfIds:
        self.refuse_all_but_beam_search(replace(plan, rules=()))
        if other := [type(rule).__name__ for rule in plan.rules if needs_tensorflow(rule)]:
            self.refuse(f"search with the rule {other[0]}, which computes in TensorFlow")
        if plan.decoding.jit_compile:
            logging.getLogger(__name__).warning("decoding.jit_compile has no effect in LiteRT")
        codec = self.codec(plan.decoding)
        window = only_model(self.model).config.attention_window

        def search(source: np.ndarray, inputs: dict[str, Any]) -> Hypotheses:
            lengths = np.count_nonzero(source != PAD_ID, axis=1).astype(np.int32)
            given = inputs.get("prefix"), inputs.get("contexts", ())
            rules = [
                (rule, tf.nest.map_structure(np.asarray, context))
                for rule, context in self._rules(source, lengths, plan, *given)
            ]
            limits = np.asarray(codec.limits(lengths))
            with self.interpreters.lend() as interpreter:
                step = interpreter.encode(source, window)
                return numpy_beam_search(step, plan.decoding, plan.n_best, limits, rules)

        return search
