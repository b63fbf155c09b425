"""Run a task of lmms-eval with gridprobe as its model, and with all frames small as the control.

Install it as docs/serving.md says, then: python examples/run_lmms_eval.py Qwen/Qwen3-VL-2B-Instruct videomme
"""

import subprocess
import sys

model, task = sys.argv[1:]
for selector in ("gridprobe", "all-small"):
    arguments = f"pretrained={model},preset=default,selector={selector},out={task}-{selector}.jsonl"
    command = [sys.executable, "-m", "lmms_eval", "--model", "gridprobe", "--model_args", arguments]
    command += ["--tasks", task, "--batch_size", "1", "--output_path", f"lmms-{selector}"]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True)
