#!/usr/bin/env bash
# TensorFlow 2.21.0: the LiteRT converter loses the ReLU of `relu(x @ w)` if w is an input.
#
# Guess: a converted function computes what the function computes.
# Behaviour: with two matrices as inputs and no addition between product and ReLU, the file has
# the product alone, and negative numbers come out. Adding anything to the product keeps the
# ReLU.
# Seen:
#     holds: relu(x @ w) gives [[1.0, 0.0]], its file [[1.0, -3.0]]; relu(x @ w + 0.5) gives
#     [[1.5, 0.0]], its file [[1.5, 0.0]]
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
export CUDA_VISIBLE_DEVICES=-1 KERAS_BACKEND=tensorflow
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet tensorflow==2.21.0
cat >"$scratch/finding.py" <<'PY'
import sys

import numpy as np
import tensorflow as tf

x = np.array([[1, -1]], np.float32)
w = np.array([[4, -2], [3, 1]], np.float32)  # x @ w is [[1, -3]]


def both(compute):
    """Returns what a function and its converted file give, as lists."""
    module = tf.Module()
    inputs = [tf.TensorSpec((1, 2)), tf.TensorSpec((2, 2))]
    module.f = tf.function(compute, input_signature=inputs)
    concrete = module.f.get_concrete_function()
    file = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()
    interpreter = tf.lite.Interpreter(model_content=file)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], x if detail["shape"][0] == 1 else w)
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    return module.f(x, w).numpy().tolist(), interpreter.get_tensor(output["index"]).tolist()


bare, file = both(lambda x, w: tf.nn.relu(x @ w))
added, file_added = both(lambda x, w: tf.nn.relu(x @ w + 0.5))
holds = (bare, file) == ([[1, 0]], [[1, -3]]) and added == file_added == [[1.5, 0]]
print(
    "holds:" if holds else "changed:",
    f"relu(x @ w) gives {bare}, its file {file};",
    f"relu(x @ w + 0.5) gives {added}, its file {file_added}",
)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
