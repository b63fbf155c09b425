#!/usr/bin/env bash
# Selector size, 400 questions of V2 (which ones is not published), 2B answers: 2B probes (26.25), 4B (26.00), 8B (24.75).
source "$(dirname "$0")/common.sh"
evaluate selector-2b --limit 400 --model "$QWEN_2B"
evaluate selector-4b --limit 400 --model "$QWEN_4B" --answer-model "$QWEN_2B"
evaluate selector-8b --limit 400 --model "$QWEN_8B" --answer-model "$QWEN_2B"
