#!/usr/bin/env bash
# Table 1: GridProbe, 4B probes and answers (12.86, 28.28; 62.4).
source "$(dirname "$0")/common.sh"
evaluate gp-4b --model "$QWEN_4B"
