#!/usr/bin/env bash
# Keras 3.15.1 (TensorFlow 2.21.0): `enable_lora` after `predict` has no effect on `predict`.
#
# Guess: `predict` and a call of the model compute the same, whatever was done to the layers
# before.
# Behaviour: `predict` keeps the function that it traced the first time, which knows no factors.
# It returns the old outputs, whatever the factors hold, until `compile` throws the function
# away. A call of the model uses the factors at once.
# Seen (an output of a layer whose factors are all ones):
#     holds: predict 4, after enable_lora still 4 where a call gives 12, after compile 12
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
export CUDA_VISIBLE_DEVICES=-1 KERAS_BACKEND=tensorflow
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet keras==3.15.1 tensorflow==2.21.0
cat >"$scratch/finding.py" <<'PY'
import sys

import keras
import numpy as np

x = np.ones((1, 4), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
first = model.predict(x, verbose=0).item()
model.layers[0].enable_lora(2, a_initializer="ones", b_initializer="ones")
predicted, called = model.predict(x, verbose=0).item(), model(x).numpy().item()
model.compile()
compiled = model.predict(x, verbose=0).item()
holds = (first, predicted, called, compiled) == (4, 4, 12, 12)
print(
    "holds:" if holds else "changed:",
    f"predict {first:g}, after enable_lora still {predicted:g} where a call gives {called:g},",
    f"after compile {compiled:g}",
)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
