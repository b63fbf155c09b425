# Shared by the recipes of the paper. Usage: paper/recipes/NAME.sh BENCHMARK DATA [options of gridprobe eval]
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 video-mme-v2|longvideobench DATA [options of gridprobe eval]" >&2; exit 2; }
benchmark=$1 data=$2
shift 2
more=("$@")

: "${GRIDPROBE:=gridprobe}" "${RUNS:=runs}"
: "${QWEN_2B:=Qwen/Qwen3-VL-2B-Instruct}" "${QWEN_4B:=Qwen/Qwen3-VL-4B-Instruct}" "${QWEN_8B:=Qwen/Qwen3-VL-8B-Instruct}"

# Video-MME-v2 without subtitles; LongVideoBench with the start of the subtitle track, on the 1202 questions the authors scored.
case $benchmark in
    longvideobench) as_published=(--subtitles paper --with paper_subset=true) ;;
    *) as_published=() ;;
esac

evaluate() { # NAME [options]: one row, in its own folder; the same command resumes it
    local name=$1
    shift
    "$GRIDPROBE" eval "$benchmark" --data "$data" --out "$RUNS/$benchmark/$name" --preset paper \
        ${as_published[@]+"${as_published[@]}"} "$@" ${more[@]+"${more[@]}"}
}
