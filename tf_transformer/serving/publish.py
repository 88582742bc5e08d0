"""Publishing a SavedModel: atomically, after a test of the written files."""

import json
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_transformer.files import replacing_folder, write_text
from tf_transformer.serving.exportable import Exportable
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.selftest import self_test, tolerance_of
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.versions import CARD, check_readable, reserved
from tf_transformer.serving.warmup import replay, write_requests

TOKENIZER = Path("assets.extra", "tokenizer.model")  # of a model that takes only ids


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
            Python. Nothing is published then.
    """
    check_readable(base)
    with reserved(base, version) as final, replacing_folder(final, replace=False) as folder:
        # The temporary name is not a number, so TF Serving ignores the folder.
        _save(exportable, folder)
        write_requests(folder, base.name, exportable.requests)
        write_text(folder / "batching_params.pbtxt", batching_parameters())
        if not exportable.text:
            exportable.tokenizer.copy(folder / TOKENIZER)
        card = (card or {}) | exportable.facts()
        with SavedModelSession(folder) as session:
            replay(session, exportable.requests)
            self_test(exportable.compare(session), tolerance_of(exportable.models[0]))
            if gate:
                card["compared"] = gate.compare(session, card)
        write_text(folder / CARD, json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    return final


def batching_parameters() -> str:
    """Returns the content of TF Serving's --batching_parameters_file.

    One thread is enough, since a batch uses all cores. Requests for `tokens` differ in width,
    and need padding.
    """
    return (
        "max_batch_size { value: 32 }\n"
        "batch_timeout_micros { value: 5000 }\n"
        "max_enqueued_batches { value: 64 }\n"
        "num_batch_threads { value: 1 }\n"
        "pad_variable_length_inputs: true\n"
    )


def _save(exportable: Exportable, path: Path) -> None:
    # Saving would trace functions again, but takes concrete ones as they are.
    concrete = {name: f.get_concrete_function() for name, f in exportable.functions.items()}
    try:
        tf.saved_model.save(exportable.module(), os.fspath(path), signatures=concrete)
    except tf.errors.OpError as error:
        # TensorFlow's file system raises this instead of an OSError.
        raise OSError(error.message.splitlines()[0]) from error
