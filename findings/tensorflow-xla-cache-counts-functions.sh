#!/usr/bin/env bash
# TensorFlow 2.21.0: XLA's cache on disk misses a program if another function was made before it.
#
# Guess: with TF_XLA_FLAGS=--tf_xla_persistent_cache_directory, a process that compiles the same
# function with the same shapes as an earlier process reads the stored program.
# Behaviour: it does if both made equally many functions before. Each function of a graph has a
# number that counts them within the process, and the number is part of what the cache looks
# for: one unrelated tf.function called before, as on another path through a program, and all
# that follows is compiled and stored again.
# Seen (files in the folder of the cache after each of four processes on a CPU; the same product
# is compiled after 0, 0, 1 and 1 calls of an unrelated function):
#     holds: files after each process: 1 1 2 2
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

import tensorflow as tf

for _ in range(int(sys.argv[1])):
    tf.function(lambda x: x + 1.0)(tf.constant(1.0))


@tf.function(jit_compile=True)
def product(x):
    return tf.reduce_sum(tf.tanh(x @ x))


product(tf.ones([64, 64]))
PY
mkdir "$scratch/cache"
export TF_XLA_FLAGS="--tf_xla_persistent_cache_directory=$scratch/cache"
counts=
for others in 0 0 1 1; do
    "$venv/bin/python" -I "$scratch/finding.py" $others
    counts="$counts $(find "$scratch/cache" -type f | wc -l)"
done
if [ "$counts" = " 1 1 2 2" ]; then word=holds; else word=changed; fi
echo "$word: files after each process:$counts"
[ $word = holds ]
