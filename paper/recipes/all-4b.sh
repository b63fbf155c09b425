#!/usr/bin/env bash
# Table 1: Qwen3-VL-4B, all 144 frames (14.11, 30.06; 64.1).
source "$(dirname "$0")/common.sh"
evaluate all-4b --selector all --model "$QWEN_4B"
