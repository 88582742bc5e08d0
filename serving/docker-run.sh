#!/bin/sh
# TF Serving with one exported model: sh serving/docker-run.sh exported/mine. It has never run.
# Reachable only from this machine: REST on port 8501, gRPC on 8500, metrics on
# 8501/monitoring/prometheus/metrics.
set -eu
base=$(cd "$1" && pwd)
name=$(basename "$base")
here=$(cd "$(dirname "$0")" && pwd)
exec docker run --rm -p 127.0.0.1:8500:8500 -p 127.0.0.1:8501:8501 \
  --cpus 2 --memory 6g --stop-timeout 45 \
  --mount "type=bind,source=$base,target=/models/$name,readonly" \
  --mount "type=bind,source=$here/config,target=/config,readonly" \
  -e "MODEL_NAME=$name" tensorflow/serving:2.20.0 \
  --monitoring_config_file=/config/monitoring.config \
  --enable_batching \
  --batching_parameters_file=/config/batching_params.pbtxt \
  --tensorflow_intra_op_parallelism=2 \
  --tensorflow_inter_op_parallelism=2
