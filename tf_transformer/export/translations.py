"""The export of a translator: its signatures, warm-up requests and self-test."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID, DecodingConfig
from tf_transformer.decoding.engine import GraphEngine, models_of
from tf_transformer.decoding.text_codec import TextCodec
from tf_transformer.export.publish import Exportable
from tf_transformer.export.self_test import check_translator
from tf_transformer.export.signatures import Signatures, TokenSignature
from tf_transformer.export.warmup import TEXTS, Request


def exportable(
    engine: GraphEngine,
    decoding: DecodingConfig,
    translator: Any,
    options: Mapping[str, Any] = MappingProxyType({}),
    text: bool = True,
) -> Exportable:
    """Returns a translator as an `Exportable`.

    Args:
        engine: the model to export.
        decoding: settings of the search.
        translator: a `Translator` of the same model, whose answers the export must give.
        options: search settings that replace those of `translator`.
        text: whether the model takes text. Otherwise it takes only ids and needs only
            TensorFlow's operations, and its tokenizer is copied beside it.
    """
    functions = (Signatures if text else TokenSignature)(engine, decoding).functions()
    codec = engine.codec(decoding)
    return Exportable(
        models=models_of(engine.model),
        tokenizer=engine.tokenizer,
        functions=functions,
        requests=[one for one in requests(engine, decoding) if one.signature in functions],
        checks=lambda session: check_translator(
            session, translator, options, codec.source_limit
        ),
        sizes=sizes(codec),
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


def source_ids(codec: TextCodec, texts: Sequence[str]) -> np.ndarray:
    """Returns the texts as int32 [B, S], with EOS and padding."""
    return codec.encode(tf.constant(texts))[0].to_tensor(PAD_ID).numpy()
