"""Whether the engine for all families answers as the one for Qwen3-VL does: the embedded model in both.

    python speed/engines_agree.py --count 200

Questions of gridworld's test split, as many of each part: standard, fine, crowded and unanswerable; preset gridworld,
frames rendered. Prints how often the choice, the way it was reached and the kept frames are the same, and the mean
compute of both as a share of all frames at full size.
"""

import argparse
from collections import Counter
from pathlib import Path

from gridprobe import Answer, Session, load_model
from gridprobe.models import Model
from gridprobe.models.qwen3vl.prompt import time_marker
from gridprobe.models.transformers.engine import load_engine
from gridprobe.options import Options
from gridprobe_eval.benchmarks import load_benchmark
from gridprobe_eval.benchmarks.base import Item
from gridprobe_world.dataset import open_rendered
from gridprobe_world.embedded import SHIPPED

PARTS = ("standard", "fine", "crowded", "unanswerable")
TIE = 1e-4
"""Frames whose importance differs by less may be exchanged."""


def answer_of(model: Model, item: Item, k: int) -> Answer:
    """The answer to a question as the first one about its video."""
    plan = Options.from_preset("gridworld", k=k).resolve(model=model)
    assert plan.sampling is not None
    with Session(open_rendered(item, plan.sampling), setup=plan, reuse=False) as session:
        return session.ask(item.question)


def same_frames(one: Answer, other: Answer) -> bool:
    """Whether the kept frames are the same, but for frames that are equally important."""
    mine, theirs, scores = set(one.selection.indices), set(other.selection.indices), one.selection.scores
    if mine == theirs or scores is None:
        return mine == theirs
    swapped = [scores[place] for place in mine ^ theirs]
    return len(mine) == len(theirs) and max(swapped) - min(swapped) < TIE


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="micro")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=41000)
    parser.add_argument("--k", type=int, default=12)
    arguments = parser.parse_args()
    own = load_model(f"embedded:{arguments.model}", device="cpu")
    folder = SHIPPED / arguments.model
    general = load_engine(arguments.model, folder, device="cpu", min_letter_mass=0.0, time=time_marker)
    counts: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    for part in PARTS:
        each = arguments.count // len(PARTS)
        benchmark = load_benchmark(
            "gridworld", data=Path("gridworld-videos"), part=part, first=arguments.first, count=each, source="rendered"
        )
        for item in benchmark.items:
            first, second = (answer_of(model, item, arguments.k) for model in (own, general))
            counts["questions"] += 1
            counts["same choice"] += first.choice == second.choice
            counts["same way"] += first.reached.by == second.reached.by
            counts["same frames"] += same_frames(first, second)
            for name, answer in (("Qwen3-VL", first), ("all families", second)):
                counts[f"right, {name}"] += answer.right is True
                shares[name] += answer.cost.total.share_of(answer.cost.baseline)  # type: ignore[assignment]
            print(part, dict(counts), flush=True)
    total = counts["questions"]
    print({name: f"{count} of {total}" for name, count in counts.items()})
    print({name: round(share / total, 4) for name, share in shares.items()})


if __name__ == "__main__":
    main()
