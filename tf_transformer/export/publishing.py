"""Publishing a model as a SavedModel: atomically, and only if the written files are right."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import write_text
from tf_transformer.base.output import counted
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.config.combinations import check
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import column
from tf_transformer.evaluation import SIGNIFICANT, DevText, paired_bootstrap
from tf_transformer.export.card import CARD, changed_settings, read_card, write_card
from tf_transformer.export.saved_model import ExportEngine, open_export
from tf_transformer.export.self_test import Check, self_test
from tf_transformer.export.versions import check_readable, new_version
from tf_transformer.fast.int8 import KnownProduct, is_int8, parameters
from tf_transformer.models.ensemble import models_of, only_model

Function: TypeAlias = tf.types.experimental.PolymorphicFunction

TOKENIZER = Path("assets.extra", "tokenizer.model")  # of a model that takes only ids
# TF Serving's --batching_parameters_file. One thread is enough, since a batch uses all cores.
# Requests for `tokens` differ in width, and need padding.
BATCHING_PARAMETERS = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 5000 }
max_enqueued_batches { value: 64 }
num_batch_threads { value: 1 }
pad_variable_length_inputs: true
"""


@dataclass(frozen=True)
class Request:
    """A call of a signature: inputs by name, and the requested outputs (all if empty)."""

    signature: str
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exportable:
    """A model with its signatures: everything that an export needs to know about it."""

    models: Sequence[keras.Model]  # whose weights the signatures use; several for an ensemble
    tokenizer: Tokenizer
    functions: Mapping[str, Function]  # by name of the signature
    requests: Sequence[Request]  # to warm up all signatures
    # Yields what a loaded export should answer, and what it does.
    checks: Callable[[ExportEngine], Iterable[Check]]
    sizes: Mapping[str, int]  # for the card, such as the longest source in tokens
    text: bool = True  # whether signatures take it; if not, the tokenizer is beside the model


class NotPublishedError(UserError):
    """The new export is worse than the published one."""

    status = 3


@dataclass(frozen=True)
class Gate:
    """Refuses a new export that is worse than the published one on a dev text."""

    published: Path  # folder of the published SavedModel
    dev: DevText  # with the metric
    margin: float = 0.0  # points of the metric that the new export may lose

    def compare(self, new: ExportEngine, card: Mapping[str, Any]) -> dict[str, Any]:
        """Scores both models on the dev text; returns an entry for the new one's card.

        Raises NotPublishedError if the score falls by more than the margin, and the paired
        bootstrap finds the difference significant, and UserError if the published model cannot
        be loaded, or does not translate.
        """
        metric = self.dev.metric
        with open_export(self.published) as old:
            (before, old_seconds), (after, new_seconds) = map(self._answers, (old, new))
        first, second = (metric.corpus_score(texts, None) for texts in (before, after))
        if first.score == second.score == 0:
            raise UserError(
                f"Not published: it cannot be compared with {self.published}, since both score "
                f"{first.name} 0.00 on {len(before):,} sentences ({metric.get_signature()}). "
                "Give text that they were trained for, or publish without comparing."
            )
        p_value = paired_bootstrap(metric, before, after)
        if second.score + self.margin < first.score and p_value < SIGNIFICANT:
            raise NotPublishedError(
                f"Not published: it is worse than {self.published}. {first.name} "
                f"{second.score:.2f}, before {first.score:.2f}, on {len(before):,} sentences "
                f"(paired bootstrap, one-sided: p = {p_value:.3f}; margin {self.margin:g})."
            )
        name = first.name.lower()
        return {
            "published": str(self.published),
            "sentences": len(before),
            name: second.score,
            f"{name}_of_published": first.score,
            "signature": str(metric.get_signature()),
            "p_value": p_value,
            "margin": self.margin,
            "same_translations": sum(map(str.__eq__, before, after)),
            "seconds": new_seconds,
            "seconds_of_published": old_seconds,
            "changed_settings": changed_settings(read_card(self.published), card),
        }

    def _answers(self, session: ExportEngine) -> tuple[list[str], float]:
        begin = time.perf_counter()
        answers = session.answers("serving_default", {"text": column(self.dev.sources)})
        texts = [text.decode() for answer in answers for text in answer["translation"]]
        return texts, time.perf_counter() - begin


def check_export(
    engine: GraphEngine, in_lite: bool, text: bool, gate: Gate | None, format: str,
    fixed_length: int | None,
) -> None:  # fmt: skip
    """Refuses options that the format does not support, before any work.

    `in_lite` tells whether LiteRT searches, in int8.
    """
    if format not in ("savedmodel", "litert"):
        raise UserError(f"`format` must be savedmodel or litert. Received: {quoted(format)}.")
    if format == "litert" and len(models_of(engine.model)) > 1:
        raise UserError("LiteRT takes a single model. Received: an ensemble.")
    if (in_lite, format) == (True, "savedmodel") or (
        format == "litert" and is_int8(only_model(engine.model))
    ):
        raise UserError(
            "int8 must be loaded with `litert=True` to be exported for LiteRT, and without it "
            f"for a SavedModel. Received: format={quoted(format)}."
        )
    given = {
        "better_than": gate, "source": gate, "reference": gate,  # a gate has its own
        "fixed_length": fixed_length, "no_text": not text,
        "tag": engine.tokenizer.tag,
    }  # fmt: skip
    check({"format": format} | {name: value for name, value in given.items() if value})


def publish(
    exportable: Exportable,
    base: Path,
    version: int | None = None,
    card: dict[str, Any] | None = None,
    *,
    gate: Gate | None = None,
) -> Path:
    """Writes BASE/VERSION/ after a self-test of the loaded model; returns that folder.

    TF Serving watches `base`, whose name is that of the model. The version is by default the
    next free one. `card` is the content of assets.extra/model_card.json, to which vocabulary
    and sizes are added.

    Raises NotPublishedError if the export does not pass the gate, and UserError if TensorFlow
    could not read the folder, the version exists or cannot be written, or the loaded model
    answers differently from Python. Nothing is published in that case.
    """
    check_readable(base)
    with new_version(base, version) as (final, folder):
        _save(exportable, folder)
        write_requests(folder, base.name, exportable.requests)
        write_text(folder / "batching_params.pbtxt", BATCHING_PARAMETERS)
        if not exportable.text:
            exportable.tokenizer.copy(folder / TOKENIZER)
        entries = facts(exportable.models, exportable.tokenizer, exportable.sizes)
        card = (card or {}) | entries
        with ExportEngine(folder) as session:
            model = exportable.models[0]
            precision = "int8" if is_int8(model) else model.compute_dtype
            self_test(counted(exportable.checks(session), "answers compared"), precision)
            if gate:
                card["compared"] = gate.compare(session, card)
        write_card(folder / CARD, card)
    return final


def _save(exportable: Exportable, path: Path) -> None:
    module = tf.Module(name="model")  # Keras objects would save every weight a second time
    module.weights = [
        variable.value for model in exportable.models for variable in model.weights
    ]
    module.tokenizer = exportable.tokenizer if exportable.text else None
    functions = exportable.functions
    if any(map(is_int8, exportable.models)):
        module.known = KnownProduct()
        functions = {name: module.known.guard(each) for name, each in functions.items()}
    # Saving would trace functions again, but takes concrete ones as they are.
    named = counted(functions.items(), "signatures traced")
    concrete = {name: each.get_concrete_function() for name, each in named}
    try:
        tf.saved_model.save(module, os.fspath(path), signatures=concrete)
    except tf.errors.OpError as error:
        # TensorFlow's file system raises this instead of an OSError: "its file; reason [Op...".
        reason = error.message.splitlines()[0].rpartition("; ")[2].partition(" [Op")[0]
        raise OSError(reason) from error


def facts(
    models: Sequence[keras.Model], tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the card's entries on vocabulary and sizes; see `Exportable` for arguments."""
    ids = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
    return {
        "vocabulary": {"size": tokenizer.vocab_size, "ids": ids},
        "sizes": {"parameters": sum(map(parameters, models)), **sizes},
    }


# --- Warm-up requests ---------------------------------------------------------------------
#
# TF Serving answers those in a file of its own before it declares a model ready, because a
# session builds an executor at the first call for each set of outputs, which takes about a
# second for a large model. The file holds PredictionLog messages as protocol buffers, encoded
# by hand: their classes are in tensorflow-serving-api, which exports need for nothing else.

WARM_UP = Path("assets.extra", "tf_serving_warmup_requests")  # TF Serving's path

# Field numbers of tensorflow_serving/apis/{prediction_log,predict,model}.proto.
_PREDICTION_LOG_PREDICT_LOG = 6
_PREDICT_LOG_REQUEST = 1
_REQUEST_MODEL_SPEC, _REQUEST_INPUTS, _REQUEST_OUTPUT_FILTER = 1, 2, 3
_MODEL_SPEC_NAME, _MODEL_SPEC_SIGNATURE_NAME = 1, 3
_MAP_KEY, _MAP_VALUE = 1, 2


def write_requests(folder: Path, model_name: str, requests: Iterable[Request]) -> None:
    """Writes the warm-up file of the SavedModel in `folder`."""
    file = folder / WARM_UP
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for request in requests:
            writer.write(prediction_log(model_name, request))


def prediction_log(model_name: str, request: Request) -> bytes:
    """Returns a serialised tensorflow.serving.PredictionLog with this request."""
    spec = _field(_MODEL_SPEC_NAME, model_name.encode())
    spec += _field(_MODEL_SPEC_SIGNATURE_NAME, request.signature.encode())
    message = _field(_REQUEST_MODEL_SPEC, spec)
    for name, values in request.inputs.items():
        tensor = tf.make_tensor_proto(values).SerializeToString()
        entry = _field(_MAP_KEY, name.encode()) + _field(_MAP_VALUE, tensor)
        message += _field(_REQUEST_INPUTS, entry)
    for name in request.outputs:
        message += _field(_REQUEST_OUTPUT_FILTER, name.encode())
    return _field(_PREDICTION_LOG_PREDICT_LOG, _field(_PREDICT_LOG_REQUEST, message))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a length-delimited field: number and wire type 2, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Encodes seven bits per byte, lowest first; the top bit marks that more follow."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
