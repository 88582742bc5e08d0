"""The SavedModel: strings in, translations out, published whole or not at all."""

import os
import shutil
from pathlib import Path

import tensorflow as tf

from tf_transformer.config import PAD_ID
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.files import sync

# What the loaded model must translate as the Python translator does, before it is published.
SELF_TEST = (
    "A short sentence.",
    "",
    "   ",
    "\u00a0",
    "\u200b",
    "Two men, 3.50 euros and a tree: what a day!",
    "</s> <s> <pad> <unk>",
    "emoji 🙂 中文 \u0000 \u2028 é",
    "word " * 60,
)
TOLERANCE = 1e-4


class ServedTranslator(tf.Module):
    """A translator as a SavedModel holds it: plain variables and functions, no Keras."""

    def __init__(self, translator: Translator) -> None:
        super().__init__(name="translator")
        self.tokenizer = translator.tokenizer
        self.weights = [variable.value for variable in translator.model.trainable_variables]
        # In a closure, not an attribute: a tracked model's weights would be written twice.
        self.translate = tf.function(
            lambda text: _translate(translator, text),
            input_signature=[tf.TensorSpec([None], tf.string, name="text")],
            autograph=False,
        )


def _translate(translator: Translator, text: tf.Tensor) -> dict[str, tf.Tensor]:
    text = tf.ensure_shape(text, [None])
    source, cut = translator.encode(text)
    found = translator.search(source.to_tensor(PAD_ID))
    blank = source.row_lengths() == 1  # EOS alone
    translations = translator.tokenizer.detokenize(found.tokens[:, 0])
    return {
        "translation": tf.where(blank, "", translations),
        "score": tf.where(blank, 0.0, found.scores[:, 0]),
        "source_cut": cut,
    }


def export(translator: Translator, base: Path, version: int | None = None) -> Path:
    """Writes BASE/VERSION/ after a self-test of the loaded model.

    Args:
        translator: what to export.
        base: the model's folder, as TF Serving watches it.
        version: its number; the next free one by default.

    Returns:
        The folder of the new version.

    Raises:
        UserError: if the version exists or cannot be written, or the loaded model translates
            otherwise than the Python translator. Nothing is published then.
    """
    version = _next_version(base) if version is None else version
    if version < 1:
        raise UserError(f"--version must be at least 1. Received: {version}.")
    final = base / str(version)
    if final.exists():
        raise UserError(f"{final} exists already. Choose another --version, or none.")
    temporary = base / f".{version}.{os.getpid()}.tmp"  # no number: TF Serving ignores it
    try:
        module = ServedTranslator(translator)
        _save(module, temporary)
        _self_test(temporary, translator)
        _sync(temporary)
        os.rename(temporary, final)
    except OSError as error:
        raise UserError(f"Cannot write {final}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _save(module: ServedTranslator, path: Path) -> None:
    signatures = {"serving_default": module.translate}
    try:
        tf.saved_model.save(module, str(path), signatures=signatures)
    except tf.errors.OpError as error:
        # What TensorFlow's own file system raises where Python's raises an OSError.
        raise OSError(error.message.splitlines()[0]) from error


def _next_version(base: Path) -> int:
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=0) + 1


def _self_test(path: Path, translator: Translator) -> None:
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    served = serve(text=tf.constant(SELF_TEST))
    for row, (text, expected) in enumerate(
        zip(SELF_TEST, translator.translate(SELF_TEST), strict=True)
    ):
        translation = served["translation"][row].numpy().decode("utf-8")
        difference = abs(float(served["score"][row]) - expected[0].score)
        if translation != expected[0].text or difference > TOLERANCE:
            raise UserError(
                f"The exported model failed its self-test on {text!r}: expected "
                f"{expected[0].text!r} ({expected[0].score:.5f}), received {translation!r} "
                f"({float(served['score'][row]):.5f}). Nothing was published."
            )


def _sync(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        sync(path)
