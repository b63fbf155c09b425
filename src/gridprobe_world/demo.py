"""The content of `gridprobe demo`: two gridworld videos, six kinds of question, each answered in four ways."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.models import Model
from gridprobe.models.wrappers import CachedModel
from gridprobe.options import PRESETS
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.selectors import All, AllSmall
from gridprobe.video import FrameSize
from gridprobe_world.dataset import script
from gridprobe_world.questions import ask_about, ask_part
from gridprobe_world.render import write_script
from gridprobe_world.world import COLOURS, SHAPES, TEST_SEEDS, Worlds, generate

SEED = TEST_SEEDS[1]
"""Not picked by hand: the first script of the test split that suits every kind of question and has a needle on screen
for less than 2% of the video. No model was trained on it."""
FINE_SEED, FINE = TEST_SEEDS[0], "pattern"
"""Not picked by hand either: the first script of the fine part, and its first family of questions."""
SECONDS, FINE_SECONDS, SIDE = 600, 120, 224
"""Lengths of the videos, and the side of their frames in pixels."""
FINE_K = 8
"""The side of the grid for the shorter video: a frame every two seconds is enough, and saves half of the time."""
VIDEO, FINE_VIDEO = "gridworld.mp4", "fine.mp4"
KINDS = ("needle", "redundant", "negation", "order", "holistic")
PRESET = "gridworld"
PUBLISHED = PRESETS[PRESET].changed(
    effort="focus", probes="fresh", frames="shape", context="none", small=FrameSize(max_side=96)
)
"""The published method, with probes in which the embedded model can read."""
WAYS = {
    "ours": "GridProbe",
    "published": "the published method",
    "small": "all frames, small",
    "native": "all frames at full size",
}
"""The fields of `DemoRow` that hold an answer, and what they are."""


@dataclass(frozen=True)
class DemoRow:
    """One question, answered in four ways."""

    kind: str
    ours: Answer
    published: Answer
    small: Answer
    """From all frames at the size of our overview, in one pass."""
    native: Answer
    """From all frames at full size, in one pass."""


def world(seed: int = SEED) -> Worlds:
    """The script of the first video."""
    return generate(np.random.default_rng(seed), 1)


def questions(seed: int = SEED) -> dict[str, Question]:
    """Kind -> question about the first video; kinds that do not suit the script are left out."""
    made = world(seed)
    items = {kind: ask_about(made, 0, kind, random.Random(f"{seed}:{kind}:0")) for kind in KINDS}
    return {kind: each.question for kind, each in items.items() if each}


def fine_question() -> Question:
    """The question about the second video: marks that can be found in a small frame, but not read."""
    return ask_part(script(FINE_SEED, "fine"), 0, FINE, random.Random(f"{FINE_SEED}:{FINE}:0")).question


def write(path: Path) -> None:
    """Make the first video."""
    write_script(world(), path, duration=SECONDS, size=SIDE)


def write_both(folder: Path) -> None:
    """Make both videos in a folder."""
    write(folder / VIDEO)
    write_script(script(FINE_SEED, "fine"), folder / FINE_VIDEO, duration=FINE_SECONDS, size=SIDE)


LIBRARY, LIBRARY_SECONDS = 8, (60, 90, 120, 150, 180)
"""How many videos `gridprobe demo --library` makes, and their lengths in turn."""


def write_library(folder: Path, count: int = LIBRARY) -> dict[str, int]:
    """Make a folder of short videos to find things in; gives how often each thing comes and goes in it."""
    things: Counter[str] = Counter()
    for number in range(count):
        made = world(TEST_SEEDS[number])
        path = folder / f"gridworld-{number + 1:02d}.mp4"
        if not path.exists():
            partial = path.with_name(f".{path.name}")  # hidden from `find`, should this be interrupted
            write_script(made, partial, duration=LIBRARY_SECONDS[number % len(LIBRARY_SECONDS)], size=SIDE)
            partial.replace(path)
        for j, times in enumerate(made.occurrences()[0].tolist()):
            things[f"{list(COLOURS)[made.colour[0, j]]} {SHAPES[made.shape[0, j]]}"] += times
        report("videos", number + 1, count)
    return dict(things)


def compare(folder: Path, model: Model) -> Iterator[DemoRow]:
    """Ask every question in the four ways; frames are decoded once, and no request is sent twice."""
    memo = CachedModel(model)
    by_video = {(VIDEO, PRESETS[PRESET].k): questions(), (FINE_VIDEO, FINE_K): {"fine": fine_question()}}
    total, done = sum(map(len, by_video.values())), 0
    for (video, k), kinds in by_video.items():
        ways = _ways(memo, k)
        footage = ways["ours"].open(folder / video)
        sessions = {name: Session(footage, setup=setup) for name, setup in ways.items()}
        for kind, question in kinds.items():
            report("questions", done, total)
            yield DemoRow(kind, **{name: each.ask(question, show_map=True) for name, each in sessions.items()})
            done += 1
    report("questions", total, total)


def _ways(model: Model, k: int) -> dict[str, Plan]:
    settings = PRESETS[PRESET].changed(k=k)
    return {
        "ours": settings.resolve(model=model),
        "published": PUBLISHED.changed(k=k).resolve(model=model),
        "small": settings.resolve(model=model, selector=AllSmall(settings.small_view)),
        "native": settings.resolve(model=model, selector=All()),
    }
