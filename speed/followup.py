"""What a question about gridworld costs in seconds on a CPU, as a share of reading all frames at native size.

    python speed/followup.py --count 48 --output followup.md          # 2 cores, embedded micro: about 6 minutes

Questions of the standard part, frames rendered and not decoded. Each question is asked three ways, one after another in
turn, so that a change of the machine's pace meets all of them: of all frames at native size in one pass (the selector
"all"); by itself, with the settings of `--preset`; and as a follow-up, after another question about the same video.
The first two begin with nothing kept. Seconds are those of `Session.ask`; the ratios divide means over the same
questions. All ways run in the same engine, which takes about 0.8 of the time of plain transformers for all frames
(speed/results/engine.md).
"""

import argparse
import datetime
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from engine import noise_info

from gridprobe import Answer, Session, load_model
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.video import FramePool
from gridprobe_world.dataset import WorldItem, items, pool_of
from gridprobe_world.embedded import Embedded

SIDE = 224
TARGETS = {"mean question": 0.25, "follow-up, settled by the overview": 0.05}
WAYS = ("all", "alone", "later")


@dataclass(frozen=True)
class Asked:
    """One question, one way."""

    seconds: float
    by: str
    """The pass the answer was read from."""
    right: bool


@dataclass(frozen=True)
class Bench:
    """The model and both setups."""

    engine: Qwen3VL
    everything: Plan
    ours: Plan

    @classmethod
    def make(cls, name: str, *, preset: str, k: int) -> "Bench":
        model = load_model(name, device="cpu")
        engine = model.engine if isinstance(model, Embedded) else model
        assert isinstance(engine, Qwen3VL)
        settings = Options.from_preset(preset, k=k)
        make = partial(settings.resolve, model=model)
        return cls(engine, make(selector="all").loaded(), make().loaded())

    def ask(self, way: str, frames: FramePool, items: Sequence[WorldItem]) -> Asked:
        """The first of the items; for a follow-up, after the last one."""
        self.engine.kept.clear()
        item, setup = items[0], self.everything if way == "all" else self.ours
        session = Session(frames, setup=setup, reuse=way == "later")
        if way == "later":
            session.ask(items[-1].asked.question)
        answer, seconds = timed(partial(session.ask, item.asked.question))
        return Asked(seconds, answer.reached.by, answer.choice == item.asked.question.answer)


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    start = time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - start


def measure(bench: Bench, chosen: Sequence[WorldItem], *, k: int) -> list[dict[str, Asked]]:
    """Every question in every way; each way is the first in its turn."""
    found: list[dict[str, Asked]] = []
    for _, some in groupby(chosen, key=lambda item: item.seed):
        mine = list(some)
        frames = replace(pool_of(mine[0], cells=k * k, size=SIDE), info=noise_info(SIDE, SIDE))
        if not found:
            for way in WAYS:  # a warm-up
                bench.ask(way, frames, mine)
        for place, item in enumerate(mine):
            turn = len(found) % len(WAYS)
            order = WAYS[turn:] + WAYS[:turn]
            asked = {way: bench.ask(way, frames, [item, *mine[place + 1 :], *mine[:place]]) for way in order}
            found.append(asked)
            print(item.id, *(f"{way} {asked[way].seconds:.3f} s ({asked[way].by})" for way in WAYS), flush=True)
    return found


def table(found: Sequence[dict[str, Asked]]) -> str:
    """Markdown: seconds, ratios, targets, and how many answers were right."""
    settled = [asked for asked in found if asked["later"].by == "overview"]
    rows = [
        ("mean question", "alone", found),
        ("alone, settled by the overview", "alone", [asked for asked in found if asked["alone"].by == "overview"]),
        ("alone, focused pass", "alone", [asked for asked in found if asked["alone"].by != "overview"]),
        ("mean follow-up", "later", found),
        ("follow-up, settled by the overview", "later", settled),
    ]
    lines = [
        "| way | questions | s | all native, s | ratio | target | right | all native, right |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, way, some in rows:
        if not some:
            lines.append(f"| {name} | 0 | | | | | | |")
            continue
        mine, native = (statistics.mean(asked[each].seconds for asked in some) for each in (way, "all"))
        target = f"≤ {TARGETS[name]:.2f}" if name in TARGETS else ""
        right = " | ".join(f"{statistics.mean(asked[each].right for asked in some):.3f}" for each in (way, "all"))
        lines.append(f"| {name} | {len(some)} | {mine:.3f} | {native:.3f} | {mine / native:.3f} | {target} | {right} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="gridworld")
    parser.add_argument("--count", type=int, default=48, help="questions, four about each video")
    parser.add_argument("--k", type=int, default=12, help="side of the grid")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.cores)
    bench = Bench.make(given.model, preset=given.preset, k=given.k)
    sure = bench.ours.exit and f"{bench.ours.exit.threshold} ({bench.ours.exit.source})"
    text = f"`python speed/followup.py {shlex.join(sys.argv[1:])}`, {datetime.date.today()}, {given.cores} CPU cores, "
    text += f"torch {torch.__version__}; the overview settles a question at {sure}\n\n"
    text += table(measure(bench, items(given.count), k=given.k)) + "\n"
    print(text)
    if given.output:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
