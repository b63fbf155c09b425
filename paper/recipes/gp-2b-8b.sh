#!/usr/bin/env bash
# Table 1: 2B probes, 8B answers (11.70, 26.72; 59.7).
source "$(dirname "$0")/common.sh"
evaluate gp-2b-8b --model "$QWEN_2B" --answer-model "$QWEN_8B"
