#!/usr/bin/env bash
# Table 1: GridProbe, 2B probes and answers (8.39, 21.53; 57.3).
source "$(dirname "$0")/common.sh"
evaluate gp-2b --model "$QWEN_2B"
