#!/usr/bin/env bash
# Frame order, 400 questions of V2 (which ones is not published): time (26.25), importance (25.00).
source "$(dirname "$0")/common.sh"
evaluate order-time --limit 400 --model "$QWEN_2B"
evaluate order-importance --limit 400 --model "$QWEN_2B" --set show=importance
