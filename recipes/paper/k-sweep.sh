#!/usr/bin/env bash
# Figure 1b: grid sizes K. The published chain limits the sum of native tokens; ours does not yet, so 24 and 32 cost more.
source "$(dirname "$0")/../common.sh"
for k in 6 8 12 16 24 32; do
    evaluate "k-$k" --limit 400 --model "$QWEN_2B" --k "$k"
done
