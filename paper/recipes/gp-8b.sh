#!/usr/bin/env bash
# Table 1: GridProbe, 8B probes and answers (12.60, 28.06; 60.7).
source "$(dirname "$0")/common.sh"
evaluate gp-8b --model "$QWEN_8B"
