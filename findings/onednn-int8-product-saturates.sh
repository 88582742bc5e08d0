#!/usr/bin/env bash
# TensorFlow 2.21.0 with oneDNN, on x86: int8 products of signed numbers are wrong without VNNI.
#
# Guess: an int8 matrix product is exact, because its sums have 32 bits.
# Behaviour: on a processor without VNNI instructions, neighbouring products are added in 16
# bits, which saturate, and nothing reports it. ONEDNN_MAX_CPU_ISA=AVX2 makes a newer processor
# compute as such an old one. The number seen fits this account: rows are shifted by 128 to be
# unsigned, so a pair is 255 x 127 x 2 = 64,770, cut to 32,767; 32 pairs less 64 x 128 x 127 for
# the shift are 8,160.
# Seen (64 products of 127 and 127; right is 1,032,256; this processor has VNNI):
#     holds: 64 x 127 x 127 is 8,160 with AVX2 and 1,032,256 with all that this processor has
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
import os
import subprocess
import sys

if len(sys.argv) == 1:  # both settings, each in a process of its own
    sums = []
    for isa in ("AVX2", "DEFAULT"):
        environment = os.environ | {"ONEDNN_MAX_CPU_ISA": isa, "TF_ENABLE_ONEDNN_OPTS": "1"}
        command = [sys.executable, "-I", __file__, "one"]
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        sums.append(float(run.stdout))
    holds = sums[0] == 8160
    print(
        "holds:" if holds else "changed:",
        f"64 x 127 x 127 is {sums[0]:,.0f} with AVX2 and {sums[1]:,.0f} with all that this",
        "processor has",
    )
    sys.exit(not holds)

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library


@tf.function(autograph=False)
def product(rows, columns):
    bias = tf.zeros(columns.shape[1:])
    rows, columns = tf.bitcast(rows, tf.qint8), tf.bitcast(columns, tf.qint8)
    outputs = op_def_library._apply_op_helper(
        "_QuantizedMatMul",
        name="product",
        device_inputs=[rows, columns, bias],
        host_inputs=[tf.constant(bound) for bound in (-127.0, 127.0, -127.0, 127.0, 0.0, 0.0)],
        Tdevice_outputs=[tf.float32],
        Thost_outputs=[],
        T1=tf.qint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=tf.float32,
        transpose_a=False,
        transpose_b=False,
        is_weight_const=True,
        is_bias_const=True,
        fused_ops=["BiasAdd", "Dequantize"],
        input_quant_mode="SCALED",
        output_quant_mode="SCALED",
        leakyrelu_alpha=0.2,
    )
    return outputs[2].outputs[0]


full = np.full((64, 64), 127, np.int8)
print(product(tf.constant(full[:1]), tf.constant(full)).numpy()[0, 0])
PY
"$venv/bin/python" -I "$scratch/finding.py"
