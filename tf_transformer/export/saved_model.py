"""The engine of an export: a SavedModel loaded as in TF Serving."""

import dataclasses
import importlib.util
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import sentencepiece
import tensorflow as tf
from google.protobuf.json_format import MessageToDict

from tf_transformer.base.errors import UserError, reason
from tf_transformer.base.files import sha256
from tf_transformer.base.parallel import at_once
from tf_transformer.base.system import refuse_in_fork
from tf_transformer.config import DecodingConfig
from tf_transformer.data.text import SIDES, utf8
from tf_transformer.data.vocabulary import pieces_of, slot_ids, symbols_in
from tf_transformer.decoding.attention import without_tag
from tf_transformer.decoding.hypotheses import length_penalty
from tf_transformer.decoding.interface import (
    ClosedError,
    Engine,
    Input,
    SearchPlan,
    Translation,
    column,
    set_sources,
    token_limits,
    warn_of_long,
)
from tf_transformer.decoding.streams import TURNS, Progress, most_streams, streams_for
from tf_transformer.export.card import checked_card, config_in
from tf_transformer.export.operations import check_operations
from tf_transformer.export.versions import check_readable
from tf_transformer.fast.int8 import INT8_PRODUCT, int8_works
from tf_transformer.run.checkpoints import Arrays
from tf_transformer.terms.placing import Nearest, Pass

logger = logging.getLogger(__name__)

_UNALIGNED = (
    "tags placed by their position, since an export aligns only its best translation: %d "
    "translations; load the run to align them"
)

_AT_ONCE = 256  # rows in a call, which the graph divides into batches


# Outputs of signatures that `ExportEngine` and the server read; 1.0.0's exports have no more.
_OUTPUTS = {
    "serving_default": ("translation", "score", "source_cut"),
    "with_options": ("translations", "scores", "log_probs", "num_tokens", "count"),
    "score": ("score", "log_prob", "num_tokens"),
}


class ExportEngine(Engine):
    """Runs the signatures of a SavedModel, without Keras or TensorFlow's Python loader.

    It may be used from several threads. `signatures` are SignatureDefs by name, `card` is the
    model card and `config` the configuration in it, None without one. Tokens are counted
    without the tag that the graph adds, with the tokenizers in the graph.

    It translates and scores if the export does, which `open_export` checks. The export has
    fixed the search, whose settings are `decoding`, except for `alpha` and `max_length`, which
    can only lower the export's own limit; 0 leaves that limit.

    Raises UserError if `path` holds no SavedModel that can be loaded, or its card is damaged.
    """

    advice = "load the run it was made from"
    _closed = False

    def __init__(self, path: Path) -> None:
        self.name = f"The export {path}"
        check_readable(path)
        self.card = checked_card(path)
        load_text_operations()
        check_operations(path)
        self.path, self.streams = path, most_streams()
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=_quick_start())
        try:
            with graph.as_default():
                meta = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        except (OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
            raise UserError(
                f"{path} holds no SavedModel that can be loaded: {reason(error)}"
            ) from None
        self.signatures = {
            name: signature
            for name, signature in sorted(meta.signature_def.items())
            if not name.startswith("__")  # TensorFlow's initialisation
        }
        self.inputs = {
            name: {
                key: Input(tf.as_dtype(info.dtype).name, len(info.tensor_shape.dim))
                for key, info in signature.inputs.items()
            }
            for name, signature in self.signatures.items()
        }
        graphs = [meta.graph_def.node]
        graphs += (function.node_def for function in meta.graph_def.library.function)
        nodes = list(itertools.chain.from_iterable(graphs))
        if any(node.op == INT8_PRODUCT for node in nodes):
            require_int8(str(path))
        models = {node.attr["model"].s for node in nodes if node.op == "SentencepieceOp"}
        load = sentencepiece.SentencePieceProcessor
        self._processors = [load(model_proto=model) for model in models]
        slots = [len(slot_ids(pieces_of(model))) for model in models]
        self.has_slots = bool(slots) and all(slots)
        self.symbols = frozenset().union(*map(symbols_in, models))
        self.config = config_in(self.card)
        self.decoding = self.config.decoding if self.config else DecodingConfig()
        longest, tag = self.card.get("longest_source"), utf8(self.card.get("tag") or "")
        self.longest_trained = longest and longest + 1 - self.count_tokens(tag)
        scored = self.signatures["score"].outputs if "score" in self.signatures else ()
        self.gives_word_probs = "word_probs" in scored
        names = ("places", "attention", "score")
        self.places, self.aligns, self.scores = (name in self.signatures for name in names)

    def __repr__(self) -> str:
        return f"ExportEngine({self.path})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model; running requests end with ClosedError."""
        self._closed = True
        self._session.close()

    def describe(self) -> dict[str, Any]:
        """Returns its signatures as JSON, for the metadata of a server."""
        return {
            name: MessageToDict(signature, preserving_proto_field_name=True)
            for name, signature in self.signatures.items()
        }

    def fingerprint(self) -> str:
        """Returns a hash of the graph and its weights; see `Engine.fingerprint`."""
        files = [self.path / "saved_model.pb", *sorted(self.path.glob("variables/*"))]
        return " ".join(map(sha256, files))

    def count_tokens(self, text: str | bytes) -> int:
        """Returns the tokens of a text, EOS included."""
        # With a tokenizer for each language, the one of the text's language needs the fewest.
        return 1 + min((len(one.encode(text)) for one in self._processors), default=0)

    def limits(self, decoding: DecodingConfig) -> tuple[int, int]:
        """Returns the most tokens of a source and of a target; see `token_limits`."""
        model, sizes = self.config and self.config.model, self.card.get("sizes") or {}
        source, target = (sizes.get(f"max_{side}_tokens") for side in SIDES)  # the codec's own
        return token_limits(
            decoding,
            source or (model.longest_source if model else None),
            target or (model.longest_target if model else None),
        )

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Arrays:
        """Computes the requested outputs of a signature, by default all.

        Texts in `inputs` are bytes, see `column`. Raises TimeoutError if it takes longer than
        `timeout` seconds and is cancelled, and ClosedError if it is closed before the outputs
        are computed.
        """
        refuse_in_fork()
        definition = self.signatures[signature]
        feed = {definition.inputs[name].name: array for name, array in inputs.items()}
        names = list(outputs or definition.outputs)
        fetch = [definition.outputs[name].name for name in names]
        limit = None
        if timeout is not None:
            limit = tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(1000 * timeout)))
        try:
            arrays = self._session.run(fetch, feed, limit)
        except tf.errors.DeadlineExceededError:
            raise TimeoutError(f"{signature} took more than {timeout:g} s") from None
        except (tf.errors.CancelledError, RuntimeError):
            if self._closed:
                raise ClosedError from None
            raise
        return dict(zip(names, arrays, strict=True))

    def answers(
        self, signature: str, inputs: Arrays, progress: Progress | None = None
    ) -> Iterator[Arrays]:
        """Yields the outputs of a signature, some rows at a time; warns if texts were cut.

        `inputs` have the same number of rows; `progress` is called with those done so far.
        """
        rows, cut = len(next(iter(inputs.values()))), 0
        streams = streams_for(rows, self.streams)
        size = min(_AT_ONCE, math.ceil(rows / streams)) or 1

        def compute(start: int) -> Arrays:
            some = {name: array[start : start + size] for name, array in inputs.items()}
            with TURNS:
                return self.run(signature, some)

        for start, answer in at_once(range(0, rows, size), compute, streams):
            cut += sum(int(answer[name].sum()) for name in answer if name.endswith("_cut"))
            yield answer
            if progress:
                progress(min(start + size, rows))
        if cut:
            logger.warning("texts cut at the limits of %s: %d", self.path, cut)

    def _translate(
        self,
        texts: Sequence[str],
        plan: SearchPlan,
        progress: Progress | None,
        alone: bool = True,
    ) -> list[list[Translation]]:
        self.refuse_all_but_beam_search(plan)
        decoding = plan.decoding
        alpha = decoding.alpha if "alpha" in self._changed(decoding) else -1.0
        inputs = {
            "text": column(texts),
            "alpha": np.full(len(texts), alpha, np.float32),
            "max_length": np.full(len(texts), decoding.max_length, np.int32),
            "prefix": column(plan.prefixes or [""] * len(texts)),
        }
        tokens = [*map(self.count_tokens, inputs["text"])]
        warn_of_long(tokens, self.longest_trained if alone else None)
        translations: list[list[Translation]] = []
        for answer in self.answers("with_options", inputs, progress):
            names = ("translations", "scores", "log_probs", "num_tokens")
            columns = (answer[name].tolist() for name in names)
            for count, *row in zip(answer["count"], *columns, strict=True):
                best = itertools.islice(zip(*row, strict=True), min(count, plan.n_best))
                translations.append([Translation(text.decode(), *rest) for text, *rest in best])
        set_sources(texts, translations, tokens, self.longest_trained)
        return translations

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability; see `Engine.score`."""
        changed = self._changed(decoding)
        inputs = {"source": column(sources), "target": column(targets)}
        names = ("score", "log_prob", "num_tokens", "word_probs")  # the last not in 1.0.0
        figures: list[tuple] = []
        for answer in self.answers("score", inputs, progress):
            if "alpha" in changed:
                penalties = length_penalty(
                    tf.cast(answer["num_tokens"], tf.float32), decoding.alpha
                )
                answer["score"] = answer["log_prob"] / penalties.numpy()
            columns = (answer[name].tolist() for name in names if name in answer)
            figures += zip(*columns, strict=True)
        return [Translation(target, *row) for target, row in zip(targets, figures, strict=True)]

    def slot_passes(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Pass]:
        """Returns how likely each slot is at each place of targets with slots."""
        inputs, passes = {"source": column(sources), "target": column(targets)}, list[Pass]()
        for answer in self.answers("places", inputs):
            rows = zip(map(_decoded, answer["pieces"]), answer["slots"], strict=True)
            passes += [Pass(row[:-1], slots[: len(row)]) for row, slots in rows]
        return passes

    def nearest(
        self, sources: Sequence[str], targets: Sequence[str], decoding: DecodingConfig
    ) -> list[Nearest]:
        """Returns the piece of its source that each piece of a target is aligned to.

        Only its own best translation can be aligned, of another nothing, with a warning.
        """
        results, words = list[Nearest](), len((self.card.get("tag") or "").split())
        others = 0
        for answer in self.answers("attention", {"text": column(sources)}):
            pieces = (map(_decoded, answer[f"{side}_pieces"]) for side in SIDES)
            rows = zip(answer["translation"], *pieces, answer["alignment"], strict=True)
            for text, source, target, nearest in rows:
                is_same = text.decode() == targets[len(results)]
                others += not is_same
                found = source[:-1], target[:-1], nearest if is_same else ()
                results.append(without_tag(*found, words))
        if others:
            logger.warning(_UNALIGNED, others)
        return results

    def _changed(self, decoding: DecodingConfig) -> set[str]:
        """Returns the settings that differ from the export's; refuses those that are fixed."""
        names = (field.name for field in dataclasses.fields(decoding))
        changed = {n for n in names if getattr(decoding, n) != getattr(self.decoding, n)}
        if fixed := changed - {"alpha", "max_length"}:
            self.refuse(f"search with another `{min(fixed)}`")
        return changed


def _decoded(pieces: np.ndarray) -> list[str]:
    return [piece.decode() for piece in pieces.tolist() if piece]


def open_export(path: Path, *signatures: str) -> ExportEngine:
    """Loads an export that takes text; UserError if it cannot be loaded, or lacks a signature.

    By default it must have `serving_default`, with which a server can translate.
    """
    engine = ExportEngine(path)
    for name in signatures or ("serving_default",):
        there = engine.signatures[name].outputs if name in engine.signatures else ()
        if missing := [output for output in _OUTPUTS[name] if output not in there]:
            raise UserError(
                f"{path} must be an export of this package that takes text and gives "
                f"`translation`. Received: one with the signatures "
                f"{', '.join(engine.signatures)}, without {', '.join(missing)} in `{name}`."
            )
    return engine


def _quick_start() -> tf.compat.v1.ConfigProto:
    """Returns options that optimise the graph of each set of outputs once instead of twice.

    A second pass speeds up no search, and takes a quarter of the time of a first request.
    """
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.meta_optimizer_iterations = type(rewrites).ONE
    return config


def require_int8(what: str) -> None:
    """Raises UserError if TensorFlow does not multiply int8 exactly on this machine."""
    if not int8_works():
        raise UserError(
            f"{what} needs products in int8, which this TensorFlow does not compute exactly: "
            "they are an operation of oneDNN, for x86 processors. Load the run in float32 or, "
            "for int8 that is exact on every processor, with `litert`."
        )


def load_text_operations() -> None:
    """Registers SentencePiece's operations, without the rest of TensorFlow Text."""
    package = importlib.util.find_spec("tensorflow_text")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The package tensorflow_text is not installed.")
    folder = Path(package.origin).parent
    tf.load_op_library(str(folder / "python" / "ops" / "_sentencepiece_tokenizer.so"))
