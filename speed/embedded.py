"""How an embedded model copes with frames of other sizes and with fused pairs.

    python speed/embedded.py --model embedded --count 48

Each question is asked about 36 of its video's 144 frames: all that show evidence, up to 36, and others at equal
distances, so that every question can be answered. Rendered frames; chance is about a quarter.
"""

import argparse
import datetime
import time
from pathlib import Path

from gridprobe.importance import spread
from gridprobe.models import FrameGroup, Model, Packing, Request, View, choose, load_model
from gridprobe.video import FrameSize
from gridprobe_world.dataset import WorldItem, items, pool_of

SIDES = (64, 96, 128, 160, 224, 320, 448)
SHOWN = 36


def frames_of(item: WorldItem, times: tuple[float, ...]) -> list[int]:
    """Frames with evidence first, then frames at equal distances."""
    moments = [moment / item.duration for moment in times]
    evidence = [i for i, at in enumerate(moments) if any(a <= at < b for a, b in item.asked.evidence)]
    evidence = [evidence[i] for i in spread(len(evidence), min(len(evidence), SHOWN))]
    others = [i for i in range(len(times)) if i not in set(evidence)]
    return sorted(evidence + [others[i] for i in spread(len(others), SHOWN - len(evidence))])


def right(model: Model, item: WorldItem, side: int, packing: Packing) -> bool:
    pool, question = pool_of(item, size=side), item.asked.question
    shown = pool.take(frames_of(item, pool.times))
    group = FrameGroup(shown, View(FrameSize(max_side=side), packing))
    return choose(model, [Request.about(question, [group])])[0].choice == question.answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    model, chosen = load_model(given.model), items(given.count)
    lines = [
        f"`python speed/embedded.py --model {given.model} --count {given.count}`, {datetime.date.today()}",
        "",
    ]
    lines += ["| side, px | single frames | fused pairs | s a question |", "|---:|---:|---:|---:|"]
    for side in SIDES:
        start = time.perf_counter()
        hits = [sum(right(model, item, side, packing) for item in chosen) for packing in ("single", "pairs")]
        each = (time.perf_counter() - start) / (2 * len(chosen))
        lines.append(f"| {side} | {hits[0] / len(chosen):.3f} | {hits[1] / len(chosen):.3f} | {each:.2f} |")
        print(lines[-1], flush=True)
    if given.output:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
