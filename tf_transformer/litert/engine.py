"""The engine that searches in LiteRT, of an export or beside the model of a run."""

import dataclasses
import hashlib
import logging
import operator
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.config import PAD_ID, SEARCH, Config, DecodingConfig
from tf_transformer.data.subwords import Subwords
from tf_transformer.data.text import read_errors
from tf_transformer.decoding.hypotheses import Hypotheses, map_structure
from tf_transformer.decoding.interface import Input, SearchPlan
from tf_transformer.decoding.rules import needs_tensorflow
from tf_transformer.decoding.streams import lite_threads, most_streams
from tf_transformer.decoding.text_codec import SearchOfIds, TextEngine
from tf_transformer.export.card import checked_card, config_in
from tf_transformer.export.versions import LITE_MODEL
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.litert.search import numpy_beam_search

logger = logging.getLogger(__name__)

_TEXT = {"text": Input("string", 1)}  # inputs of a signature


class LiteEngine(TextEngine):
    """Searches in LiteRT, with a tokenizer in Python.

    `window` is the model's attention window, 0 for none; `longest` and the other options are
    those of `TextEngine`. `graph`, of the same model, scores and aligns in float32, in
    TensorFlow; without it, the engine can do neither.
    """

    name, advice = "LiteRT", "leave out `litert`"
    inputs = MappingProxyType(dict.fromkeys(("serving_default", "nbest"), _TEXT))
    # Of an export, as those of `ExportEngine`.
    path: Path
    card: Mapping[str, Any]
    config: Config | None
    decoding: DecodingConfig | None = None

    def __init__(
        self,
        tokenizer: Subwords,
        interpreters: InterpreterPool,
        longest: tuple[int | None, int | None],
        window: int = 0,
        *,
        graph: Any = None,
        streams: int | None = None,
        **options: Any,
    ) -> None:
        streams = streams or most_streams(interpreters.threads)
        super().__init__(tokenizer, longest, streams=streams, **options)
        self.interpreters, self.window, self.graph = interpreters, window, graph
        self.gives_word_probs = self.scores = graph is not None
        if graph is not None:
            self.places, self.aligns = graph.places, graph.aligns
            self.slot_passes, self.nearest = graph.slot_passes, graph.nearest
        with interpreters.lend() as one:  # fixed shapes are for one sentence at a time
            shape = one.step.get_input_details()["tokens"]["shape_signature"].tolist()
        self.one_by_one, self._width = shape[0] == 1, shape[1]

    @classmethod
    def beside(cls, graph: Any, interpreters: InterpreterPool, **options: Any) -> Self:
        """Returns the engine that searches for a `GraphEngine`, of no ensemble."""
        options = {"longest_trained": graph.longest_trained} | options
        window = graph.model.config.attention_window
        return cls(graph.tokenizer, interpreters, graph.longest, window, graph=graph, **options)

    @classmethod
    def open(cls, path: Path, threads: int | None = None) -> Self:
        """Loads an export for LiteRT, whose card says what its search needs.

        `threads` are those of an operation, by default by the model's width. Raises UserError
        if a file is missing or damaged. Warns if the card does not tell the settings of its
        training.
        """
        card = checked_card(path)
        config, sizes = config_in(card), card.get("sizes") or {}
        tokenizer = Subwords(path / "tokenizer.model", card.get("tag") or "")
        longest = sizes.get("max_source_tokens"), sizes.get("max_target_tokens")
        window = 0
        if config:
            longest = config.model.longest_source, config.model.longest_target
            window = config.model.attention_window
        else:
            logger.warning("%s does not tell the settings of its training", path)
        threads = threads or lite_threads(config.model.d_model if config else 0)
        file = path / LITE_MODEL
        with read_errors(file):
            content = file.read_bytes()
        try:
            pool = InterpreterPool(content, threads, card.get("precision") or "float32")
        except (ValueError, RuntimeError) as error:  # LiteRT's
            raise UserError(f"{file} cannot be loaded: {one_line(error)}") from None
        engine = cls(
            tokenizer,
            pool,
            longest,
            window,
            longest_trained=card.get("longest_source"),
            symbols=card.get("symbols"),  # not in 1.1.0
        )
        engine.name, engine.advice = f"The export {path}", "load the run it was made from"
        engine.path, engine.card, engine.config = path, card, config
        given = (card.get("decoding") or {}).items()
        known = {name: value for name, value in given if name in SEARCH}
        engine.decoding = config.decoding if config else DecodingConfig(**known)
        return engine

    def describe(self) -> dict[str, Any]:
        """Returns its signatures as JSON, for the metadata of a server."""
        text = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
        method = {"method_name": "tensorflow/serving/predict"}
        return {name: {"inputs": {"text": text}} | method for name in self.inputs}

    def fingerprint(self) -> str:
        """Returns a hash of weights and tokenizer; see `Engine.fingerprint`."""
        found = hashlib.sha256(f"{type(self).__name__} {self.tokenizer.tag}".encode())
        for content in (*self.tokenizer.models.values(), self.interpreters.content):
            found.update(content)
        return found.hexdigest()

    def _search_for(self, plan: SearchPlan) -> SearchOfIds:
        self.refuse_all_but_beam_search(dataclasses.replace(plan, rules=()))
        if other := [type(rule).__name__ for rule in plan.rules if needs_tensorflow(rule)]:
            self.refuse(f"search with the rule {other[0]}, which computes in TensorFlow")
        if self.one_by_one:
            most = self.limits(self.decoding or plan.decoding)
            asked = self.limits(plan.decoding)
            if any(map(operator.gt, asked, most)) or plan.decoding.beam_size != self._width:
                sizes = f"{most[0]} and {most[1]} tokens, and `beam_size` {self._width}"
                self.refuse(f"search with other sizes than {sizes}, fixed in its file")
        if plan.decoding.jit_compile:
            logger.warning("decoding.jit_compile has no effect in LiteRT")
        codec = self.codec(plan.decoding)

        def search(source: np.ndarray, inputs: dict[str, Any]) -> Hypotheses:
            lengths = np.count_nonzero(source != PAD_ID, axis=1).astype(np.int32)
            given = inputs.get("prefix"), inputs.get("contexts", ())
            rules = [
                (rule, map_structure(np.asarray, context))
                for rule, context in self._rules(source, lengths, plan, *given)
            ]
            limits = codec.limits(lengths)
            with self.interpreters.lend() as interpreter:
                step = interpreter.encode(source, self.window)
                return numpy_beam_search(step, plan.decoding, plan.n_best, limits, rules)

        return search
