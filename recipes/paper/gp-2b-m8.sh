#!/usr/bin/env bash
# 2B, eight frames by GridProbe (7.49, 20.12; 54.6). The paper compares it with MDP3, which is not in gridprobe yet.
source "$(dirname "$0")/../common.sh"
evaluate gp-2b-m8 --frames 8 --model "$QWEN_2B"
