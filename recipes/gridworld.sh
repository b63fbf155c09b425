#!/usr/bin/env bash
# 200 questions about gridworld with the embedded models and five methods, then the tables and the report. Downloads nothing.
# recipes/gridworld.sh [FOLDER [options of gridprobe eval]]
set -euo pipefail
: "${GRIDPROBE:=gridprobe}" "${COUNT:=200}"
# The models are stored in bfloat16; a CPU with bfloat16 instructions is faster with it by a quarter to a half.
: "${DTYPE:=$(grep -qs 'avx512_bf16\|amx_bf16' /proc/cpuinfo && echo bfloat16 || echo auto)}"
folder=${1:-gridworld-runs}
shift || true
ask() { # NAME [options]
    local name=$1
    shift
    "$GRIDPROBE" eval gridworld --data "$folder/videos" --with "count=$COUNT" --with first=600 --preset gridworld \
        --load "dtype=$DTYPE" --out "$folder/$name" "$@"
}
# All frames first: this run is the slowest, and it writes the videos.
ask all --selector all --model embedded "$@"
ask all-small --selector all-small --model embedded "$@"
ask published --model embedded --effort focus --set probes=fresh --frames shape --set context=none "$@"
ask gridprobe --model embedded "$@"
ask cross --model embedded:nano --answer-model embedded "$@"
runs=("$folder/all" "$folder/all-small" "$folder/published" "$folder/gridprobe" "$folder/cross")
"$GRIDPROBE" score "${runs[@]}" --all
"$GRIDPROBE" report "${runs[@]}" -o "$folder/report.html"
