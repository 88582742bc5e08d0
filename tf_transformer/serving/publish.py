"""Exports of a SavedModel: published atomically, after a test of the written files."""

import json
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.files import replacing_folder, write_text
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.module import ServedModel, Signatures
from tf_transformer.serving.selftest import self_test
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.token_signature import Function, TokenSignature
from tf_transformer.serving.versions import CARD, check_readable, reserved
from tf_transformer.serving.warmup import replay, requests, write_requests

TOKENIZER = Path("assets.extra", "tokenizer.model")  # beside a model that has none inside


def export(
    translator: BatchTranslator,
    base: Path,
    version: int | None = None,
    card: dict[str, Any] | None = None,
    *,
    text: bool = True,
    gate: Gate | None = None,
) -> Path:
    """Writes BASE/VERSION/ after a self-test of the loaded model; returns that folder.

    Args:
        translator: the translator to export.
        base: the model's folder, as TF Serving watches it; its name is the model's.
        version: its number; the next free one by default.
        card: content of assets.extra/model_card.json.
        text: whether the model takes text. Otherwise it takes ids alone, needs no operations
            but TensorFlow's, and has its tokenizer beside it.
        gate: the published model that it must not be worse than.

    Raises:
        NotPublishedError: if it does not pass the gate.
        UserError: if TensorFlow could not read the folder, the version exists or cannot be
            written, a warm-up request fails, or the loaded model translates differently from
            the Python translator. Nothing is published then.
    """
    check_readable(base)
    with reserved(base, version) as final, replacing_folder(final, replace=False) as folder:
        # The temporary name is no number, so TF Serving ignores the folder.
        signatures = Signatures if text else TokenSignature
        functions = signatures(translator).functions()
        _save(ServedModel(translator, text), folder, functions)
        warm_up = [r for r in requests(translator) if r.signature in functions]
        write_requests(folder, base.name, warm_up)
        write_text(folder / "batching_params.pbtxt", batching_parameters())
        card = (card or {}) | ({} if text else tokens_beside(translator, folder / TOKENIZER))
        with SavedModelSession(folder) as session:
            replay(session, warm_up)
            self_test(session, translator, text)
            if gate:
                card["compared"] = gate.compare(session, card)
        write_text(folder / CARD, json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    return final


def tokens_beside(translator: BatchTranslator, file: Path) -> dict[str, Any]:
    """Copies the tokenizer beside a model without one; returns the card's entry on its ids."""
    translator.tokenizer.copy(file)
    tokens = {
        "vocab_size": translator.model.vocab_size,
        "max_source_tokens": translator.codec.source_limit,  # EOS counted
        "ids": {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID},
    }
    return {"tokens": tokens}


def batching_parameters() -> str:
    """Returns the content of TF Serving's --batching_parameters_file.

    There is one thread because a batch uses all cores; requests for `tokens` differ in width.
    """
    return (
        "max_batch_size { value: 32 }\n"
        "batch_timeout_micros { value: 5000 }\n"
        "max_enqueued_batches { value: 64 }\n"
        "num_batch_threads { value: 1 }\n"
        "pad_variable_length_inputs: true\n"
    )


def _save(module: ServedModel, path: Path, signatures: dict[str, Function]) -> None:
    # Saving would trace functions again; concrete ones it takes as they are.
    concrete = {name: f.get_concrete_function() for name, f in signatures.items()}
    try:
        tf.saved_model.save(module, os.fspath(path), signatures=concrete)
    except tf.errors.OpError as error:
        # TensorFlow's file system raises this in place of an OSError.
        raise OSError(error.message.splitlines()[0]) from error
