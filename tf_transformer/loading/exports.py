"""Translators from exports; that of an export for LiteRT needs no TensorFlow."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tf_transformer.config import Config, DecodingConfig
from tf_transformer.data import builtin
from tf_transformer.export.versions import is_lite
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.terms.protection import Protection
from tf_transformer.translation.translator import Translator


def load_exported_translator(
    path: Path,
    *,
    decoding: Mapping[str, Any] | None = None,
    protection: Protection | None = None,
    threads: int | None = None,
) -> Translator:
    """Loads a translator from the folder of an export; UserError if it holds none.

    `decoding` has settings of the search that replace the export's; `threads` is for LiteRT.
    """
    engine = open_engine(path, "serving_default", "with_options", "score", threads=threads)
    return translator_of(engine, replace(engine.decoding, **(decoding or {})), protection)


def open_engine(path: Path, *signatures: str, threads: int | None = None) -> Any:
    """Loads the engine of an export; `signatures` are those that a SavedModel must have."""
    if is_lite(path):
        return LiteEngine.open(path, threads)

    from tf_transformer.export.saved_model import open_export

    return open_export(path, *signatures)


def translator_of(
    engine: Any, decoding: DecodingConfig, protection: Protection | None = None
) -> Translator:
    """Returns the translator of an export, with the languages in its card."""
    facts = facts_of(engine.config) if engine.config else {}
    return Translator(decoding=decoding, engine=engine, protection=protection, **facts)


def facts_of(config: Config) -> dict[str, Any]:
    """Returns the arguments of a `Translator` that say what it was trained on."""
    language, target_language = builtin.languages(config)
    return {
        "bleu_tokenizer": config.data.bleu_tokenizer,
        "language": language,
        "joins": config.data.join > 0,
        "target_language": target_language,
    }
