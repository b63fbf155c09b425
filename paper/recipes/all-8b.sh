#!/usr/bin/env bash
# Table 1: Qwen3-VL-8B, all 144 frames (14.91, 30.94; 62.7).
source "$(dirname "$0")/common.sh"
evaluate all-8b --selector all --model "$QWEN_8B"
