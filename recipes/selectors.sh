#!/usr/bin/env bash
# Every selector of the registry on the same questions about gridworld, with the same prompt and the same answering model: at M = 8
# and 16 frames and at GridProbe's own budget, without and with all other frames as small context. Then tables and the report with
# the Pareto front. Downloads nothing. The same command resumes it.
# recipes/selectors.sh [FOLDER [options of gridprobe eval]]
#   COUNT   questions, of every part in turn          MODELS  models, each with its own tables
#   BUDGETS numbers of frames, or auto                ONLY    selectors, in place of all
set -euo pipefail
: "${GRIDPROBE:=gridprobe}" "${PYTHON:=python}" "${COUNT:=600}" "${FIRST:=15000}" "${SOURCE:=mp4}"
: "${MODELS:=embedded embedded:nano}" "${BUDGETS:=8 16 auto}" "${ONLY:=}"
folder=${1:-selector-runs}
shift || true
more=("$@")
names=$("$PYTHON" -c 'from gridprobe.registry import SELECTORS
for name, entry in SELECTORS.items():
    if entry.optional or not entry.argument:  # others need a file of their own
        print(name, entry.frames)')

ask() { # MODEL NAME [options]: one run, in its own folder
    local model=$1 name=$2
    shift 2
    runs+=("$folder/$model/$name")
    "$GRIDPROBE" eval gridworld --data "$folder/videos" --with "count=$COUNT" --with "first=$FIRST" --with part=all \
        --with "source=$SOURCE" --preset gridworld --model "$model" --out "$folder/$model/$name" "$@" ${more[@]+"${more[@]}"}
}

number() { # NAME M: Q-Frame shows 2N medium and 8N small frames beside N large ones, at the cost of 2N, so it gets half of M
    [ "$1" = q-frame ] && [ "$2" != auto ] && echo $((($2 + 1) / 2)) || echo "$2"
}

both() { # MODEL SELECTOR M: no overview, so that all selectors are asked in the same way; without and with context
    local model=$1 name=$2 frames
    frames=$(number "$name" "$3")
    ask "$model" "$name-$3" --selector "$name" --effort focus --frames "$frames" --set context=none
    ask "$model" "$name-$3-context" --selector "$name" --effort focus --frames "$frames" --set context=small
}

for model in $MODELS; do
    runs=()
    # What any selector has to beat comes first: the others are compared with it. Then the ceiling, and gridprobe as it is by default.
    ask "$model" all-small --selector all-small
    ask "$model" all --selector all
    ask "$model" gridprobe
    while read -r name frames <&3; do # not standard input, which the commands inside may read
        [ -z "$ONLY" ] || [[ " $ONLY " == *" $name "* ]] || continue
        [ "$frames" != none ] || continue # all and all-small, above
        for budget in $BUDGETS; do
            # Agents stop by themselves: M is the most they keep, and auto their own limit. uniform-like is uniform at GridProbe's budget.
            [ "$budget $frames" != "auto needed" ] || continue
            [ "$name" != uniform-like ] || [ "$budget" = auto ] || continue
            both "$model" "$name" "$budget"
        done
    done 3<<<"$names"
    mkdir -p "$folder/$model"
    "$GRIDPROBE" score "${runs[@]}" --all --by family --by part | tee "$folder/$model/scores.txt"
    "$GRIDPROBE" report "${runs[@]}" --no-thumbnails -o "$folder/$model/report.html"
done
