"""What a question costs that begins with an overview, against plain transformers over all frames, in one run.

    python speed/overview.py --sizes 2B 8B --out overview                                # on a GPU, at most 150 s
    python speed/overview.py --model embedded:nano --k 3 --kept 2 --rounds 1 --out tiny  # on a CPU, a few seconds

Models, frames and questions are those of speed/engine.py: Qwen3-VL's shapes with random weights, 144 frames of noise,
1152×640 as decoded and 224×128 where small, questions of 200 tokens; nothing is decoded. The rival is one pass of plain
transformers over all frames at native size, fused in pairs. "Settled" is a first question that the overview answers:
vision, prefill and question. "Next" is another one about the same frames. "Full" is an overview, a
map, and a focused pass over 12 frames at native size among all others small, as a first question; its map is made from
the attention of the overview, from probes of its memory, or from fresh probes. Times are medians of `--rounds` after
one warm-up and end when the posterior is on the host. Memory is the peak above the weights, with everything that is
kept for later questions.
"""

import argparse
import datetime
import gc
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
import transformers
from engine import TEXT, Case, cases, measured, pools

from gridprobe.importance import Fixed
from gridprobe.models import FrameGroup, Packing, Posterior, Request, View, choose
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.question import Question
from gridprobe.selectors.base import Probes
from gridprobe.selectors.gridprobe import GridProbe, overview_request
from gridprobe.video import FramePool, FrameSize

RIVAL = "all frames, plain transformers, pairs"
SETTLED, NEXT, FULL = "settled by the overview", "next question, settled", "full, map from attention"
TARGETS = {SETTLED: 0.06, NEXT: 0.02, FULL: 0.22}
MEMORY_TARGET = 0.25
OPTIONS = ("one", "two", "three", "four")


@dataclass(frozen=True)
class Measured:
    """A way to ask, and what it took."""

    model: str
    way: str
    packing: str
    seconds: float
    peak_gib: float
    ratio: float = 1.0
    """Its seconds ÷ those of the rival."""
    memory_ratio: float | None = 1.0
    """Its peak ÷ that of the rival; None on a CPU."""
    target: float | None = None
    memory_target: float | None = None

    def against(self, rival: "Measured") -> "Measured":
        memory = self.peak_gib / rival.peak_gib if rival.peak_gib else None
        target = TARGETS.get(self.way)
        wanted = None if target is None else MEMORY_TARGET
        ratio = self.seconds / rival.seconds
        return replace(self, ratio=ratio, memory_ratio=memory, target=target, memory_target=wanted)


def question_of(case: Case, seed: int) -> Question:
    """As long as the questions of speed/engine.py."""
    text = word = str(seed)
    while len(case.tokenizer.encode(Question(text, OPTIONS).prompt)) < case.prompt:
        text += f" {word}"
    return Question(text, OPTIONS)


@dataclass(frozen=True)
class Asker:
    """Our engine about one video."""

    engine: Qwen3VL
    small: FramePool
    large: FramePool
    probe: View
    native: View
    kept: int

    def overview(self, question: Question) -> Posterior:
        request = overview_request(self.small, question, self.probe, keep_kv=True)
        return choose(self.engine, [request])[0]

    def full(self, question: Question, probes: Probes) -> Posterior:
        """Overview, map, and the focused pass."""
        first = self.overview(question)
        selector = GridProbe(self.engine, Fixed(self.kept), small_view=self.probe, probes=probes, keep_kv=True)
        chosen = selector.with_overview(first).select(self.small, question).indices
        others = sorted(set(range(len(self.small))) - set(chosen))
        groups = [FrameGroup(self.large.take(chosen), self.native), FrameGroup(self.small.take(others), self.probe)]
        return choose(self.engine, [Request.about(question, groups)])[0]


Work = Callable[[], Any]


def ways(asker: Asker, case: Case) -> Iterator[tuple[str, Work, Work]]:
    """A name, what is measured, and what is done before it."""
    first, later = (question_of(case, seed) for seed in (1, 2))
    forget = asker.engine.kept.clear

    def remember() -> None:
        forget()
        asker.overview(first)

    yield SETTLED, lambda: asker.overview(first), forget
    yield NEXT, lambda: asker.overview(later), remember
    yield FULL, lambda: asker.full(first, "attention"), forget
    yield "full, map from fresh probes", lambda: asker.full(first, "fresh"), forget


def measure(case: Case, *, k: int, kept: int, rounds: int) -> Iterator[Measured]:
    """The rival, and ours with both packings."""
    gc.collect()  # the model before
    weights = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    case = replace(case, probe=FrameSize(max_side=case.probe.square or case.probe.max_side))
    small, large = pools(case, k=k)

    def run(way: str, packing: str, work: Work, before: Work = lambda: None) -> Measured:
        seconds, peak = measured(work, rounds, before, above=weights)
        print(f"{case.name}, {way}, {packing}: {seconds:.4f} s", file=sys.stderr, flush=True)
        return Measured(case.name, way, packing, seconds, peak)

    plain = case.engine(plain=True)
    everything = Request.about(question_of(case, 1), [FrameGroup(large, View(case.native, "pairs"))])
    rival = run(RIVAL, "pairs", lambda: choose(plain, [everything]))
    yield replace(rival, memory_ratio=1.0 if rival.peak_gib else None)
    ours = case.engine(plain=False)
    for packing in get_args(Packing):
        asker = Asker(ours, small, large, View(case.probe, packing), View(case.native, packing), kept)
        for way, work, before in ways(asker, case):
            yield run(way, packing, work, before).against(rival)


def table(found: list[Measured]) -> str:
    """Markdown: each ratio with its seconds, and its target."""
    lines = [
        f"## {found[0].model}",
        "",
        "| way | packing | s | × rival | target | peak GiB | × rival | target |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        memory = "–" if each.memory_ratio is None else f"{each.memory_ratio:.3f}"
        numbers = f"{each.seconds:.4f} | {each.ratio:.4f} | {_target(each.target)} | {each.peak_gib:.2f} | {memory}"
        lines.append(f"| {each.way} | {each.packing} | {numbers} | {_target(each.memory_target)} |")
    return "\n".join(lines)


def _target(value: float | None) -> str:
    return "" if value is None else f"≤ {value:.2f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=[], choices=list(TEXT))
    parser.add_argument("--model", help="a checkpoint; its frames are 224 px, and 96 px where small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="auto", help="of --model")
    parser.add_argument("--k", type=int, default=12, help="side of the grid")
    parser.add_argument("--kept", type=int, default=12, help="frames at native size in the focused pass")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True, help="folder for overview.md and overview.jsonl")
    return parser.parse_args()


def main() -> None:
    given, start = arguments(), time.perf_counter()
    machine = torch.cuda.get_device_name() if given.device != "cpu" else f"{torch.get_num_threads()} CPU cores"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    text = [f"`python speed/overview.py {shlex.join(sys.argv[1:])}`, {datetime.date.today()}, {machine}, {versions}"]
    text.append(" ".join((__doc__ or "").split("\n\n")[2].split()))
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "overview.jsonl").open("w", encoding="utf-8") as records:
        for case in cases(given):
            found = []
            for each in measure(case, k=given.k, kept=given.kept, rounds=given.rounds):
                found.append(each)
                records.write(json.dumps({"machine": machine, **asdict(each)}, ensure_ascii=False) + "\n")
                records.flush()
            text.append(table(found))
            print(text[-1], flush=True)
            del case
    text.append(f"The run took {time.perf_counter() - start:.0f} s, models made included.")
    print(text[-1])
    (given.out / "overview.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
