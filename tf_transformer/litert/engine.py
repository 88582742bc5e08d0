"""The engine that searches in LiteRT, of an export or beside the model of a run.

Nothing here imports TensorFlow, but for what computes beside it.
"""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tf_transformer.config import PAD_ID, DecodingConfig
from tf_transformer.data.subwords import Subwords
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.interface import SearchPlan, Translation
from tf_transformer.decoding.rules import NUMPY, map_structure, needs_tensorflow
from tf_transformer.decoding.streams import Progress, most_streams
from tf_transformer.decoding.text_codec import SearchOfIds, TextEngine
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.litert.search import numpy_beam_search

logger = logging.getLogger(__name__)


class LiteEngine(TextEngine):
    """Searches in LiteRT, with a tokenizer in Python.

    `window` is the model's attention window, 0 for none; `longest` and the other options are
    those of `TextEngine`. `graph`, of the same model, scores and aligns in float32, in
    TensorFlow; without it, the engine can do neither.
    """

    name, advice = "LiteRT", "leave out `litert`"

    def __init__(
        self,
        tokenizer: Subwords,
        interpreters: InterpreterPool,
        longest: tuple[int | None, int | None],
        window: int = 0,
        *,
        graph: Any = None,
        streams: int | None = None,
        longest_trained: int | None = None,
    ) -> None:
        streams = streams or most_streams(interpreters.threads)
        super().__init__(tokenizer, longest, streams=streams, longest_trained=longest_trained)
        self.interpreters, self.window, self.graph = interpreters, window, graph
        self.gives_word_probs = graph is not None

    @classmethod
    def beside(cls, graph: Any, interpreters: InterpreterPool, **options: Any) -> Self:
        """Returns the engine that searches for the model of a `GraphEngine`, not an ensemble."""
        options = {"longest_trained": graph.longest_trained} | options
        window = graph.model.config.attention_window
        return cls(graph.tokenizer, interpreters, graph.longest, window, graph=graph, **options)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability; see `Engine.score`."""
        scorer = self.graph or super()
        return scorer.score(sources, targets, decoding, progress)

    def _search_for(self, plan: SearchPlan) -> SearchOfIds:
        self.refuse_all_but_beam_search(dataclasses.replace(plan, rules=()))
        if other := [type(rule).__name__ for rule in plan.rules if needs_tensorflow(rule)]:
            self.refuse(f"search with the rule {other[0]}, which computes in TensorFlow")
        if plan.decoding.jit_compile:
            logger.warning("decoding.jit_compile has no effect in LiteRT")
        codec = self.codec(plan.decoding)

        def search(source: np.ndarray, inputs: dict[str, Any]) -> Hypotheses:
            lengths = np.count_nonzero(source != PAD_ID, axis=1).astype(np.int32)
            given = inputs.get("prefix"), inputs.get("contexts", ())
            rules = [
                (rule, map_structure(np.asarray, context))
                for rule, context in self._rules(source, lengths, plan, *given, NUMPY)
            ]
            limits = codec.limits(lengths)
            with self.interpreters.lend() as interpreter:
                step = interpreter.encode(source, self.window)
                return numpy_beam_search(step, plan.decoding, plan.n_best, limits, rules)

        return search
