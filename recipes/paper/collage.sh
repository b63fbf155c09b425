#!/usr/bin/env bash
# Table 4: the kept frames as one picture of 2048×2048 (1,800 questions; which ones is not published).
source "$(dirname "$0")/../common.sh"
evaluate collage --limit 1800 --model "$QWEN_2B" --set collage=true
