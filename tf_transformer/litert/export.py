"""Exports for LiteRT: for phones and other programs."""

from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.output import counted
from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.export.card import CARD, write_card
from tf_transformer.export.publishing import facts
from tf_transformer.export.self_test import fitting_texts
from tf_transformer.export.signatures import sizes
from tf_transformer.export.versions import LITE_MODEL, new_version
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import Sizes, lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.models.ensemble import only_model


def export_lite(
    engine: GraphEngine,
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
    model = only_model(engine.model)
    if model.compute_dtype != "float32":
        raise UserError(
            f"LiteRT needs a model in float32 or int8. Received: {model.compute_dtype}."
        )
    with new_version(base, version) as (final, folder):
        codec = engine.codec(decoding)
        lite = engine.interpreters if isinstance(engine, LiteEngine) else None
        if fixed or not lite:
            width, longest = decoding.beam_size, codec.target_limit
            columns = min(longest, model.config.attention_window or longest)
            fixed_sizes = Sizes(1, codec.source_limit, width, columns)
            precision = lite.precision if lite else "float32"
            content = lite_file(model, precision, fixed_sizes if fixed else Sizes())
            lite = InterpreterPool(content, 1, precision)
        (folder / LITE_MODEL).write_bytes(lite.content)
        card = card | {"translated_as_in_float32": _compare(engine, decoding, lite)}
        engine.tokenizer.copy(folder / "tokenizer.model")
        card |= facts([model], engine.tokenizer, sizes(codec))
        write_card(folder / CARD.name, card)
    return final


def _compare(engine: GraphEngine, decoding: DecodingConfig, lite: InterpreterPool) -> str:
    """Returns how many of a few texts LiteRT translates like the model: "9 of 9 texts"."""
    model, tokenizer = only_model(engine.model), engine.tokenizer
    texts = fitting_texts(tokenizer, engine.codec(decoding).source_limit)
    expected = GraphEngine(model, tokenizer).translate(texts, decoding)
    in_lite = LiteEngine(model, tokenizer, lite)
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
