#!/usr/bin/env bash
# Table 1, control: as many uniform frames as 2B would keep, 8B answers (10.83, 26.22; 58.5).
source "$(dirname "$0")/common.sh"
evaluate uniform-2b-8b --selector uniform-like --model "$QWEN_2B" --answer-model "$QWEN_8B"
