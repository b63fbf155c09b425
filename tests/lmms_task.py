"""A local lmms-eval task about videos of gridworld, and the prompts it shows: those of `gridprobe eval`."""

import json
from pathlib import Path

from gridprobe.video import SampleSpec
from gridprobe_eval.benchmarks import Benchmark

UTILS = """
def to_visual(doc):
    return [doc["video"]]


def to_text(doc, lmms_eval_specific_kwargs=None):
    return doc["prompt"]


def to_messages(doc, lmms_eval_specific_kwargs=None):
    video = {"type": "video", "url": doc["video"]}
    return [{"role": "user", "content": [video, {"type": "text", "text": doc["prompt"]}]}]


def results(doc, results):
    return {"right": float(results[0].strip()[:1] == doc["answer"])}
"""
TASK = """
dataset_path: json
dataset_kwargs:
  data_files: {{"test": "{rows}"}}
task: gridprobe_gridworld
test_split: test
output_type: generate_until
doc_to_visual: !function utils.to_visual
doc_to_text: !function utils.to_text
doc_to_messages: !function utils.to_messages
doc_to_target: answer
generation_kwargs:
  max_new_tokens: 4
process_results: !function utils.results
metric_list:
  - metric: right
    aggregation: mean
    higher_is_better: true
"""


def write_task(folder: Path, benchmark: Benchmark, *, prompt: str | None = None) -> Path:
    """The folder for --include_path; `prompt` replaces that of every question."""
    folder.mkdir(parents=True)
    rows = [
        {
            "id": item.id,
            "video": str(benchmark.open(item, SampleSpec(144))),
            "prompt": prompt or item.question.prompt,
            "answer": item.question.answer,
        }
        for item in benchmark.items
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "utils.py").write_text(UTILS)
    (folder / "gridprobe_gridworld.yaml").write_text(TASK.format(rows=folder / "rows.jsonl"))
    return folder
