"""Publishing a model as a SavedModel: atomically, after a self-test of the written files."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.export.functions import Function
from tf_transformer.export.gate import Gate
from tf_transformer.export.self_test import Check, self_test
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.versions import CARD, check_readable, reserved
from tf_transformer.export.warmup import Request, replay, write_requests
from tf_transformer.files import new_folder, write_text

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
class Exportable:
    """A model with its signatures: everything that an export needs to know about it.

    Attributes:
        models: the Keras models whose weights the signatures use; several for an ensemble.
        tokenizer: the tokenizer of the models.
        functions: a TensorFlow function for each signature name.
        requests: warm-up requests for all signatures.
        checks: yields what a loaded export should answer, and what it does.
        sizes: entries for "sizes" in the card, such as the longest source in tokens.
        text: whether the signatures take text; otherwise the tokenizer is copied beside the
            model.
    """

    models: Sequence[keras.Model]
    tokenizer: Tokenizer
    functions: Mapping[str, Function]
    requests: Sequence[Request]
    checks: Callable[[SavedModelSession], Iterable[Check]]
    sizes: Mapping[str, int]
    text: bool = True


def publish(
    exportable: Exportable,
    base: Path,
    version: int | None = None,
    card: dict[str, Any] | None = None,
    *,
    gate: Gate | None = None,
) -> Path:
    """Writes BASE/VERSION/ after a self-test of the loaded model; returns that folder.

    Args:
        exportable: the model and its signatures.
        base: the model's folder, which TF Serving watches; its name is that of the model.
        version: version number; the next free one by default.
        card: content of assets.extra/model_card.json, to which vocabulary and sizes are added.
        gate: the published model that the export must not be worse than.

    Raises:
        NotPublishedError: if the export does not pass the gate.
        UserError: if TensorFlow could not read the folder, the version exists or cannot be
            written, a warm-up request fails, or the loaded model answers differently from
            Python. Nothing is published in that case.
    """
    check_readable(base)
    with reserved(base, version) as final, new_folder(final) as folder:
        # The temporary name is not a number, so TF Serving ignores the folder.
        _save(exportable, folder)
        write_requests(folder, base.name, exportable.requests)
        write_text(folder / "batching_params.pbtxt", BATCHING_PARAMETERS)
        if not exportable.text:
            exportable.tokenizer.copy(folder / TOKENIZER)
        entries = facts(exportable.models, exportable.tokenizer, exportable.sizes)
        card = (card or {}) | entries
        with SavedModelSession(folder) as session:
            replay(session, exportable.requests)
            self_test(exportable.checks(session), exportable.models[0].compute_dtype)
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
    # Saving would trace functions again, but takes concrete ones as they are.
    concrete = {name: f.get_concrete_function() for name, f in exportable.functions.items()}
    try:
        tf.saved_model.save(module, os.fspath(path), signatures=concrete)
    except tf.errors.OpError as error:
        # TensorFlow's file system raises this instead of an OSError.
        raise OSError(error.message.splitlines()[0]) from error


def facts(
    models: Sequence[keras.Model], tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the card's entries on vocabulary and sizes; see `Exportable` for arguments."""
    weights = [weight for model in models for weight in model.weights]
    parameters = sum(math.prod(weight.shape) for weight in weights)
    ids = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
    return {
        "vocabulary": {"size": tokenizer.vocab_size, "ids": ids},
        "sizes": {"parameters": parameters, **sizes},
    }


def write_card(file: Path, card: Mapping[str, Any]) -> None:
    """Writes the model card of an export."""
    write_text(file, json.dumps(card, indent=2, ensure_ascii=False) + "\n")
