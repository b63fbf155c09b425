"""Many questions about one video: asked together, one by one, and as separate questions.

    python speed/many.py --out many.json                                    # 2 cores, embedded micro: about a minute
    python speed/many.py --device cuda --sizes 2B --out many-gpu.json       # random weights, needs no PyAV

On a CPU: `--count` questions about a gridworld video of ten minutes, an H.264 file, with the preset gridworld.
"Separate" is one `ask` for each, which begins with nothing: the file is opened, decoded and encoded for each question.
"Session" asks one after another, "together" is `Session.ask_all`. No way uses the frame cache on disk. Seconds and
processor seconds of this process; the model is loaded before, and every way is run with two questions before it is
measured.

On a GPU: Qwen3-VL's shapes with random weights, 144 frames of noise of 224×128, questions of 200 tokens, the overview
kept from before. "Engine" is one call of the engine with so many overview requests; "session" is `Session.ask_all` with
effort=quick. Medians of `--rounds`.
"""

import argparse
import datetime
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from engine import TEXT, Case, cases, measured, pools
from overview import question_of

from gridprobe import Answer, Session, ask, load_model
from gridprobe.models import View, choose
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.question import Question
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import FrameSize, VideoLimits
from gridprobe_world.dataset import WorldItem, items, world_of
from gridprobe_world.embedded import Embedded

MINUTES = 10.0
TARGET, ANSWERS_A_SECOND = 0.25, 20.0
COUNTS = (1, 8, 32)


@dataclass(frozen=True)
class Way:
    """A way to ask all questions, and what it took."""

    name: str
    seconds: float
    cpu_seconds: float
    right: int
    overview: int
    """How many questions the overview settled."""


def video_of(asked: WorldItem, folder: Path, *, minutes: float) -> Path:
    """The item's video as a file."""
    from gridprobe_world.render import write_script  # needs PyAV

    path = folder / "gridworld.mp4"
    write_script(world_of(asked), path, duration=60.0 * minutes)
    return path


def ways(engine: Qwen3VL, model: Any, video: Path, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A name, and a function from questions to answers."""

    def separate(questions: Sequence[Question]) -> list[Answer]:
        answers = []
        for question in questions:
            engine.kept.clear()
            answers.append(ask(video, question, model=model, **options))
        return answers

    def one_by_one(questions: Sequence[Question]) -> list[Answer]:
        with Session(video, model=model, **options) as session:
            return [session.ask(question) for question in questions]

    def together(questions: Sequence[Question]) -> list[Answer]:
        with Session(video, model=model, **options) as session:
            return session.ask_all(questions)

    yield "separate", separate
    yield "session", one_by_one
    yield "together", together


def on_cpu(given: argparse.Namespace) -> list[Way]:
    """All ways, one after another."""
    torch.set_num_threads(given.cores)
    model = load_model(given.model, device="cpu")
    engine = model.engine if isinstance(model, Embedded) else model
    assert isinstance(engine, Qwen3VL)
    chosen = items(given.count, per_video=given.count, first=given.first * given.count)
    questions = [item.asked.question for item in chosen]
    options = {"k": given.k, "preset": "gridworld", "limits": VideoLimits(cache=0)}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        video = video_of(chosen[0], Path(folder), minutes=given.minutes)
        for name, way in ways(engine, model, video, options):
            way(questions[:2])
            engine.kept.clear()
            start, cpu = time.perf_counter(), time.process_time()
            answers = way(questions)
            seconds, used = time.perf_counter() - start, time.process_time() - cpu
            right = sum(answer.right is True for answer in answers)
            settled = sum(answer.reached.by == "overview" for answer in answers)
            found.append(Way(name, seconds, used, right, settled))
            print(f"{name}: {seconds:.2f} s", file=sys.stderr, flush=True)
    return found


def cpu_table(found: Sequence[Way], count: int) -> str:
    """Markdown: seconds, and ratios to separate questions and to one after another."""
    by = {way.name: way for way in found}
    lines = [
        f"| {count} asked | s | × separate | × session | CPU s | × separate | × session | right | settled | target |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in found:
        wall = [way.seconds / by[name].seconds for name in ("separate", "session")]
        used = [way.cpu_seconds / by[name].cpu_seconds for name in ("separate", "session")]
        target = f"≤ {TARGET}" if way.name == "together" else ""
        cells = [
            f"{way.seconds:.2f}",
            *(f"{x:.3f}" for x in wall),
            f"{way.cpu_seconds:.2f}",
            *(f"{x:.3f}" for x in used),
        ]
        lines.append(f"| {way.name} | {' | '.join(cells)} | {way.right} | {way.overview} | {target} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Rate:
    """So many questions together on a kept overview."""

    model: str
    way: str
    questions: int
    seconds: float
    answers_a_second: float
    peak_gib: float


def on_gpu(case: Case, rounds: int, k: int) -> Iterator[Rate]:
    """Rates of one model."""
    size = FrameSize(max_side=case.probe.square or case.probe.max_side)
    small, _ = pools(Case(**{**vars(case), "probe": size}), k=k)
    engine, view = case.engine(plain=False), View(size)
    questions = [question_of(case, seed) for seed in range(1, max(COUNTS) + 1)]
    session = Session(small, model=engine, k=k, effort="quick", small=size, exit_confidence=0.0)

    def direct(count: int) -> None:
        choose(engine, [overview_request(small, question, view, keep_kv=True) for question in questions[:count]])

    def by_session(count: int) -> None:
        session.ask_all(questions[:count], together=count)

    direct(1)
    by_way: dict[str, Callable[[int], None]] = {"engine": direct, "session": by_session}
    for way, work in by_way.items():
        for count in COUNTS:
            seconds, peak = measured(partial(work, count), rounds)
            yield Rate(case.name, way, count, seconds, count / seconds, peak)


def gpu_table(found: Sequence[Rate]) -> str:
    """Markdown: answers a second."""
    lines = ["| model | way | questions together | s | answers a second | target | peak GiB |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for each in found:
        numbers = f"{each.questions} | {each.seconds:.4f} | {each.answers_a_second:.1f} | ≥ {ANSWERS_A_SECOND:g}"
        lines.append(f"| {each.model} | {each.way} | {numbers} | {each.peak_gib:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=[], choices=list(TEXT), help="random weights of these shapes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="embedded", help="without --sizes")
    parser.add_argument("--count", type=int, default=20, help="questions")
    parser.add_argument("--first", type=int, default=0, help="the number of the video")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--k", type=int, default=12)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    given = parser.parse_args()
    command = f"python speed/many.py {shlex.join(sys.argv[1:])}"
    machine = torch.cuda.get_device_name() if given.device != "cpu" else f"{given.cores} CPU cores"
    rows: Sequence[Any]
    if given.sizes:
        chosen = argparse.Namespace(model=None, sizes=given.sizes, device=given.device)
        rows = [rate for case in cases(chosen) for rate in on_gpu(case, given.rounds, given.k)]
        table = gpu_table(rows)
    else:
        rows = on_cpu(given)
        table = cpu_table(rows, given.count)
    print(f"`{command}`, {datetime.date.today()}, {machine}, torch {torch.__version__}\n\n{table}")
    content = {"command": command, "machine": machine, "rows": [asdict(row) for row in rows]}
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
