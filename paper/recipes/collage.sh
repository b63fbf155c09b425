#!/usr/bin/env bash
# Collated variant, 1,800 questions of V2 (which ones is not published): all frames (23.10), kept frames as video (21.27), kept frames as one picture of 2048×2048 (20.11).
source "$(dirname "$0")/common.sh"
evaluate collage-all --limit 1800 --selector all --model "$QWEN_2B"
evaluate collage-frames --limit 1800 --model "$QWEN_2B"
evaluate collage --limit 1800 --model "$QWEN_2B" --set show=collage
