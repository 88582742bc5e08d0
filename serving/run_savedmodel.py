"""Runs an exported model with only TensorFlow and SentencePiece's operations.

    python serving/run_savedmodel.py models/mine/1 < in.en

For machines without tf_transformer, and to try an export with another version of TensorFlow.
"""

import codecs
import importlib.util
import json
import sys
from pathlib import Path

import tensorflow as tf


def main() -> None:
    """Reads lines from stdin and prints all outputs for each as a JSON record."""
    if len(sys.argv) != 2:
        sys.exit("usage: python run_savedmodel.py MODEL/VERSION < in")
    found = importlib.util.find_spec("tensorflow_text")
    if found is None:
        sys.exit("error: tensorflow_text is not installed: pip install tensorflow-text")
    package = found.submodule_search_locations[0]
    tf.load_op_library(str(Path(package, "python", "ops", "_sentencepiece_tokenizer.so")))
    model = tf.saved_model.load(sys.argv[1])
    if lines := _lines(sys.stdin.buffer.read()):
        _answer(model, lines)
    print(f"TensorFlow {tf.__version__}", file=sys.stderr)


def _lines(text: bytes) -> list[bytes]:
    r"""Splits a text at "\n" and "\r\n", without a byte order mark.

    Text mode and `splitlines` would recognise ten other line ends.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    return [line.removesuffix(b"\r") for line in lines]


def _answer(model, lines: list[bytes]) -> None:
    answer = model.signatures["serving_default"](text=tf.constant(lines, tf.string))
    columns = [values.numpy().tolist() for values in answer.values()]
    for row in zip(*columns, strict=True):
        record = dict(zip(answer, row, strict=True))
        print(json.dumps(record, ensure_ascii=False, default=bytes.decode))


if __name__ == "__main__":
    main()
