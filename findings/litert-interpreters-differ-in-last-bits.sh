#!/usr/bin/env bash
# ai-edge-litert 2.3.0 and TensorFlow 2.21.0: their interpreters give different last bits.
#
# Guess: ai-edge-litert holds the interpreter that moved out of TensorFlow, so one file, one
# input and the plain kernels (no delegate) give the same bits in both.
# Behaviour: means over the last axis, as in layer normalisation, differ in their last bits;
# both lie within 2e-8 of the exact mean. Compare outputs with a tolerance.
# Seen (a file with nothing but a mean over 512 numbers, 64 rows):
#     holds: 54 of 64 means differ, by up to 1.9e-08; errors up to 1.1e-08 in TensorFlow and
#     1.9e-08 in ai-edge-litert
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
export CUDA_VISIBLE_DEVICES=-1 KERAS_BACKEND=tensorflow
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet ai-edge-litert==2.3.0 tensorflow==2.21.0
cat >"$scratch/finding.py" <<'PY'
import sys

import numpy as np
import tensorflow as tf
from ai_edge_litert import interpreter as litert

x = np.random.default_rng(1).normal(size=(64, 512)).astype("float32")
module = tf.Module()
inputs = [tf.TensorSpec(x.shape)]
module.f = tf.function(lambda x: tf.reduce_mean(x, -1), input_signature=inputs)
concrete = module.f.get_concrete_function()
file = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()


def means(kind, resolvers):
    interpreter = kind(
        model_content=file,
        experimental_op_resolver_type=resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


ours = means(tf.lite.Interpreter, tf.lite.experimental.OpResolverType)
theirs = means(litert.Interpreter, litert.OpResolverType)
number, gap = (ours != theirs).sum(), np.abs(ours - theirs).max()
exact = x.mean(-1, dtype="float64")
errors = [np.abs(each - exact).max() for each in (ours, theirs)]
holds = number > 0 and gap < 1e-6
print(
    "holds:" if holds else "changed:",
    f"{number} of 64 means differ, by up to {gap:.1e};",
    f"errors up to {errors[0]:.1e} in TensorFlow and {errors[1]:.1e} in ai-edge-litert",
)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
