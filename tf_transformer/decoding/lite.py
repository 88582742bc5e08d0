"""Translation with LiteRT: a model's file, the search in NumPy around its step, the engine.

B batch, N layers of the decoder, H heads, S source length, W beam width, C columns of the
cache, R = C x W its rows, K key dimension, V vocabulary; the others as in `beam_search` and
`candidates`. LiteRT is fast when shapes are fixed before it computes. So the caller runs the
search, with a cache of any size, and marks the part in use.
"""

import logging
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import cache_folder, replacing, sha256
from tf_transformer.base.system import stderr_held_back
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig, SamplingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.batches import most_streams
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.candidates import BANNED_IDS, Grammar
from tf_transformer.decoding.engine import Find, GraphEngine, only_model
from tf_transformer.models.transformer import Transformer

logger = logging.getLogger(__name__)

Function: TypeAlias = tf.types.experimental.ConcreteFunction
Pairs = Sequence[tuple[tf.Tensor, tf.Tensor]]

_COLUMNS = 16  # step by which cache and source grow: LiteRT has to prepare every new shape
_BANNED = np.isin(np.arange(max(BANNED_IDS) + 2), BANNED_IDS)  # the last: any higher id
_BLOCK = 32  # tokens in a block of `_best_of_many`
_FORMAT = 3  # increase it whenever `lite_file` changes, so that no cached file is reused

# --- The file ----------------------------------------------------------------------------


class Sizes(NamedTuple):
    """B, S, W and C fixed in a file, as `CompiledModel` needs; None if they may vary."""

    batch: int | None = None
    source: int | None = None
    width: int | None = None
    columns: int | None = None


_ANY = Sizes()


def lite_file(model: Transformer, precision: str, sizes: Sizes = _ANY) -> bytes:
    """Returns a LiteRT file with the signatures "encode" and "step".

    encode: `source` int32 [B, S], padded -> `memory_keys` and `memory_values`, float32
    [B, N, H, S, K], which the decoder's layers attend to.

    step, one position of every beam: `tokens` int32 [B, W], the last ones; `position` int32
    [1], from 0; `ancestry` int32 [B, W, C + 1], C at least 1, the slot in which each earlier
    step of a beam was computed, -1 in unused columns of the cache, and finally the beam's own
    slot; the outputs of "encode", and `memory_mask` bool [B, 1, 1, S], True at real tokens;
    `past_keys` and `past_values` float32 [B, N, H, R, K] -> `logits` float32 [B, W, V]; `keys`
    and `values` [B, N, H, W, K], new rows: at position t, column t mod C of the cache. With an
    attention window, C may be as small as that; otherwise it exceeds t.

    Args:
        model: a model in float32.
        precision: "float32"; or "int8", where matrix products have int8 weights, with a scale
            for each column, and inputs rounded to int8 row by row (LiteRT's dynamic-range
            quantisation).
        sizes: sizes to fix in the file; none by default.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    functions = {"encode": _encode(model, sizes), "step": _step(model, sizes)}
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, [*functions])
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with stderr_held_back():
            return converter.convert()


def kept_lite_file(model: Transformer, precision: str, weights: Path) -> bytes:
    """Returns the result of `lite_file`, kept in the user's cache because it takes a while.

    Args:
        model: a model in float32.
        precision: "float32" or "int8".
        weights: the file that the model's weights were read from.
    """
    version = f"{_FORMAT}-tf{tf.__version__}"
    file = cache_folder() / f"{sha256(weights)[:16]}-{precision}-{version}.tflite"
    with suppress(OSError):
        return file.read_bytes()
    logger.info("converting %s for LiteRT (%s): up to a minute", weights.name, precision)
    content = lite_file(model, precision)
    try:
        with replacing(file) as temporary:
            temporary.write_bytes(content)
        logger.info("kept in %s (%.1f MB)", file, len(content) / 1e6)
    except UserError:
        logger.info("not kept, because %s cannot be written", file)
    return content


def _encode(model: Transformer, sizes: Sizes) -> Function:
    def encode(source):
        keys, values = _stacked(model.initial_cache(source)["memory"])
        return {"memory_keys": keys, "memory_values": values}

    return _function(encode, source=([sizes.batch, sizes.source], tf.int32))


def _step(model: Transformer, sizes: Sizes) -> Function:
    decode = model.step_function()  # outside `step`, so that its kernels are constants

    def step(
        tokens, position, ancestry, memory_keys, memory_values, memory_mask, past_keys,
        past_values,
    ):  # fmt: skip
        cache = {
            "memory": _pairs(memory_keys, memory_values),
            "memory_mask": memory_mask,
            "past": _pairs(past_keys, past_values),
        }
        logits, cache = decode(tokens, tf.reshape(position, []), ancestry, cache)
        fresh = -tf.shape(tokens)[1]  # the last W rows; a window drops the first ones
        keys, values = (heads[..., fresh:, :] for heads in _stacked(cache["past"]))
        return {"logits": logits, "keys": keys, "values": values}

    layers, heads = model.config.num_decoder_layers, model.config.num_heads
    attention = model.decoder.layers[0].self_attention
    batch, source, width, columns = sizes

    def keys_and_values(rows: int | None) -> list[tuple]:
        parts = attention.key_dense, attention.value_dense
        sizes = [part.units // heads for part in parts]  # K of each
        return [([batch, layers, heads, rows, size], tf.float32) for size in sizes]

    memory = keys_and_values(source)
    past = keys_and_values(columns * width if columns and width else None)
    return _function(
        step,
        tokens=([batch, width], tf.int32),
        position=([1], tf.int32),
        ancestry=([batch, width, columns + 1 if columns else None], tf.int32),
        memory_keys=memory[0],
        memory_values=memory[1],
        memory_mask=([batch, 1, 1, source], tf.bool),
        past_keys=past[0],
        past_values=past[1],
    )


def _function(function: Callable, **specs: tuple) -> Function:
    """Traces a function whose inputs have the shapes and types in `specs`."""
    named = {name: tf.TensorSpec(*spec, name=name) for name, spec in specs.items()}
    return tf.function(function, autograph=False).get_concrete_function(**named)


def _pairs(keys: tf.Tensor, values: tf.Tensor) -> Pairs:
    """[B, N, ...] twice -> N pairs of [B, ...]."""
    return list(zip(tf.unstack(keys, axis=1), tf.unstack(values, axis=1), strict=True))


def _stacked(pairs: Pairs) -> list[tf.Tensor]:
    """N pairs of [B, ...] -> [B, N, ...] twice."""
    return [tf.stack(parts, axis=1) for parts in zip(*pairs, strict=True)]


# --- The search --------------------------------------------------------------------------


def host_search(
    step: "LiteStep",
    decoding: DecodingConfig,
    number: int,
    max_lengths: np.ndarray,
    min_lengths: np.ndarray,
    prefix: np.ndarray | None = None,
) -> Hypotheses:
    """Returns the hypotheses that `beam_search` finds, as arrays, in the same order.

    In a TensorFlow graph, the search alone takes a millisecond per step: several times as long
    as the step of a small model in LiteRT.

    Args:
        step: the decoding step of these sentences, at its first position.
        decoding: settings of the search, whose lengths are not used.
        number: N, at most the beam size W.
        max_lengths: int32 [B], length limits.
        min_lengths: int32 [B], minimum numbers of tokens.
        prefix: int32 [B, P], see `beam_search`.
    """
    search = _HostSearch(step, decoding, number, max_lengths, min_lengths, prefix)
    results = [column.copy() for column in search.finished]
    rows = np.arange(len(max_lengths))
    while rows.size:
        search.advance()
        active = search.active()
        if decoding.lookahead:
            search.stop(~active)
        if 4 * np.count_nonzero(active) <= 3 * rows.size:
            for result, column in zip(results, search.finished, strict=True):
                result[rows] = column
            rows = rows[active]
            search.keep(np.flatnonzero(active))
    tokens, lengths, *figures = results
    lowest = np.finfo(np.float32).min
    return Hypotheses(tokens, lengths, *(np.maximum(figure, lowest) for figure in figures))


class _HostSearch:
    """`beam_search.Search` and its `State` in NumPy, for the sentences still being searched."""

    def __init__(
        self,
        step: "LiteStep",
        decoding: DecodingConfig,
        number: int,
        max_lengths: np.ndarray,
        min_lengths: np.ndarray,
        prefix: np.ndarray | None,
    ) -> None:
        self._step, self._decoding, self._prefix = step, decoding, prefix
        self._max_lengths, self._min_lengths = max_lengths, min_lengths
        batch, width = len(max_lengths), decoding.beam_size
        longest = max(max_lengths, default=0)
        self._rows = np.arange(batch)[:, np.newaxis]
        self._length = 0  # t, of the L columns of tokens and ancestry
        self._last_tokens = np.full([batch, width], BOS_ID, np.int32)
        self._tokens = np.full([batch, width, longest], PAD_ID, np.int32)
        self._ancestry = np.zeros([batch, width, longest], np.int32)
        self._log_probs = np.full([batch, width], -np.inf, np.float32)
        self._log_probs[:, :1] = 0  # all beams start out equal, so only the first is extended
        impossible = np.full([batch, number], -np.inf, np.float32)
        self.finished: tuple[np.ndarray, ...] = (  # columns of Hypotheses
            np.full([batch, number, longest], PAD_ID, np.int32),
            np.zeros([batch, number], np.int32),
            impossible,
            impossible,
        )

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows."""
        self._max_lengths, self._min_lengths = self._max_lengths[rows], self._min_lengths[rows]
        self._rows = self._rows[: len(rows)]
        self._prefix = None if self._prefix is None else self._prefix[rows]
        self._last_tokens, self._tokens = self._last_tokens[rows], self._tokens[rows]
        self._ancestry, self._log_probs = self._ancestry[rows], self._log_probs[rows]
        self.finished = tuple(column[rows] for column in self.finished)
        self._step.keep(rows)

    def stop(self, rows: np.ndarray) -> None:
        """Ends the search of these sentences, even while they stay in the batch."""
        self._log_probs[rows] = -np.inf

    def active(self) -> np.ndarray:
        """Returns bool [B]: whether an alive beam can still enter the N best."""
        lengths = self._max_lengths
        if self._decoding.lookahead:
            lengths = np.minimum(lengths, self._length + self._decoding.lookahead)
        return self.finished[-1][:, -1] < self._log_probs[:, 0] / self._penalty(lengths)

    def _penalty(self, length: np.ndarray | int) -> np.ndarray | np.floating:
        alpha = np.float32(self._decoding.alpha)
        return ((np.float32(5) + np.float32(length)) / np.float32(6)) ** alpha

    def advance(self) -> None:
        """Extends every alive beam by one token."""
        index, self._length = self._length, self._length + 1
        width = self._decoding.beam_size
        self._ancestry[..., index] = np.arange(width)
        logits = self._step(self._last_tokens, index, self._ancestry[..., : index + 1])

        parents, last, log_probs = self._candidates(logits, index)  # [B, C]
        tokens = self._tokens[self._rows, parents]
        tokens[..., index] = last
        ends = last == EOS_ID
        self._log_probs, alive = self._best(np.where(ends, -np.inf, log_probs), width)
        self._last_tokens, self._tokens = last[self._rows, alive], tokens[self._rows, alive]
        self._ancestry = self._ancestry[self._rows, parents[self._rows, alive]]
        ended = np.where(ends, log_probs, -np.inf)
        if np.any(ended > -np.inf):
            self._merge(tokens, ended)

    def _merge(self, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Keeps the N best of the finished hypotheses and the candidates [B, C, L] that end."""
        lengths = np.full(log_probs.shape, self._length, np.int32)
        ended = tokens, lengths, log_probs, log_probs / self._penalty(self._length)
        pool = [np.concatenate(pair, axis=1) for pair in zip(self.finished, ended, strict=True)]
        _, best = self._best(pool[-1], self.finished[0].shape[1])
        self.finished = tuple(column[self._rows, best] for column in pool)

    def _best(self, values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k largest of each row of [B, I], and their indices; ties keep order."""
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        return values[self._rows, order], order

    def _candidates(self, logits: np.ndarray, index: int) -> tuple[np.ndarray, ...]:
        """Returns parents, last tokens and log-probabilities of the C best, [B, C]."""
        decoding, width = self._decoding, self._decoding.beam_size
        count = 2 * width if width > 1 else 1
        k = min(count + len(BANNED_IDS) + 1, logits.shape[-1])
        possible = logits
        if decoding.no_repeat_ngram:
            possible = logits.copy()
            repeats = _repeats(self._tokens[..., :index], decoding.no_repeat_ngram)
            np.put_along_axis(possible, repeats, -np.inf, axis=-1)
        best, tokens = _best_of_many(possible.reshape(-1, possible.shape[-1]), k)
        best, tokens = best.reshape(-1, width, k), tokens.reshape(-1, width, k).astype(np.int32)
        highest = best[..., :1] if possible is logits else logits.max(-1, keepdims=True)
        relative = logits - highest
        sums = np.exp(relative, out=relative).sum(-1, keepdims=True)
        normaliser = highest + np.log(sums)
        banned = _BANNED[np.minimum(tokens, len(_BANNED) - 1)]
        must_continue = self._min_lengths > index + 1
        banned |= must_continue[:, np.newaxis, np.newaxis] & (tokens == EOS_ID)
        log_probs = np.where(banned, -np.inf, best - normaliser)

        forced = np.where(self._max_lengths <= index + 1, EOS_ID, PAD_ID)  # [B], PAD: free
        if self._prefix is not None and index < self._prefix.shape[1]:
            forced = np.where(forced, forced, self._prefix[:, index])
        for row in np.flatnonzero(forced):
            tokens[row], log_probs[row] = forced[row], -np.inf
            log_probs[row, :, 0] = logits[row, :, forced[row]] - normaliser[row, :, 0]

        totals = (self._log_probs[..., np.newaxis] + log_probs).reshape(-1, width * k)
        totals, position = self._best(totals, count)
        return position // k, tokens.reshape(-1, width * k)[self._rows, position], totals


def _best_of_many(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k largest of each row, and their indices; the first wins ties.

    It sorts only the values that reach the k-th largest of the blocks' maxima, which is a lower
    bound on the k-th largest value.
    """
    size = values.shape[1]
    blocks = size // _BLOCK
    maxima = values
    if blocks >= k:
        maxima = values[:, : blocks * _BLOCK].reshape(-1, _BLOCK, blocks).max(axis=1)
    bound = np.partition(maxima, -k, axis=1)[:, -k, np.newaxis]
    survivors = np.flatnonzero(values >= bound)
    row, position = np.divmod(survivors, size)
    order = np.lexsort((-values.ravel()[survivors], row))  # stable: by row, largest first
    rows = np.arange(len(values))[:, np.newaxis]
    best = position[order[np.searchsorted(row, rows) + np.arange(k)]]
    return values[rows, best], best


def _repeats(tokens: np.ndarray, size: int) -> np.ndarray:
    """Returns tokens that would repeat an n-gram of a beam, or PAD: [B, W, t] -> [B, W, R]."""
    count = max(tokens.shape[-1] - size + 1, 0)
    repeated = np.full(tokens[..., :count].shape, True)
    for offset in range(size - 1):
        last = tokens[..., count + offset : count + offset + 1]  # [B, W, 1]
        repeated &= tokens[..., offset : count + offset] == last
    return np.where(repeated, tokens[..., size - 1 :], PAD_ID)


# --- The engine --------------------------------------------------------------------------


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

    def encode(self, source: np.ndarray, window: int = 0) -> "LiteStep":
        """Encodes sources, int32 [B, S], padded; returns the decoding step of their search.

        `window` is the model's attention window; 0 for none.
        """
        missing = -source.shape[1] % self._source
        source = np.pad(source, [(0, 0), (0, missing)], constant_values=PAD_ID)
        mask = (source != PAD_ID)[:, np.newaxis, np.newaxis]
        memory = self.run("encode", source=source) | {"memory_mask": mask}
        return LiteStep(self, memory, window)

    def _prepare(self) -> None:
        """Computes a step, for one sentence and W of the file, or 4."""
        width = max(self._size("step", "tokens"), 0) or 4
        step = self.encode(np.full([1, 1], EOS_ID, np.int32))
        step(np.full([1, width], EOS_ID, np.int32), 0, np.zeros([1, width, 1], np.int32))


class LiteStep:
    """The decoding step of the sentences being searched, and its cache.

    Args:
        interpreter: computes the step.
        memory: inputs that are the same in every step, with dimension 0 = B.
        window: columns beyond which the cache does not grow but is a ring; 0 for no limit.
    """

    def __init__(
        self, interpreter: LiteInterpreter, memory: dict[str, np.ndarray], window: int = 0
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
        outputs = self._interpreter.run("step", **inputs)
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
