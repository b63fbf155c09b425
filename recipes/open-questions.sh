#!/usr/bin/env bash
# Gridworld's questions without their options: the default, all native frames, all small ones, and evenly spaced
# frames at several numbers. Then the table. Downloads nothing. The same command resumes it.
# recipes/open-questions.sh [FOLDER [options of gridprobe eval]]
#   COUNT  questions, of every part in turn (negation means nothing without options and is left out)
set -euo pipefail
: "${GRIDPROBE:=gridprobe}" "${PYTHON:=python}" "${COUNT:=600}" "${FIRST:=30000}" "${SOURCE:=mp4}" "${MODEL:=embedded}"
folder=${1:-open-runs}
shift || true
more=("$@")
runs=()

ask() { # NAME [options]: one run, in its own folder
    local name=$1
    shift
    runs+=("$folder/$name")
    "$GRIDPROBE" eval gridworld --data "$folder/videos" --with open=true --with "count=$COUNT" --with "first=$FIRST" \
        --with part=all --with "source=$SOURCE" --preset gridworld --model "$MODEL" --out "$folder/$name" "$@" \
        ${more[@]+"${more[@]}"}
}

ask all --selector all --effort focus
ask all-small --effort quick
ask drafts
for frames in 16 32 48 64; do ask "uniform-$frames" --selector uniform --frames "$frames" --effort focus; done
"$PYTHON" "$(dirname "$0")/../speed/open_table.py" "${runs[@]}" | tee "$folder/table.md"
