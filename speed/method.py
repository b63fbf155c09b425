"""What each way of answering gets right on gridworld, and at what compute: the tables of docs/method.md.

    python speed/method.py run --part fine --first 13000 --count 400 --out fine.jsonl    # a line per question and way
    python speed/method.py table fine.jsonl standard.jsonl                               # Markdown
    python speed/method.py confidence fine.jsonl --exit 0.46     # calibration, and exits that the whole way contradicts
    python speed/method.py check --model Qwen/Qwen3-VL-2B-Instruct --benchmark mlvu --data DIR --out qwen.jsonl

`check` is for those who have a released checkpoint and a benchmark: it asks 200 questions in every way that decides
whether our defaults suit the model (exit, context, fresh probes against attention) and prints the table and
what a calibration of the exit would find.

Compute is the honest convention as a share of one pass over all frames at native size, for a question asked by itself:
nothing is reused from earlier questions. Seconds are those of the question with everything decoded and nothing known
from other ways; they mean something only if the machine does nothing else. Intervals hold 95 % and come from a
bootstrap over videos, or are Wilson's where too few videos differ; a row's difference from "all native" is paired by
question.
"""

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.early_exit import choose_threshold
from gridprobe.importance import Fixed
from gridprobe.models import FrameGroup, Model, Request, load_model
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.selectors import Uniform
from gridprobe.video import FrameSize
from gridprobe_eval import Choice
from gridprobe_eval.benchmarks import Benchmark, Item, load_benchmark
from gridprobe_eval.statistics import difference_interval, expected_calibration_error, share_interval

PUBLISHED: dict[str, Any] = {"effort": "focus", "probes": "fresh", "frames": "shape", "context": "none"}
SMALL = {"small": FrameSize(max_side=96)}


@dataclass(frozen=True)
class Way:
    """One row of the table."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Options on top of the preset gridworld."""
    selector: str = "gridprobe"
    prober: str = ""
    """Another model for the overview and the map."""


WAYS = {
    "all native": Way(selector="all"),
    "all small": Way(selector="all-small"),
    "all small, 96 px": Way(SMALL, selector="all-small"),
    "published": Way({**PUBLISHED, **SMALL}),
    "published, 64 px": Way(PUBLISHED),
    "ours quick": Way({"effort": "quick"}),
    "ours auto": Way({"effort": "auto"}),
    "ours full": Way({"effort": "full"}),
    "without profile": Way({"effort": "auto", "profile": "off"}),
    "without profile, full": Way({"effort": "full", "profile": "off"}),
    "close-ups among": Way({"effort": "auto", "context": "small"}),
    "ours full, 2": Way({"effort": "full", "frames": 2}),
    "without profile, 8": Way({"effort": "full", "frames": 8, "profile": "off"}),
    "without profile, 2": Way({"effort": "full", "frames": 2, "profile": "off"}),
    "ours auto, refine": Way({"effort": "auto", "refine": True}),
    "nano probes for micro": Way({"effort": "auto", "exit_confidence": 0.99}, prober="embedded:nano"),
    # How to make the map and how many frames to keep: always the whole way, with all other frames as context.
    "map attention": Way({"effort": "full"}),
    "map attention, 4": Way({"effort": "full", "frames": 4}),
    "map attention, 8": Way({"effort": "full", "frames": 8}),
    "map attention, 16": Way({"effort": "full", "frames": 16}),
    "map fresh": Way({"effort": "full", "probes": "fresh"}),
    "map fresh, 8": Way({"effort": "full", "probes": "fresh", "frames": 8}),
    "map when, 8": Way({"effort": "full", "probes": "when", "frames": 8}),
    "uniform 8 + context": Way({"effort": "full", "context": "small", "frames": 8}, selector="uniform"),
    "shape rule + context": Way({"effort": "full", "probes": "fresh", "frames": "shape"}),
}
MAIN = ("all native", "all small", "published", "ours quick", "ours auto", "ours full")
CHECKS = (*MAIN, "map fresh", "shape rule + context")
WHOLE = ("ours full", "map attention")
"""The whole way with our defaults."""
EQUAL = "uniform, equal compute"
"""As many evenly spaced native frames as cost no more than "ours auto" did for the question."""


def main() -> None:
    """Run, or make a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one, three = verbs.add_parser("run"), verbs.add_parser("check")
    one.add_argument("--part", default="standard")
    one.add_argument("--split", default="test")
    one.add_argument("--first", type=int, default=0)
    one.add_argument("--source", default="rendered")
    for parser_ in (one, three):
        _add_common(parser_, checks=parser_ is three)
    one.set_defaults(do=_run, benchmark="gridworld", preset="gridworld")
    three.add_argument("--benchmark", required=True)
    three.add_argument("--preset", default="default")
    three.set_defaults(do=_check, source="mp4", part="", first=0, split="test")
    two = verbs.add_parser("table")
    two.add_argument("files", nargs="+", type=Path)
    two.add_argument("--by", choices=["part", "family", "k", "model"], default="part")
    two.add_argument("--exit", type=float, help='Add "ours auto" with this exit, from "ours quick" and "ours full".')
    two.set_defaults(do=_table)
    four = verbs.add_parser("confidence")
    four.add_argument("files", nargs="+", type=Path)
    four.add_argument("--exit", type=float, default=0.99)
    four.set_defaults(do=_confidence)
    given = parser.parse_args()
    given.do(given)


def _add_common(one: argparse.ArgumentParser, *, checks: bool) -> None:
    one.add_argument("--count", type=int, default=200 if checks else 40)
    one.add_argument("--data", type=Path, default=Path("gridworld-videos"))
    one.add_argument("--k", type=int, default=12)
    one.add_argument("--model", default="embedded:micro")
    one.add_argument("--device", default="auto")
    one.add_argument("--dtype", default="auto")
    one.add_argument("--sure", type=float, help="The exit's confidence; by default the calibrated one.")
    ways = CHECKS if checks else MAIN
    one.add_argument("--ways", nargs="+", default=list(ways), help=f"Of: {', '.join((*WAYS, EQUAL))}.")
    one.add_argument("--out", type=Path, required=True)


# Running


def _run(given: argparse.Namespace) -> None:
    options = {"device": given.device, "dtype": given.dtype}
    models = {
        name: load_model(name, **options)
        for name in {given.model, *(WAYS[w].prober for w in given.ways if w in WAYS)} - {""}
    }
    benchmark = _benchmark(given)
    setups = {name: _setup(WAYS[name], given, models) for name in given.ways if name != EQUAL}
    with given.out.open("w", encoding="utf-8") as stream:
        for done, line in enumerate(_lines(benchmark, setups, given, models), start=1):
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            if done % (10 * len(given.ways)) == 0:
                print(f"{given.part}: {done // len(given.ways)} of {given.count}", file=sys.stderr, flush=True)


def _benchmark(given: argparse.Namespace) -> Benchmark:
    if given.benchmark != "gridworld":
        found = load_benchmark(given.benchmark, data=given.data)
        return replace(found, items=Choice(limit=given.count).items(found))
    return load_benchmark(
        "gridworld",
        data=given.data,
        split=given.split,
        part=given.part or "all",
        first=given.first,
        count=given.count,
        source=given.source,
    )


def _check(given: argparse.Namespace) -> None:
    """Ask, print the table, and what a calibration would find."""
    _run(given)
    lines = list(read([given.out]))
    print(*_rows(lines), sep="\n")
    _print_calibrations(lines)


def _print_calibrations(lines: Sequence[dict[str, Any]]) -> None:
    full = [line for line in lines if line["way"] in WHOLE]
    for epsilon in (0.01, 0.02, 0.05):
        found = choose_threshold(
            [line["overview"][1] for line in full],
            [line["overview"][0] != line["choice"] for line in full],
            epsilon=epsilon,
            delta=0.05,
        )
        print(f"exit for at most {epsilon:.0%} mistaken exits, with 95 % confidence: {found}")


def _confidence(given: argparse.Namespace) -> None:
    """How far confidence can be trusted: calibration error, answers without a right option, and mistaken exits."""
    lines = list(read(given.files))
    lines += auto(lines, given.exit)
    for way in dict.fromkeys(line["way"] for line in lines):
        found = [line for line in lines if line["way"] == way]
        asked = [line for line in found if line["right"] is not None]
        error = expected_calibration_error([e["confidence"] for e in asked], [e["right"] for e in asked])
        without = [line["confidence"] for line in found if line["right"] is None]
        print(f"{way}: calibration error {error:.4f}")
        if without:
            print(f"  {len(without)} without a right option: mean {np.mean(without):.3f}, at most {max(without):.3f}")
    for part in dict.fromkeys(line["part"] for line in lines):
        full = [line for line in lines if line["way"] in WHOLE and line["part"] == part]
        exits = [line for line in full if line["overview"][1] >= given.exit]
        differ = sum(line["overview"][0] != line["choice"] for line in exits)
        print(f"{part}, exit {given.exit:g}: {differ} of {len(exits)} exits differ, of {len(full)} questions")
    _print_calibrations(lines)


def _setup(way: Way, given: argparse.Namespace, models: dict[str, Model]) -> Plan:
    changes = ({} if given.sure is None else {"exit_confidence": given.sure}) | way.changes
    if given.preset != "gridworld":  # frames of 96 pixels are for gridworld's own
        changes.pop("small", None)
    settings = Options.from_preset(given.preset, k=given.k, **changes)
    answerer = models[given.model]
    prober = models[way.prober] if way.prober else answerer
    return settings.resolve(model=prober, answer_model=answerer, selector=way.selector).loaded()


def _lines(
    benchmark: Benchmark, setups: dict[str, Plan], given: argparse.Namespace, models: dict[str, Model]
) -> Iterator[dict[str, Any]]:
    """One line per question and way. What a model keeps is dropped before each, so that each is the first question."""
    sampling = next(iter(setups.values())).sampling
    assert sampling is not None
    for item in benchmark.items:
        video = benchmark.open(item, sampling)
        ours: Answer | None = None
        for name in given.ways:
            setup = setups.get(name) or _equal(setups, ours, models[given.model], given.k)
            for model in models.values():
                _forget(model)
            with Session(video, setup=setup, reuse=False) as session:
                session.open()
                answer = session.ask(item.question)
            ours = answer if name == "ours auto" else ours
            yield _line(name, item, answer, given)


def _forget(model: Model) -> None:
    engine: Any = getattr(model, "engine", model)
    engine.kept.clear()


def _equal(setups: dict[str, Plan], ours: Answer | None, model: Model, k: int) -> Plan:
    """Uniform with the most native frames that cost no more than ours did."""
    if ours is None:
        raise SystemExit(f'put "ours auto" before "{EQUAL}" in --ways')
    base = setups["all native"] if "all native" in setups else next(iter(setups.values()))
    pool, question = ours.pool, ours.question
    native = replace(base, selector=Uniform(Fixed(1)), overview=None, effort="focus", context=None, refine=False)
    side = base.size_of(base.view, 144).fit(224, 224)

    def price(frames: int) -> float:
        shape = (frames, side[1], side[0], 3)
        blank = replace(pool, data=np.zeros(shape, np.uint8), times=pool.times[:frames])
        return model.cost(Request.about(question, (FrameGroup(blank, base.view),))).flops

    fits = _most(price, len(pool), ours.cost.total.flops)
    return replace(native, selector=Uniform(Fixed(fits)))


def _most(price: Callable[[int], float], top: int, limit: float) -> int:
    low, high = 1, top
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if price(middle) <= limit else (low, middle - 1)
    return low


def _line(name: str, item: Item, answer: Answer, given: argparse.Namespace) -> dict[str, Any]:
    reached, baseline = answer.reached, answer.cost.baseline.flops
    return {
        "way": name,
        "id": item.id,
        "video": item.group,
        "part": item.bins.get("part", given.benchmark),
        "family": item.bins.get("family", next(iter(item.bins.values()), "")),
        "k": given.k,
        "model": given.model,
        "source": given.source,
        "right": answer.right,
        "choice": answer.choice,
        "confidence": round(answer.confidence, 6),
        "by": reached.by,
        "overview": reached.overview and [reached.overview.choice, round(reached.overview.confidence, 6)],
        "native": answer.shown_native,
        "compute": answer.cost.total.flops / baseline,
        "computed": answer.cost.total.flops_computed / baseline,
        "tflops": answer.cost.tflops,
        "seconds": answer.seconds.total - answer.seconds.decode,
        "covered": _covered(item, answer),
        "threshold": reached.exit and reached.exit.threshold,
    }


def _covered(item: Item, answer: Answer) -> float | None:
    """The share of the evidence's intervals of which a kept frame shows something."""
    evidence = item.extra.get("evidence")
    if not evidence or answer.selection.evidence is None:
        return None
    times = answer.selection.timestamps
    return float(np.mean([any(start <= time < end for time in times) for start, end in evidence]))


# Tables


def read(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The lines of plain or gzipped files."""
    for file in files:
        data = file.read_bytes()
        text = gzip.decompress(data) if file.suffix == ".gz" else data
        yield from map(json.loads, text.decode().splitlines())


def auto(lines: Sequence[dict[str, Any]], threshold: float) -> list[dict[str, Any]]:
    """What effort=auto answers at another exit: the overview's answer if it is that sure, else the full one."""
    key = ("model", "k", "source", "id")
    quick = {tuple(line[name] for name in key): line for line in lines if line["way"] == "ours quick"}
    full = [line for line in lines if line["way"] == "ours full"]
    chosen = [quick[tuple(e[n] for n in key)] if e["overview"][1] >= threshold else e for e in full]
    return [{**line, "way": f"ours auto, exit {threshold:g}", "threshold": threshold} for line in chosen]


def _table(given: argparse.Namespace) -> None:
    lines = list(read(given.files))
    lines += auto(lines, given.exit) if given.exit is not None else []
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[str(line[given.by])].append(line)
    if len(groups) > 1:
        groups["all together"] = lines
    for name, members in groups.items():
        print(f"\n### {given.by} {name}\n" if name != "all together" else f"\n### {name}\n")
        print(*_rows(members), sep="\n")


HEADS = (
    "way",
    "questions",
    "right %",
    "against all native",
    "compute",
    "native frames",
    "from overview %",
    "evidence shown %",
    "seconds",
)


def _rows(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    ways: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        ways[line["way"]][f"{line['model']} {line['k']} {line['source']} {line['id']}"] = line
    base = ways.get("all native", {})
    yield f"| {' | '.join(HEADS)} |"
    yield f"|---{'|---:' * (len(HEADS) - 1)}|"
    for way, found in ways.items():
        yield f"| {' | '.join(_cells(way, found, base))} |"


def _cells(way: str, found: dict[str, dict[str, Any]], base: dict[str, dict[str, Any]]) -> Iterator[str]:
    lines = list(found.values())
    asked = [line for line in lines if line["right"] is not None]
    right = share_interval([line["right"] for line in asked], [line["video"] for line in asked]) if asked else None
    pairs = [(line, base[key]) for key, line in found.items() if key in base and line["right"] is not None]
    covered = [line["covered"] for line in lines if line["covered"] is not None]
    yield way
    yield str(len(asked))
    yield f"{100 * right.mean:.1f} ({100 * right.low:.1f} … {100 * right.high:.1f})" if right else "no right option"
    yield _difference(pairs) if way != "all native" and pairs else ""
    yield f"{np.mean([line['compute'] for line in lines]):.3f}"
    yield f"{np.mean([line['native'] for line in lines]):.1f}"
    yield f"{100 * np.mean([line['by'] == 'overview' for line in lines]):.0f}"
    yield f"{100 * np.mean(covered):.0f}" if covered else ""
    yield f"{np.mean([line['seconds'] for line in lines]):.2f}"


def _difference(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    gaps = [int(line["right"]) - int(other["right"]) for line, other in pairs]
    found = difference_interval(gaps, [line["video"] for line, _ in pairs])
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} … {100 * found.high:+.1f})"


if __name__ == "__main__":
    main()
