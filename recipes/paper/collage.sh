#!/usr/bin/env bash
# Ablation: the kept frames as one picture of 2048×2048 (400 questions).
source "$(dirname "$0")/../common.sh"
evaluate collage --limit 400 --model "$QWEN_2B" --set collage=true
