#!/usr/bin/env bash
# Other grid sizes K (400 questions).
source "$(dirname "$0")/../common.sh"
for k in 4 6 8 10 12 16; do
    evaluate "k-$k" --limit 400 --model "$QWEN_2B" --k "$k"
done
