"""LiteRT's interpreter: the signatures of a model's file as functions, and its cache.

B batch, S source length, W beam width, V vocabulary.
"""

import importlib
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tf_transformer.base.system import stderr_held_back
from tf_transformer.config import EOS_ID, PAD_ID

_COLUMNS = 16  # step by which cache and source grow: LiteRT has to prepare every new shape


def new_interpreter(content: bytes, threads: int) -> Any:
    """Returns LiteRT's interpreter of a file: its own package's, else TensorFlow's."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # as after `pip install` without the extra, or on another platform
        Interpreter = importlib.import_module("tensorflow").lite.Interpreter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow's says that it will go
        return Interpreter(model_content=content, num_threads=threads)


class InterpreterPool:
    """Interpreters of a LiteRT file written by `lite_file`, for several threads.

    `threads` are those of one operation, `precision` is that of the weights in the file.
    """

    def __init__(self, content: bytes, threads: int, precision: str = "float32") -> None:
        self.content, self.threads, self.precision = content, threads, precision
        self._free, self._lock = [ModelInterpreter(content, threads)], threading.Lock()

    @contextmanager
    def lend(self) -> Iterator["ModelInterpreter"]:
        """Lends an interpreter that no other search uses: an idle one, or a new one."""
        with self._lock:
            idle = self._free.pop() if self._free else None
            one = idle or ModelInterpreter(self.content, self.threads)
        try:
            yield one
        finally:
            self._free.append(one)


class ModelInterpreter:
    """Runs a LiteRT file for one search at a time.

    `step` is a signature of the file, from arrays by name to arrays by name. The cache grows by
    `columns`, the size of a cache that is fixed in the file.
    """

    def __init__(self, content: bytes, threads: int) -> None:
        with stderr_held_back():
            runner = new_interpreter(content, threads).get_signature_runner
            self._encode, self.step = runner("encode"), runner("step")
            self._source = max(_last_size(self._encode, "source"), 0) or _COLUMNS
            self.columns = max(_last_size(self.step, "ancestry") - 1, 0) or _COLUMNS
            self._prepare()  # writes to stderr

    def encode(self, source: np.ndarray, window: int = 0) -> "CachedStep":
        """Encodes sources, int32 [B, S], padded; returns the decoding step of their search.

        `window` is the model's attention window; 0 for none.
        """
        missing = -source.shape[1] % self._source
        source = np.pad(source, [(0, 0), (0, missing)], constant_values=PAD_ID)
        kind = self.step.get_input_details()["memory_mask"]["dtype"]  # bool up to 1.1.0
        mask = (source != PAD_ID)[:, np.newaxis, np.newaxis].astype(kind)
        memory = self._encode(source=source) | {"memory_mask": mask}
        return CachedStep(self, memory, window)

    def _prepare(self) -> None:
        """Computes a step, for one sentence and W of the file, or 4."""
        width = max(_last_size(self.step, "tokens"), 0) or 4
        step = self.encode(np.full([1, 1], EOS_ID, np.int32))
        step(np.full([1, width], EOS_ID, np.int32), 0, np.zeros([1, width, 1], np.int32))


def _last_size(runner: Any, name: str) -> int:
    """Returns the last dimension of an input; -1 if it is not fixed."""
    return int(runner.get_input_details()[name]["shape_signature"][-1])


class CachedStep:
    """The decoding step of the sentences being searched, and its cache.

    `memory` has the inputs that are the same in every step, with dimension 0 = B. From `window`
    columns on the cache does not grow but is a ring; 0 for no limit.
    """

    def __init__(
        self, interpreter: ModelInterpreter, memory: dict[str, np.ndarray], window: int = 0
    ) -> None:
        self._interpreter, self._memory = interpreter, memory
        self._past: dict[str, np.ndarray] = {}
        self._columns, self._window = 0, window or np.inf

    def __call__(self, tokens: np.ndarray, index: int, ancestry: np.ndarray) -> np.ndarray:
        """Returns float32 logits [B, W, V]; see `StepFunction` for the arguments."""
        batch, width, _ = ancestry.shape
        if index == self._columns < self._window:
            self._columns += self._interpreter.columns
            self._grow(width * self._interpreter.columns)
        slots = np.full([batch, width, self._columns + 1], -1, np.int32)
        kept = np.arange(max(index - self._columns, 0), index)
        slots[..., kept % self._columns] = ancestry[..., kept]
        slots[..., -1] = ancestry[..., -1]
        inputs = {"tokens": tokens, "position": np.array([index], np.int32)}
        inputs |= {"ancestry": slots} | self._memory | self._past
        outputs = self._interpreter.step(**inputs)
        first = width * (index % self._columns)
        for name, past in self._past.items():
            past[:, :, :, first : first + width] = outputs[name.removeprefix("past_")]
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
