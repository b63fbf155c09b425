"""The engine for Qwen3-VL and the one for all families, on the same embedded model: seconds of each stage.

    python speed/engines.py --model micro --rounds 5

Each stage is run by both engines in turn, so that a change of the machine's pace meets both; the best of the rounds
counts. The frames are of gridworld, rendered.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gridprobe.importance import Grid
from gridprobe.models import FrameGroup, Request, View, choose, load_model
from gridprobe.models.local.base import LocalModel
from gridprobe.models.transformers.engine import load_engine
from gridprobe.video import FrameSize
from gridprobe_world.dataset import items, pool_of
from gridprobe_world.embedded import SHIPPED, Embedded


def words(times: Sequence[float]) -> str:
    """The wording of times that Qwen3-VL was trained with."""
    return f"<{times[0]:.1f} seconds>" if times else ""


def stages(cells: int, count: int) -> dict[str, tuple[list[Request], list[Request]]]:
    """For each stage what is asked before it, and what is timed."""
    world = items(1)[0]
    pool, question = pool_of(world, cells=cells, size=64), world.asked.question
    large = pool_of(world, cells=cells, size=224)
    small_view, full_view = View(FrameSize(max_side=64)), View(FrameSize())
    overview = replace(Request.about(question, (FrameGroup(pool, small_view),)), keep_kv=True)
    others = [replace(overview, prompt=f"{overview.prompt} ") for _ in range(1)]
    many = [replace(overview, prompt=overview.prompt.replace("?", "?" * n)) for n in range(1, 17)]
    grid = Grid.holding(cells)
    probes = [Request.about(question, (FrameGroup(pool.take(line), small_view),)) for line in grid.probes()]
    seen = [replace(overview, visible_frames=(frame,)) for frame in range(12)]
    watched = replace(overview, visible_frames=tuple(range(cells)), attention=True)
    kept = list(range(0, cells, cells // count))[:count]
    rest = [frame for frame in range(cells) if frame not in kept]
    groups = (FrameGroup(large.take(kept), full_view), FrameGroup(pool.take(rest), small_view))
    return {
        "overview, first question": ([], [overview]),
        "a follow-up": ([overview], others),
        "16 follow-ups": ([overview], many),
        "the map": ([overview], [watched]),
        "12 frames by themselves": ([overview], seen),
        "24 fresh probes": ([], probes),
        f"focused pass, {count} large": ([overview], [Request.about(question, groups)]),
        "all frames at full size": ([], [Request.about(question, (FrameGroup(large, full_view),))]),
    }


def timed(
    model: LocalModel, before: list[Request], requests: list[Request], forget: Callable[[], None]
) -> tuple[float, float]:
    """CPU seconds of the requests, and a sum of what was answered."""
    forget()
    if before:
        choose(model, before)
    start = time.process_time()
    answers = choose(model, requests)
    return time.process_time() - start, float(np.sum([each.confidence for each in answers]))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="micro")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=144)
    arguments = parser.parse_args()
    embedded = load_model(f"embedded:{arguments.model}", device=arguments.device)
    assert isinstance(embedded, Embedded) and isinstance(embedded.engine, LocalModel)
    own_engine: LocalModel = embedded.engine
    folder = SHIPPED / arguments.model
    general = load_engine(arguments.model, folder, device=arguments.device, min_letter_mass=0.0, time=words)
    print("| stage | engine for Qwen3-VL, s | for all families, s | ratio | confidences |\n|---|---:|---:|---:|---|")
    for name, (before, requests) in stages(arguments.cells, 8).items():
        seconds: dict[str, list[float]] = {"own": [], "general": []}
        answers: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for key, model in (("own", own_engine), ("general", general)):
                took, answers[key] = timed(model, before, requests, model.kept.clear)
                seconds[key].append(took)
        own, other = min(seconds["own"]), min(seconds["general"])
        print(
            f"| {name} | {own:.3f} | {other:.3f} | {other / own:.2f} | {answers['own']:.4f} {answers['general']:.4f} |"
        )


if __name__ == "__main__":
    main()
