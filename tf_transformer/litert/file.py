"""The LiteRT file of a model, signatures for encoding and for a decoding step; its export.

B batch, N layers of the decoder, H heads, S source length, W beam width, C columns of the
cache, R = C x W its rows, K key dimension, V vocabulary. LiteRT is fast when shapes are fixed
before it computes. So the caller runs the search, with a cache of any size, and marks the part
in use.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import cache_folder, replacing, sha256
from tf_transformer.base.output import counted
from tf_transformer.base.system import stderr_held_back
from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import Engine
from tf_transformer.export.card import CARD, write_card
from tf_transformer.export.publishing import facts
from tf_transformer.export.self_test import fitting_texts
from tf_transformer.export.signatures import sizes
from tf_transformer.export.versions import LITE_MODEL, new_version
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.models.cached_decoding import DecodingStep, PartedCache
from tf_transformer.models.ensemble import only_model
from tf_transformer.models.transformer import Transformer

logger = logging.getLogger(__name__)

ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction
KeysAndValues = Sequence[tuple[tf.Tensor, tf.Tensor]]

_FORMAT = 5  # increase it whenever `lite_file` changes, so that no cached file is reused


class Sizes(NamedTuple):
    """B, S, W and C fixed in a file, as `CompiledModel` needs; None if they may vary."""

    batch: int | None = None
    source: int | None = None
    width: int | None = None
    columns: int | None = None


_ANY = Sizes()


def lite_file(model: Transformer, precision: str, sizes: Sizes = _ANY) -> bytes:
    """Returns a LiteRT file with the signatures "encode" and "step".

    encode: `source` int32 [B, S], padded -> float32 [B, H, S, K], to which the decoder's layers
    attend: `memory_keys_0`, `memory_values_0` of the first, and so on.

    step, one position of every beam: `tokens` int32 [B, W], the last ones; `position` int32
    [1], from 0; `ancestry` int32 [B, W, C + 1], C at least 1, the slot in which each earlier
    step of a beam was computed, -1 in unused columns of the cache, and finally the beam's own
    slot; the outputs of "encode", and `memory_mask` int32 [B, 1, 1, S], 1 at real tokens (no
    bool, which LiteRT.js refuses); `past_keys_0`, `past_values_0` ... float32 [B, H, R, K] ->
    `logits` float32 [B, W, V]; `keys_0`, `values_0` ... [B, H, W, K], new rows: at position t,
    column t mod C of the cache. With an attention window, C may be as small as that; otherwise
    it exceeds t. For a search without other rules, `best_logits` and `best_tokens` int32
    [B, W, 2W + 3], the first of them in order, and `highest`, the first one's probability.

    With fixed sizes, all layers are in one: `memory_keys`, `past_values`, `keys` and so on are
    [B, N, ...]. `logits` and the new rows are then all outputs of the step.

    The model is in float32. With the precision "int8", matrix products have int8 weights, with
    a scale for each column, and inputs rounded to int8 row by row (LiteRT's dynamic-range
    quantisation).
    """
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    named = counted({"encode": _encode, "step": _step}.items(), "signatures traced")
    functions = {name: trace(model, sizes) for name, trace in named}
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, [*functions])
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        for each in counted((converter,), "files converted"):
            with stderr_held_back():
                content = each.convert()
    del converter, each
    return content


def cached_lite_file(model: Transformer, precision: str, weights: Path) -> bytes:
    """Returns the result of `lite_file`, from the user's cache because it takes a while.

    `weights` is the file that the model's weights were read from.
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


def _encode(model: Transformer, sizes: Sizes) -> ConcreteFunction:
    def encode(source):
        return _named(model.initial_cache(source)["memory"], "memory_", sizes)

    return _function(encode, source=([sizes.batch, sizes.source], tf.int32))


def _step(model: Transformer, sizes: Sizes) -> ConcreteFunction:
    parts = (model.target_embedding, model.decoder, model.projection)
    decode = DecodingStep(*parts, kind=PartedCache())  # so that its kernels are constants

    def step(tokens, position, ancestry, memory_mask, **heads):
        cache = {
            "memory": _pairs(heads, "memory_"),
            "memory_mask": tf.cast(memory_mask, tf.bool),
            "past": _pairs(heads, "past_"),
        }
        logits, cache = decode(tokens, tf.reshape(position, []), ancestry, cache)
        outputs = {"logits": logits} | _named(cache["past"], "", sizes)
        if not sizes.columns:
            outputs |= _best(logits, 2 * tf.shape(tokens)[1] + 3)
        return outputs

    layers, heads = model.config.num_decoder_layers, model.config.num_heads
    attention = model.decoder.layers[0].self_attention
    batch, source, width, columns = sizes
    specs = {}
    rows = {"memory_": source, "past_": columns * width if columns and width else None}
    for prefix, size in rows.items():
        for kind, part in (("keys", attention.key_dense), ("values", attention.value_dense)):
            shape = [heads, size, part.units // heads]
            if sizes.columns:
                specs[f"{prefix}{kind}"] = [batch, layers, *shape], tf.float32
            else:
                names = [f"{prefix}{kind}_{layer}" for layer in range(layers)]
                specs |= dict.fromkeys(names, ([batch, *shape], tf.float32))
    return _function(
        step,
        tokens=([batch, width], tf.int32),
        position=([1], tf.int32),
        ancestry=([batch, width, columns + 1 if columns else None], tf.int32),
        memory_mask=([batch, 1, 1, source], tf.int32),
        **specs,
    )


def _best(logits: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the k best logits of each beam, their tokens, and the first one's probability."""
    best, tokens = tf.math.top_k(logits, tf.minimum(k, logits.shape[-1]))
    highest = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
    return {"best_logits": best, "best_tokens": tokens, "highest": highest}


def _function(function: Callable, **specs: tuple) -> ConcreteFunction:
    """Traces a function whose inputs have the shapes and types in `specs`."""
    named = {name: tf.TensorSpec(*spec, name=name) for name, spec in specs.items()}
    return tf.function(function, autograph=False).get_concrete_function(**named)


def _pairs(heads: Mapping[str, tf.Tensor], prefix: str) -> KeysAndValues:
    """Returns the keys and values of each layer, [B, ...]."""
    both = []
    for name in (f"{prefix}keys", f"{prefix}values"):
        layers = range(sum(other.startswith(name) for other in heads))
        stacked = heads.get(name)
        parts = [heads[f"{name}_{i}"] for i in layers] if stacked is None else None
        both.append(parts or tf.unstack(stacked, axis=1))
    return list(zip(*both, strict=True))


def _named(pairs: KeysAndValues, prefix: str, sizes: Sizes) -> dict[str, tf.Tensor]:
    """Returns them by name."""
    named = {}
    for kind, parts in zip(("keys", "values"), zip(*pairs, strict=True), strict=True):
        if sizes.columns:
            named[f"{prefix}{kind}"] = tf.stack(parts, axis=1)
        else:
            named |= {f"{prefix}{kind}_{layer}": part for layer, part in enumerate(parts)}
    return named


# --- Exports for phones and other programs -----------------------------------------------


def export_lite(
    engine: Engine,
    decoding: DecodingConfig,
    base: Path,
    version: int | None,
    card: dict[str, Any],
    fixed: bool = False,
) -> Path:
    """Writes BASE/VERSION/ with the file, the tokenizer and a card; returns that folder.

    The engine's LiteRT file is written if it has one, else its model in float32; the version is
    the next free one if None. `fixed` shapes are for a single source up to the limit of
    `decoding`. Raises UserError if the version exists or cannot be written, the model is in
    bfloat16, or LiteRT in float32 translates differently; ValueError for an ensemble.
    """
    graph: GraphEngine = engine.graph
    model = only_model(graph.model)
    if model.compute_dtype != "float32":
        raise UserError(
            f"LiteRT needs a model in float32 or int8. Received: {model.compute_dtype}."
        )
    with new_version(base, version) as (final, folder):
        codec = graph.codec(decoding)
        lite = engine.interpreters if isinstance(engine, LiteEngine) else None
        if fixed or not lite:
            width, longest = decoding.beam_size, codec.target_limit
            columns = min(longest, model.config.attention_window or longest)
            fixed_sizes = Sizes(1, codec.source_limit, width, columns)
            precision = lite.precision if lite else "float32"
            content = lite_file(model, precision, fixed_sizes if fixed else Sizes())
            lite = InterpreterPool(content, 1, precision)
        (folder / LITE_MODEL).write_bytes(lite.content)
        card = card | {"translated_as_in_float32": _compare(graph, decoding, lite)}
        graph.tokenizer.copy(folder / "tokenizer.model")
        card["symbols"] = sorted(graph.symbols)  # words that the tokenizer never splits
        card |= facts([model], graph.tokenizer, sizes(codec))
        write_card(folder / CARD.name, card)
    return final


def _compare(engine: GraphEngine, decoding: DecodingConfig, lite: InterpreterPool) -> str:
    """Returns how many of a few texts LiteRT translates like the model: "9 of 9 texts"."""
    texts = fitting_texts(engine.tokenizer, engine.codec(decoding).source_limit)
    plain = GraphEngine(engine.model, engine.tokenizer)  # says nothing of long texts
    expected, in_lite = plain.translate(texts, decoding), LiteEngine.beside(plain, lite)
    # Fixed shapes allow only one at a time.
    singly = counted(texts, "answers compared")
    received = [in_lite.translate([text], decoding)[0] for text in singly]
    pairs = zip(texts, expected, received, strict=True)
    wrong = [text for text, (one,), (other,) in pairs if one != other]
    if wrong and lite.precision == "float32":
        raise UserError(
            f"LiteRT translates {quoted(wrong[0])} differently from TensorFlow. Nothing was "
            "written."
        )
    return f"{len(texts) - len(wrong)} of {len(texts)} texts"
