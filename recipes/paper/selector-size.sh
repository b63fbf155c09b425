#!/usr/bin/env bash
# Ablation: 2B answers; 2B, 4B or 8B probes (400 questions, drawn evenly; the authors did not publish which ones they drew).
source "$(dirname "$0")/../common.sh"
for probe in "$QWEN_2B" "$QWEN_4B" "$QWEN_8B"; do
    evaluate "selector-$(basename "$probe")" --limit 400 --model "$probe" --answer-model "$QWEN_2B"
done
