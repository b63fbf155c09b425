#!/usr/bin/env bash
# Do our defaults suit this checkpoint? 200 questions in nine ways, with intervals, and what a calibration would find.
# recipes/check-model.sh MODEL BENCHMARK DATA [options of speed/method.py check]
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 MODEL BENCHMARK DATA [options of speed/method.py check]" >&2; exit 2; }
: "${PYTHON:=python}" "${RUNS:=runs}"
model=$1 benchmark=$2 data=$3
shift 3
mkdir -p "$RUNS"
exec "$PYTHON" "$(dirname "$0")/../speed/method.py" check --model "$model" --benchmark "$benchmark" --data "$data" \
    --out "$RUNS/check-$(basename "$model")-$benchmark.jsonl" "$@"
