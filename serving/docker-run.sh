#!/bin/sh
# TF Serving with one exported model: sh serving/docker-run.sh exported/mine
# REST on port 8501, gRPC on 8500, metrics on 8501/monitoring/prometheus/metrics.
set -eu
base=$(cd "$1" && pwd)
name=$(basename "$base")
here=$(cd "$(dirname "$0")" && pwd)
newest=$(ls "$base" | grep -E '^[0-9]+$' | sort -n | tail -1)
exec docker run --rm -p 8500:8500 -p 8501:8501 \
  --mount "type=bind,source=$base,target=/models/$name,readonly" \
  --mount "type=bind,source=$here/monitoring.config,target=/config/monitoring.config,readonly" \
  -e "MODEL_NAME=$name" tensorflow/serving:2.19.1 \
  --enable_batching \
  --batching_parameters_file="/models/$name/$newest/batching_params.pbtxt" \
  --monitoring_config_file=/config/monitoring.config
