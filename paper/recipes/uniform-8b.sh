#!/usr/bin/env bash
# LongVideoBench by duration: as many uniform frames as 8B would keep, 8B answers (59.3).
source "$(dirname "$0")/common.sh"
evaluate uniform-8b --selector uniform-like --model "$QWEN_8B"
