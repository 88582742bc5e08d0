"""LiteRT's interpreter: the signatures of a model's file as functions, and its cache.

B batch, S source length, W beam width, V vocabulary.
"""

import importlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tf_transformer.base.system import stderr_held_back
from tf_transformer.config import EOS_ID, PAD_ID

_COLUMNS = 8  # step by which cache and source grow: LiteRT has to prepare every new shape


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
            # bool up to 1.1.0
            self._mask_type = self.step.get_input_details()["memory_mask"]["dtype"]
            self._prepare()  # writes to stderr

    def encode(self, source: np.ndarray, window: int = 0) -> "CachedStep":
        """Encodes sources, int32 [B, S], padded; returns the decoding step of their search.

        `window` is the model's attention window; 0 for none.
        """
        missing = -source.shape[1] % self._source
        source = np.pad(source, [(0, 0), (0, missing)], constant_values=PAD_ID)
        mask = (source != PAD_ID)[:, np.newaxis, np.newaxis].astype(self._mask_type)
        memory = self._encode(source=source) | {"memory_mask": mask}
        return CachedStep(self.step, self.columns, memory, window)

    def _prepare(self) -> None:
        """Computes a step, for one sentence and W of the file, or 4."""
        width = max(_last_size(self.step, "tokens"), 0) or 4
        step = self.encode(np.full([1, 1], EOS_ID, np.int32))
        step(np.full([1, width], EOS_ID, np.int32), 0, np.zeros([1, width, 1], np.int32))


def _last_size(runner: Any, name: str) -> int:
    """Returns the last dimension of an input; -1 if it is not fixed."""
    return int(runner.get_input_details()[name]["shape_signature"][-1])


class _Signature:
    """A signature of a file, whose inputs stay as they are until they are set.

    Its runner, all that LiteRT documents, sizes and sets each of them at every call.
    """

    def __init__(self, runner: Any) -> None:
        self._wrapper, self._graph = runner._interpreter_wrapper, runner._subgraph_index
        self.inputs, self.outputs = dict(runner._inputs), dict(runner._outputs)

    def resize(self, shapes: dict[str, Sequence[int]]) -> None:
        """Gives inputs these shapes, which takes all inputs' values away."""
        for name, shape in shapes.items():
            size = np.array(shape, np.int32)
            self._wrapper.ResizeInputTensor(self.inputs[name], size, False, self._graph)
        self._wrapper.AllocateTensors(self._graph)

    def input(self, name: str) -> np.ndarray:
        """Returns an input's own memory, to read and write until the next `run` or `resize`."""
        return self._wrapper.tensor(self._wrapper, self.inputs[name], self._graph)

    def run(self) -> None:
        """Computes the outputs."""
        self._wrapper.Invoke(self._graph)

    def output(self, name: str) -> np.ndarray:
        """Returns a copy of an output."""
        return self._wrapper.GetTensor(self.outputs[name], self._graph)


class CachedStep:
    """The decoding step of the sentences being searched, and its cache.

    `memory` has the inputs that are the same in every step, with dimension 0 = B. The cache
    grows by `columns`, but from `window` columns on it is a ring; 0 for no limit.

    Attributes:
        gives_best: whether the file has what `best` returns; not up to 1.1.0.
    """

    def __init__(
        self, runner: Any, columns: int, memory: dict[str, np.ndarray], window: int = 0
    ) -> None:
        self._signature = _Signature(runner)
        self.gives_best = "best_logits" in self._signature.outputs
        self._kept: dict[str, np.ndarray] | None = memory  # what the inputs must be set to
        self._past = [name for name in self._signature.inputs if name.startswith("past_")]
        self._constant = list(memory)
        self._more, self._columns, self._window = columns, 0, window or np.inf

    def __call__(self, tokens: np.ndarray, index: int, ancestry: np.ndarray) -> np.ndarray:
        """Returns float32 logits [B, W, V]; see `StepFunction` for the arguments."""
        self._run(tokens, index, ancestry)
        return self._signature.output("logits")

    def best(
        self, tokens: np.ndarray, index: int, ancestry: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the k best logits and their tokens, [B, W, k], k = min(2W + 3, V).

        Also log(sum(exp(logits))) over all tokens, [B, W, 1]. Takes what a call takes.
        """
        self._run(tokens, index, ancestry)
        output = self._signature.output
        best, probability = output("best_logits"), output("highest")[..., np.newaxis]
        return best, output("best_tokens"), best[..., :1] - np.log(probability)

    def _run(self, tokens: np.ndarray, index: int, ancestry: np.ndarray) -> None:
        """Computes a step, and adds its column to the cache."""
        signature, width = self._signature, tokens.shape[1]
        if index == self._columns < self._window:
            self._kept = {name: array.copy() for name, array in self._current().items()}
            self._columns += self._more
        if self._kept is not None:
            self._set(self._kept, *tokens.shape)
            self._kept = None
        columns = self._columns
        kept = np.arange(max(index - columns, 0), index)
        slots = signature.input("ancestry")
        slots[..., kept % columns] = ancestry[..., kept]
        signature.input("tokens")[...] = tokens
        signature.input("position")[0] = index
        signature.run()
        first = width * (index % columns)
        for name in self._past:
            new = signature.output(name.removeprefix("past_"))
            signature.input(name)[..., first : first + width, :] = new

    def _set(self, arrays: dict[str, np.ndarray], batch: int, width: int) -> None:
        """Gives the inputs their sizes, and sets all but those that differ in every step."""
        signature = self._signature
        slots, rows = [batch, width, self._columns + 1], self._columns * width
        shapes: dict[str, Sequence[int]] = {"tokens": [batch, width], "ancestry": slots}
        for name in self._past:
            like = arrays[f"memory_{name.removeprefix('past_')}"].shape
            shapes[name] = [*like[:-2], rows, like[-1]]
        signature.resize(shapes | {name: arrays[name].shape for name in self._constant})
        for name in self._constant:
            signature.input(name)[...] = arrays[name]
        for name in self._past:
            past = signature.input(name)
            past[...] = 0  # anything else may be no number
            if (before := arrays.get(name)) is not None:
                past[..., : before.shape[-2], :] = before
        ancestry = signature.input("ancestry")
        ancestry[...], ancestry[..., -1] = -1, np.arange(width)

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows."""
        self._kept = {name: array[rows] for name, array in self._current().items()}

    def _current(self) -> dict[str, np.ndarray]:
        """Returns what the inputs are set to, in memory of the interpreter if they are."""
        if self._kept is not None:
            return self._kept
        return {name: self._signature.input(name) for name in self._constant + self._past}
