"""The engine that searches in LiteRT, of an export or beside the model of a run."""

import dataclasses
import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.config import BOS_ID, PAD_ID, SEARCH, Config, DecodingConfig
from tf_transformer.data.subwords import Subwords
from tf_transformer.data.text import read_errors
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.decoding.hypotheses import Hypotheses, length_penalty, map_structure
from tf_transformer.decoding.interface import Input, SearchPlan, Translation
from tf_transformer.decoding.rules import needs_tensorflow
from tf_transformer.decoding.streams import (
    TURNS,
    Progress,
    in_batches,
    lite_beams,
    lite_threads,
    most_streams,
    padded,
)
from tf_transformer.decoding.text_codec import SearchOfIds, TextEngine
from tf_transformer.export.card import checked_card, config_in
from tf_transformer.export.versions import LITE_MODEL
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.litert.search import numpy_beam_search
from tf_transformer.terms.placing import Nearest, Pass

logger = logging.getLogger(__name__)

_TEXT = {"text": Input("string", 1)}  # inputs of a signature


class LiteEngine(TextEngine):
    """Searches in LiteRT, with a tokenizer in Python.

    `window` is the model's attention window, 0 for none; `longest` and the other options are
    those of `TextEngine`. `graph`, of the same model, scores and aligns in float32, in
    TensorFlow; without it, the engine scores by its own steps and cannot align.
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
        self.places, self.aligns = self.has_slots, graph is not None and graph.aligns
        with interpreters.lend() as one:
            inputs = one.step.get_input_details().items()
        shapes = {name: each["shape_signature"].tolist() for name, each in inputs}
        batch, self._width = shapes["tokens"]
        self.is_fixed = batch == 1  # one sentence at a time
        # [..., H, S, K], of a layer or, with fixed shapes and in files of 1.1.0, of all
        keys = next(each for name, each in shapes.items() if name.startswith("memory_keys"))
        self.most_beams = 1 if self.is_fixed else lite_beams(keys[-3], keys[-1])

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

    # --- Forced decoding of given translations, unless the graph does it -------------------

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability; see `Engine.score`."""
        if self.graph is not None:
            return self.graph.score(sources, targets, decoding, progress)

        def of_labels(log_probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
            return log_probs[np.arange(len(labels)), labels]

        forced = self._forced(sources, targets, decoding, of_labels, progress)
        vocabulary = self.tokenizer.vocabulary("target")
        begins = [piece.startswith(SPACE_PIECE) for piece in vocabulary]
        scored = []
        for target, (ids, found) in zip(targets, forced, strict=True):
            log_prob = float(found.sum())
            words = np.cumsum(np.take(begins, ids[:-1]))  # of each piece before EOS
            sums = np.bincount(words - words[:1], found[:-1]) if words.size else np.zeros(0)
            word_probs = np.maximum(np.exp(sums), 1e-30).tolist()
            score = log_prob / length_penalty(len(ids), decoding.alpha)
            tokens = ids.tolist()
            scored.append(Translation(target, score, log_prob, len(ids), word_probs, tokens))
        return scored

    def slot_passes(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Pass]:
        """Returns how likely each slot is at each place of targets with slots."""
        if self.graph is not None:
            return self.graph.slot_passes(sources, targets, decoding)
        forms, vocabulary = self._slots[1], self.tokenizer.vocabulary("target")

        def of_slots(log_probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
            return np.log(np.exp(log_probs[:, forms]).sum(-1) + 1e-38)

        forced = self._forced(sources, targets, decoding, of_slots)
        return [Pass([vocabulary[id] for id in ids[:-1]], found) for ids, found in forced]

    def nearest(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> Sequence[Nearest]:
        """Returns what the graph does; for an engine that `aligns`."""
        return self.graph.nearest(sources, targets, decoding)

    def _forced(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        read: Callable[[np.ndarray, np.ndarray], np.ndarray],
        progress: Progress | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the ids of each target [T], and what is read of its tokens, [T, ...].

        `read` takes the log-probabilities [B, V] of a step and its labels [B].
        """
        codec = self.codec(decoding)
        given = codec.ids(sources, longest_trained=self.longest_trained)
        pairs = list(zip(given, codec.ids(targets, "target"), strict=True))
        width = max(self._width, 1)  # of a file with fixed sizes

        def compute(rows: list[int]) -> np.ndarray:
            source = padded([pairs[row][0] for row in rows])
            labels = padded([pairs[row][1] for row in rows])
            tokens = np.pad(labels, [(0, 0), (1, 0)], constant_values=BOS_ID)
            found = []
            with TURNS, self.interpreters.lend() as interpreter:
                step = interpreter.encode(source, self.window)
                for index in range(labels.shape[1]):
                    last = np.repeat(tokens[:, index, np.newaxis], width, axis=1)
                    beams = np.zeros([*last.shape, index + 1], np.int32)
                    logits = step(last, index, beams)[:, 0].astype(np.float64)
                    highest = logits.max(-1, keepdims=True)
                    total = np.log(np.exp(logits - highest).sum(-1, keepdims=True))
                    found.append(read(logits - highest - total, labels[:, index]))
            return np.stack(found, axis=1)

        results: dict[int, np.ndarray] = {}
        lengths = [max(map(len, pair)) for pair in pairs]
        positions = 1 if self.is_fixed else decoding.batch_tokens // decoding.beam_size
        for rows, found in in_batches(lengths, positions, compute, progress, streams=1):
            results |= zip(rows, found, strict=True)
        return [(ids, results[row][: len(ids)]) for row, (_, ids) in enumerate(pairs)]

    def describe(self) -> dict[str, Any]:
        """Returns its signatures as JSON, for the metadata of a server."""
        text = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
        method = {"method_name": "tensorflow/serving/predict"}
        return {name: {"inputs": {"text": text}} | method for name in self.inputs}

    def _weight_bytes(self) -> Iterable[bytes]:
        return [self.interpreters.content]

    def _search_for(self, plan: SearchPlan) -> SearchOfIds:
        self.refuse_all_but_beam_search(dataclasses.replace(plan, rules=()))
        if other := [type(rule).__name__ for rule in plan.rules if needs_tensorflow(rule)]:
            self.refuse(f"search with the rule {other[0]}, which computes in TensorFlow")
        if self.is_fixed:
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
