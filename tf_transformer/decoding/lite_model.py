"""Search with a model whose encoder and decoding step run in LiteRT.

B batch, S source length, W beam width, V vocabulary.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID, DecodingConfig, SamplingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.candidates import Grammar
from tf_transformer.decoding.engine import Find, GraphEngine
from tf_transformer.decoding.host_search import HostRules, host_search
from tf_transformer.decoding.threads import most_streams
from tf_transformer.models.transformer import Transformer
from tf_transformer.quiet import stderr_held_back

_COLUMNS = 16  # step by which cache and source grow: LiteRT has to prepare every new shape


class LiteModel:
    """A LiteRT file written by `lite_file`; may be used from several threads.

    Args:
        content: content of the file.
        threads: number of threads per operation.
        precision: precision of the weights in the file.

    Attributes:
        content, threads, precision: the arguments.
    """

    def __init__(self, content: bytes, threads: int, precision: str = "float32") -> None:
        self.content, self.threads, self.precision = content, threads, precision
        self._free, self._lock = [LiteInterpreter(content, threads)], threading.Lock()

    @contextmanager
    def interpreter(self) -> Iterator["LiteInterpreter"]:
        """Lends an interpreter that no other search uses: an idle one, or a new one."""
        with self._lock:
            idle = self._free.pop() if self._free else None
            one = idle or LiteInterpreter(self.content, self.threads)
        try:
            yield one
        finally:
            self._free.append(one)


class LiteInterpreter:
    """Runs a LiteRT file for one search at a time.

    Args:
        content: content of the file.
        threads: number of threads per operation.

    Attributes:
        columns: number of columns by which the cache grows; the size of a cache that is fixed
            in the file.
    """

    def __init__(self, content: bytes, threads: int) -> None:
        with warnings.catch_warnings(), stderr_held_back():
            warnings.simplefilter("ignore")  # the move of LiteRT to the package ai_edge_litert
            interpreter = tf.lite.Interpreter(model_content=content, num_threads=threads)
            self._runners = {
                name: interpreter.get_signature_runner(name) for name in ("encode", "step")
            }
            self._source = max(self._size("encode", "source"), 0) or _COLUMNS
            self.columns = max(self._size("step", "ancestry") - 1, 0) or _COLUMNS
            self._prepare()  # writes to stderr

    def _size(self, name: str, key: str) -> int:
        """Returns the last dimension of an input; -1 if it is not fixed."""
        return int(self._runners[name].get_input_details()[key]["shape_signature"][-1])

    def run(self, name: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature."""
        return self._runners[name](**inputs)

    def encode(self, source: np.ndarray) -> "LiteStep":
        """Encodes sources, int32 [B, S], padded; returns the decoding step of their search."""
        missing = -source.shape[1] % self._source
        source = np.pad(source, [(0, 0), (0, missing)], constant_values=PAD_ID)
        mask = (source != PAD_ID)[:, np.newaxis, np.newaxis]
        return LiteStep(self, self.run("encode", source=source) | {"memory_mask": mask})

    def _prepare(self) -> None:
        """Computes a step, for one sentence and W of the file, or 4."""
        width = max(self._size("step", "tokens"), 0) or 4
        step = self.encode(np.full([1, 1], EOS_ID, np.int32))
        step(np.full([1, width], EOS_ID, np.int32), 0, np.zeros([1, width, 1], np.int32))


class LiteStep:
    """A `HostStep`: the decoding step of a batch, and its cache.

    Args:
        interpreter: computes the step.
        memory: inputs that are the same in every step, with dimension 0 = B.
    """

    def __init__(self, interpreter: LiteInterpreter, memory: dict[str, np.ndarray]) -> None:
        self._interpreter, self._memory = interpreter, memory
        self._past: dict[str, np.ndarray] = {}

    def __call__(self, tokens: np.ndarray, index: int, ancestry: np.ndarray) -> np.ndarray:
        """Returns float32 logits [B, W, V]; see `HostStep`."""
        batch, width, _ = ancestry.shape
        if index % self._interpreter.columns == 0:
            self._grow(width * self._interpreter.columns)
        columns = self._past["past_keys"].shape[3] // width
        slots = np.full([batch, width, columns + 1], -1, np.int32)
        slots[..., :index], slots[..., -1] = ancestry[..., :-1], ancestry[..., -1]
        inputs = {"tokens": tokens, "position": np.array([index], np.int32)}
        inputs |= {"ancestry": slots} | self._memory | self._past
        outputs = self._interpreter.run("step", **inputs)
        for name, past in self._past.items():
            fresh = outputs[name.removeprefix("past_")]
            past[:, :, :, width * index : width * (index + 1)] = fresh
        return outputs["logits"]

    def _grow(self, rows: int) -> None:
        """Appends empty rows to the cache."""
        for kind in ("keys", "values"):
            empty = self._memory[f"memory_{kind}"][:, :, :, :0]
            before = self._past.get(f"past_{kind}", empty)
            self._past[f"past_{kind}"] = np.pad(before, [*[(0, 0)] * 3, (0, rows), (0, 0)])

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows."""
        self._memory = {name: array[rows] for name, array in self._memory.items()}
        self._past = {name: array[rows] for name, array in self._past.items()}


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
        wrong = {"sample": sampling, "use a grammar": grammar, "use several alphas": alphas}
        for what, value in wrong.items():
            if value:
                self.refuse(what)
        codec = self.codec(decoding)

        def find(source: np.ndarray, options: dict[str, np.ndarray]) -> Hypotheses:
            lengths = np.count_nonzero(source != PAD_ID, axis=1).astype(np.int32)
            rules = HostRules(
                np.asarray(codec.limits(lengths)),
                options.get("prefix"),
                decoding.min_length,
                decoding.no_repeat_ngram,
            )
            with self.lite.interpreter() as interpreter:
                return host_search(
                    interpreter.encode(source),
                    rules,
                    beam_size=decoding.beam_size,
                    num_hypotheses=number,
                    alpha=decoding.alpha,
                    lookahead=decoding.lookahead,
                )

        return find
