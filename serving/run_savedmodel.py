"""Runs an exported model with only TensorFlow and SentencePiece's operations.

    python serving/run_savedmodel.py models/mine/1 < in.en

For machines without tf_transformer, and to try an export under another TensorFlow.
"""

import importlib.util
import json
import sys
from pathlib import Path

import tensorflow as tf


def main() -> None:
    """Answers stdin to stdout, a JSON record of all outputs for each line."""
    package = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    tf.load_op_library(str(Path(package, "python", "ops", "_sentencepiece_tokenizer.so")))
    model = tf.saved_model.load(sys.argv[1])
    # Only "\n" ends a line: text mode and splitlines() recognise ten other separators.
    lines = sys.stdin.buffer.read().removesuffix(b"\n").split(b"\n")
    answer = model.signatures["serving_default"](text=tf.constant(lines, tf.string))
    columns = [values.numpy().tolist() for values in answer.values()]
    for row in zip(*columns, strict=True):
        record = dict(zip(answer, row, strict=True))
        print(json.dumps(record, ensure_ascii=False, default=bytes.decode))
    print(f"TensorFlow {tf.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
