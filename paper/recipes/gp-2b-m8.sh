#!/usr/bin/env bash
# Tables 2 and 3: eight frames by GridProbe, 2B answers (7.49, 20.12; 54.6).
source "$(dirname "$0")/common.sh"
evaluate gp-2b-m8 --frames 8 --model "$QWEN_2B"
