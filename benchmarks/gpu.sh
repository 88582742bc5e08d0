#!/bin/sh
# Measures training and decoding of base and big on the first GPU, in at most 25 minutes:
#
#     sh benchmarks/gpu.sh CORPUS PEAK_TFLOPS
#
# CORPUS is a prefix of parallel text (en, de), PEAK_TFLOPS the device's dense rate in bfloat16:
# 312 for an A100, 989 for an H100 or H200 (SXM). Tables and failures are written to
# benchmarks/results/gpu.md; a part that exceeds its minutes is ended, and the next begins.
set -u
if [ $# -ne 2 ]; then
    echo "error: expected CORPUS and PEAK_TFLOPS. Received: $# arguments. See benchmarks/gpu.sh." >&2
    exit 2
fi
corpus=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") || exit 1
peak=$2 python=${PYTHON:-python}
cd "$(dirname "$0")/.." || exit 1
if ! "$python" -c 'import tensorflow as tf; raise SystemExit(not tf.config.list_physical_devices("GPU"))' 2>/dev/null; then
    echo "error: TensorFlow must see a GPU. Received: none with $python. Check nvidia-smi, and pip install 'tensorflow[and-cuda]'." >&2
    exit 1
fi
mkdir -p benchmarks/results
table=benchmarks/results/gpu.md
{
    echo "# One GPU"
    echo
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    echo "commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), peak $peak TFLOP/s"
} > "$table"

part() { # minutes, title, arguments of python
    minutes=$1 title=$2
    shift 2
    printf '\n## %s\n\n`%s`\n\n' "$title" "$*" >> "$table"
    echo "$title: at most $minutes minutes"
    timeout "${minutes}m" "$python" "$@" >> "$table" 2> benchmarks/results/gpu.log
    status=$?
    if [ $status -ne 0 ]; then
        printf 'status %d (124: more than %d minutes)\n' $status "$minutes" >> "$table"
        tail -n 3 benchmarks/results/gpu.log >> "$table"
    fi
}

common="--gpu --peers none --rounds 3 --corpus $corpus"
# shellcheck disable=SC2086  # several words
{
    part 6 "Training, big, bfloat16" benchmarks/training_step.py $common --models big \
        --precisions bfloat16 --vocab-size 37000 --batch-tokens 16384 --xla --peak-tflops "$peak"
    part 5 "Training, base, bfloat16" benchmarks/training_step.py $common --models base \
        --precisions bfloat16 --vocab-size 37000 --batch-tokens 25000 --xla --peak-tflops "$peak"
    part 3 "Training, base, float32" benchmarks/training_step.py $common --models base \
        --precisions float32 --vocab-size 37000 --batch-tokens 25000
    part 5 "Decoding, base" benchmarks/decoding.py $common --model base --vocab-size 37000 \
        --precisions float32 bfloat16 --beams 4 --batch-sizes 1 32 256
    part 4 "Decoding, big" benchmarks/decoding.py $common --model big --vocab-size 37000 \
        --precisions float32 bfloat16 --beams 4 --batch-sizes 32 256
    part 2 "Input" benchmarks/input_pipeline.py --gpu --rounds 1 --corpus "$corpus"
}
cat "$table"
