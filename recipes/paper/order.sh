#!/usr/bin/env bash
# Ablation: the kept frames in time order, and in order of importance (400 questions).
source "$(dirname "$0")/../common.sh"
evaluate order-time --limit 400 --model "$QWEN_2B"
evaluate order-importance --limit 400 --model "$QWEN_2B" --set order=importance
