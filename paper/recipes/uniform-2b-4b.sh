#!/usr/bin/env bash
# LongVideoBench by duration: as many uniform frames as 2B would keep, 4B answers (58.8).
source "$(dirname "$0")/common.sh"
evaluate uniform-2b-4b --selector uniform-like --model "$QWEN_2B" --answer-model "$QWEN_4B"
