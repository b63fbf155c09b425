"""Ask one question about every video of a folder and write a table.

python examples/ask_folder.py VIDEOS "Which city comes first?" Oslo Rome --model Qwen/Qwen3-VL-2B-Instruct > answers.csv
"""

import argparse
import csv
import sys
from pathlib import Path

import gridprobe as gp

SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".mpg", ".mpeg", ".flv", ".wmv", ".ogv", ".gif"}
)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("question")
parser.add_argument("options", nargs="*")
parser.add_argument("--model", default="embedded")
parser.add_argument("--preset", default="default")
given = parser.parse_args()

table = csv.writer(sys.stdout)
table.writerow(["video", "answer", "confidence", "seen at (s)", "error"])
model, question = gp.load_model(given.model), gp.Question(given.question, options=given.options)
for video in sorted(each for each in given.folder.iterdir() if each.suffix.lower() in SUFFIXES):
    try:
        answer = gp.ask(video, question, model=model, preset=given.preset, show_map=True)
        times = " ".join(f"{time:.1f}" for time in answer.selection.timestamps)
        table.writerow([video.name, answer.text, f"{answer.confidence:.3f}", times, ""])
    except gp.GridProbeError as error:  # a damaged video: note it and go on
        table.writerow([video.name, "", "", "", error])
