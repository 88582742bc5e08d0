#!/usr/bin/env bash
# Keras 3.15.1 (TensorFlow 2.21.0): LoRA of a loaded model can no longer be trained.
#
# Guess: a model with `enable_lora`, saved to a .keras file and loaded, goes on training where
# it was.
# Behaviour: the file holds the merged kernel, and the loaded layer has LoRA enabled with both
# factors zero. The gradient of each factor is a product with the other, so both stay zero:
# `fit` reports a loss and changes nothing. Outputs right after loading are right, so nothing
# warns.
# Seen:
#     holds: factors zero after loading: True; five more epochs change outputs by up to 6.59 in
#     the model that was saved and by 0.00 in the loaded one
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
import os
import sys
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
y = x @ np.full((4, 3), 2, "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False)])
model.layers[0].enable_lora(2)
model.compile(keras.optimizers.SGD(0.05), "mse")
model.fit(x, y, epochs=2, verbose=0)

with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "model.keras")
    model.save(file)
    loaded = keras.saving.load_model(file)


def change(model):
    """Returns the largest change of an output in five more epochs."""
    before = model.predict(x, verbose=0)
    model.fit(x, y, epochs=5, verbose=0)
    return np.abs(model.predict(x, verbose=0) - before).max()


same = np.allclose(model.predict(x, verbose=0), loaded.predict(x, verbose=0), atol=1e-5)
trained = [variable.name for variable in loaded.trainable_variables]
zero = not any(np.any(variable.numpy()) for variable in loaded.trainable_variables)
saved, again = change(model), change(loaded)
adapters = ["lora_kernel_a", "lora_kernel_b"]
holds = same and trained == adapters and zero and saved > 0.1 and again == 0
print(
    "holds:" if holds else "changed:",
    f"factors zero after loading: {zero}; five more epochs change outputs by up to {saved:.2f}",
    f"in the model that was saved and by {again:.2f} in the loaded one",
)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
