"""The export of a translator: its signatures, warm-up requests and self-test."""

from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.ensemble import models_of
from tf_transformer.decoding.text_codec import TextCodec
from tf_transformer.serving.comparisons import comparisons, source_ids
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.module import Signatures, TokenSignature
from tf_transformer.serving.publish import Exportable, publish
from tf_transformer.serving.warmup import TEXTS, Request


def export(
    engine: GraphEngine,
    decoding: DecodingConfig,
    base: Path,
    version: int | None = None,
    card: dict[str, Any] | None = None,
    *,
    text: bool = True,
    gate: Gate | None = None,
) -> Path:
    """Exports a translator to BASE/VERSION/; returns that folder.

    If `text` is false, the model takes only ids and needs only TensorFlow's operations, and its
    tokenizer is copied beside it. For the other arguments and the errors, see `publish`.
    """
    return publish(exportable(engine, decoding, text), base, version, card, gate=gate)


def exportable(engine: GraphEngine, decoding: DecodingConfig, text: bool = True) -> Exportable:
    """Returns a translator as an `Exportable`; see `export`."""
    functions = (Signatures if text else TokenSignature)(engine, decoding).functions()
    return Exportable(
        models=models_of(engine.model),
        tokenizer=engine.tokenizer,
        functions=functions,
        requests=[one for one in requests(engine, decoding) if one.signature in functions],
        compare=lambda session: comparisons(session, engine, decoding, text),
        sizes=sizes(engine.codec(decoding)),
        text=text,
    )


def sizes(codec: TextCodec) -> dict[str, int]:
    """Returns the maximum numbers of tokens in a source and a target, EOS included."""
    return {"max_source_tokens": codec.source_limit, "max_target_tokens": codec.target_limit}


def requests(engine: GraphEngine, decoding: DecodingConfig) -> list[Request]:
    """Returns requests for each signature: all outputs, and sets that clients often want."""
    text = np.array(TEXTS[:2], object)
    ids = source_ids(engine.codec(decoding), TEXTS[:2])
    pairs = {"source": text, "target": text}
    options = {
        "text": text,
        "alpha": np.array([-1.0, 1.0], "float32"),
        "max_length": np.array([-1, 5], "int32"),
        "prefix": np.array(["", "A"], object),
    }
    return [
        Request("serving_default", {"text": text}),
        Request("serving_default", {"text": text}, ("translation",)),
        Request("nbest", {"text": text}),
        Request("nbest", {"text": text}, ("translations",)),
        Request("nbest", {"text": text}, ("translations", "scores")),
        Request("with_options", options),
        Request("with_options", options, ("translations",)),
        Request("tokens", {"tokens": ids}),
        Request("tokens", {"tokens": ids}, ("tokens",)),
        Request("attention", {"text": text}),
        Request("score", pairs),
        Request("score", pairs, ("log_prob",)),
    ]
