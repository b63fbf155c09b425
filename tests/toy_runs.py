"""A benchmark of picture folders and a model that answers from its prompt; importable by child processes.

What a question's text says happens: "dies" kills the process, "hangs" sleeps, "fails" raises a ModelError, "breaks"
something nobody foresaw. Every focused pass is noted in the file that GRIDPROBE_TOY_CALLS names.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from gridprobe.backends import ScoreRequest, Scripted
from gridprobe.benchmarks import Benchmark, Item
from gridprobe.errors import ModelError
from gridprobe.evaluation.trial import Models
from gridprobe.question import Question

CALLS = "GRIDPROBE_TOY_CALLS"
SLOW = "GRIDPROBE_TOY_SECONDS"
PICTURES = 4


def make_video(folder: Path, shade: int = 100) -> Path:
    folder.mkdir(parents=True)
    for number in range(PICTURES):
        pixels = np.full((64, 64, 3), (shade + 20 * number) % 256, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def toy_benchmark(
    folder: Path, *, videos: int = 3, questions: int = 2, words: Mapping[str, str] | None = None
) -> Benchmark:
    """`videos` × `questions` items v0-q0, v0-q1, …; `words` go into the text of single ones."""
    items = []
    for video in range(videos):
        path = folder / f"v{video}"
        if not path.exists():
            make_video(path, 10 * video)
        for number in range(questions):
            name = f"v{video}-q{number}"
            text = f"Is it <{name}>? {(words or {}).get(name, '')}"
            question = Question(text, ("yes", "no"), answer="AB"[number % 2], id=name)
            bins = {"length": "short" if video % 2 else "long", "kind": f"q{number}"}
            items.append(Item(name, question, path, f"v{video}", bins, duration=float(PICTURES)))
    return Benchmark("toy", f"toy-{len(items)}", tuple(items))


def _answer(request: ScoreRequest) -> Mapping[str, float]:
    prompt = request.prompt
    if "dies" in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hangs" in prompt:
        time.sleep(600)
    if "fails" in prompt:
        raise ModelError("the model was told to fail")
    if "breaks" in prompt:
        raise ZeroDivisionError("nobody foresaw this")
    if request.pixels.max_pixels:
        _note(prompt)
        time.sleep(float(os.environ.get(SLOW, "0")))
    light = 0.2 + float(request.frames.pixels.mean()) / 512
    return {"A": light, "B": 1 - light}


def _note(prompt: str) -> None:
    if CALLS in os.environ:
        with open(os.environ[CALLS], "a") as file:
            file.write(prompt.split("<")[1].split(">")[0] + "\n")


def calls() -> Counter[str]:
    """How often each question was put to a model for its answer."""
    file = Path(os.environ[CALLS])
    return Counter(file.read_text().split()) if file.exists() else Counter()


def model() -> Scripted:
    return Scripted(_answer, name="toy")


def load(place: int) -> Models:
    backend = model()
    return Models(backend, backend)
