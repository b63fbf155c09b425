#!/usr/bin/env bash
# Table 1: Qwen3-VL-2B, all 144 frames (V2 Non-Lin 9.45, accuracy 23.16; LVB overall 56.4).
source "$(dirname "$0")/common.sh"
evaluate all-2b --selector all --model "$QWEN_2B"
