#!/usr/bin/env bash
# Table 1: 2B probes, 4B answers (10.76, 25.22; 60.4).
source "$(dirname "$0")/common.sh"
evaluate gp-2b-4b --model "$QWEN_2B" --answer-model "$QWEN_4B"
