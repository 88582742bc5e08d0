#!/bin/sh
# Measures training and decoding of base and big on the first GPU, in at most 8 minutes:
#
#     sh benchmarks/gpu.sh CORPUS PEAK_TFLOPS
#     sh benchmarks/gpu.sh CORPUS 1 --device cpu      # tiny sizes: tries every part
#
# CORPUS is a prefix of parallel text (en, de), PEAK_TFLOPS the device's dense rate in bfloat16:
# 312 for an A100, 989 for an H100 or H200 (SXM). Tables and failures are written to
# benchmarks/results/gpu.md; a part that exceeds its seconds is ended, and the next begins.
set -u
device=gpu
if [ $# -eq 4 ] && [ "$3" = --device ]; then device=$4; fi
case $#$device in 2gpu | 4gpu | 4cpu) ;; *)
    echo "error: expected CORPUS PEAK_TFLOPS [--device gpu|cpu]. Received: $*. See benchmarks/gpu.sh." >&2
    exit 2 ;;
esac
corpus=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") || exit 1
peak=$2 python=${PYTHON:-python}
cd "$(dirname "$0")/.." || exit 1
if [ $device = gpu ] && ! "$python" -c 'import tensorflow as tf; raise SystemExit(not tf.config.list_physical_devices("GPU"))' 2>/dev/null; then
    echo "error: TensorFlow must see a GPU. Received: none with $python. Check nvidia-smi, and pip install 'tensorflow[and-cuda]'." >&2
    exit 1
fi
mkdir -p benchmarks/results
table=benchmarks/results/gpu.md
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
{
    echo "# One device ($device)"
    echo
    [ $device = cpu ] || nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    echo "commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), peak $peak TFLOP/s"
} > "$table"

part() { # seconds, title, arguments of python
    seconds=$1 title=$2
    shift 2
    [ $device = gpu ] || seconds=900 # a CPU's time does not matter
    printf '\n## %s\n\n`%s`\n\n' "$title" "$*" >> "$table"
    echo "$title: at most $seconds seconds"
    started=$(date +%s)
    timeout "$seconds" "$python" "$@" >> "$table" 2> benchmarks/results/gpu.log
    status=$?
    printf '\n%d seconds\n' $(($(date +%s) - started)) >> "$table"
    if [ $status -ne 0 ]; then
        printf 'status %d (124: more than %d seconds)\n' $status "$seconds" >> "$table"
        tail -n 3 benchmarks/results/gpu.log >> "$table"
    fi
}

if [ $device = gpu ]; then
    gpu=--gpu base=base big=big vocabulary=37000 base_tokens=25000 big_tokens=16384 sizes='1 32 256'
    shapes='780x32 390x64 200x124'
else
    gpu='' base=tiny big=tiny vocabulary=8000 base_tokens=256 big_tokens=256 sizes='1 2'
    shapes='8x8 4x16'
fi
common="$gpu --peers none --rounds 2 --corpus $corpus --vocab-size $vocabulary"
one="--device $device --vocab-size $vocabulary --shapes $shapes"
began=$(date +%s)
# shellcheck disable=SC2086  # several words
{
    part 40 "Parity of an update" benchmarks/gpu_step.py parity $one --model $base
    export TF_XLA_FLAGS="--tf_xla_persistent_cache_directory=$cache"
    part 70 "Compilation, nothing stored" benchmarks/gpu_step.py compile $one --model $base
    part 75 "Training, base, bfloat16" benchmarks/training_step.py $common --models $base \
        --precisions bfloat16 --batch-tokens $base_tokens --xla --peak-tflops "$peak"
    part 75 "Training, big, bfloat16" benchmarks/training_step.py $common --models $big \
        --precisions bfloat16 --batch-tokens $big_tokens --xla --peak-tflops "$peak"
    part 50 "Kernels of a step" benchmarks/gpu_step.py profile $one --model $base
    part 80 "Decoding, base" benchmarks/decoding.py $common --model $base \
        --precisions float32 bfloat16 --xla --beams 4 --batch-sizes $sizes
    # Three processes, of which the first compiles and the others find what it has stored.
    part 90 "A killed training resumes" benchmarks/gpu_step.py resume --model tiny
    if [ $device = cpu ] || [ $(($(date +%s) - began)) -lt 420 ]; then
        part 60 "Two logical devices" benchmarks/gpu_step.py replicas --device $device --model tiny \
            --vocab-size 500
    fi
}
cat "$table"
