#!/usr/bin/env bash
# Figure 1b: compute of all frames and of GridProbe at K = 6 … 32, 2B (400 questions; the paper does not say how many).
source "$(dirname "$0")/common.sh"
for k in 6 8 12 16 24 32; do
    evaluate "k-$k-all" --limit 400 --selector all --model "$QWEN_2B" --k "$k"
    evaluate "k-$k" --limit 400 --model "$QWEN_2B" --k "$k"
done
