#!/usr/bin/env bash
# Table 2: eight frames by MDP3 with SigLIP, 2B answers (7.38, 20.09; 51.0).
source "$(dirname "$0")/common.sh"
evaluate mdp3-2b-m8 --selector mdp3 --frames 8 --model "$QWEN_2B"
