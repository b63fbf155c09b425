"""Does the profile notice what is wrong with a model, and what does the method lose by it?

    python speed/faults.py --count 20                # questions of each part; some minutes for each fault
    python speed/faults.py --faults 100-heads likes-A --parts fine

Each fault is put around an embedded model (tests/hostile.py). The model is profiled; then fresh questions of gridworld
are asked with the profile, without it, and with all frames at full size. The preset is the default one, so that the
profile also decides how small the small frames are. Compute is the share of all frames at full size.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gridprobe.ask import Session
from gridprobe.models import Model, load_model
from gridprobe.models.profile import Profile
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe_eval.benchmarks import Benchmark, Item, load_benchmark
from gridprobe_world.profiling import Profiler

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from hostile import DilutedModel, ForgetfulModel, LetterModel, ShortSightedModel, TemperedModel

FAULTS: dict[str, Callable[[Model], Model]] = {
    "none": lambda model: model,
    "100-heads": lambda model: DilutedModel(model, extra=100),
    "400-heads": lambda model: DilutedModel(model, extra=400),
    "too-sure": lambda model: TemperedModel(model, 0.3),
    "unsure": lambda model: TemperedModel(model, 3.0),
    "likes-A": lambda model: LetterModel(model),
    "blind-below-160": lambda model: ShortSightedModel(model, side=160),
    "forgets-middle": lambda model: ForgetfulModel(model, beyond=48),
}
WAYS = ("with profile", "without", "all frames")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:micro")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--parts", nargs="+", default=["standard", "fine"])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=81000)
    options = parser.parse_args()
    items = [each for part in options.parts for each in _items(part, options.first, options.count)]
    model = load_model(options.model)
    print(f"{len(items)} questions, {', '.join(options.parts)}; right in % (compute)")
    print("| fault | profile | with profile | without | all frames |")
    print("|---|---|---:|---:|---:|")
    for name in options.faults:
        faulty = FAULTS[name](model)
        profile = Profiler(faulty, "world").measure()
        cells = [_asked(plan, items) for plan in _plans(faulty, profile)]
        print(f"| {name} | {profile} | {' | '.join(cells)} |", flush=True)


def _items(part: str, first: int, count: int) -> Sequence[tuple[Benchmark, Item]]:
    """The questions of a part that have an answer, each with the benchmark that opens its video."""
    made = load_benchmark("gridworld", Path("gridworld-videos"), count=count, first=first, part=part, source="rendered")
    return [(made, item) for item in made.items if item.question.answer is not None]


def _plans(model: Model, profile: Profile) -> list[Plan]:
    """One for each way."""
    ours = Options.from_preset("default", profile="off")
    plan = ours.resolve(model=model)
    every = ours.resolve(model=model, selector="all")
    profiled = replace(plan.suiting(profile), exit=None)
    return [profiled.loaded(), plan.loaded(), every.loaded()]


def _asked(plan: Plan, items: Sequence[tuple[Benchmark, Item]]) -> str:
    right, share = 0, 0.0
    assert plan.sampling is not None
    for bench, item in items:
        with Session(bench.open(item, plan.sampling), setup=plan) as session:
            answer = session.ask(item.question)
        right += answer.right is True
        share += answer.cost.total.share_of(answer.cost.baseline)
    return f"{100 * right / len(items):.1f} ({share / len(items):.2f})"


if __name__ == "__main__":
    main()
