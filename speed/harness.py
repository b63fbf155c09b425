"""What the evaluation harness adds to a model of known latency, and how long a resume over many records takes to start.

    python speed/harness.py [--questions 120] [--latency 0.2] [--records 100000]

The model sleeps; videos are folders of nine pictures. `Session.ask` with nothing written, one video after the other,
is there to compare with: the difference is records, heartbeats, scheduling and, in favour, decoding ahead.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

os.environ["GRIDPROBE_CACHE"] = "off"

from gridprobe import MockModel
from gridprobe.ask import Session
from gridprobe.models import LazyModel, Model, Request
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe_eval import Evaluation, PoolOptions, run
from gridprobe_eval.benchmarks import Benchmark, Item

RESULTS = Path(__file__).parent / "results" / "harness.md"
LATENCY = "GRIDPROBE_BENCH_LATENCY"
PER_VIDEO = 3


def answer(request: Request) -> dict[str, float]:
    if request.groups[0].view.pixels.max_pixels:  # the focused pass stands for the whole question
        time.sleep(float(os.environ[LATENCY]))
    return {"A": 0.6, "B": 0.4}


class Sleeper(LazyModel):
    """A worker process makes its own scripted model."""

    def load(self, **options: Any) -> Model:
        return MockModel(answer)


def asked_by(model: Model, k: int = 3) -> Plan:
    return Options(k=k).resolve(model=model)


def made(folder: Path, questions: int) -> Benchmark:
    items = []
    for number in range(questions):
        path = folder / f"v{number // PER_VIDEO}"
        if not path.exists():
            path.mkdir(parents=True)
            for picture in range(9):
                Image.fromarray(np.full((240, 320, 3), picture * 20, np.uint8)).save(path / f"{picture}.png")
        question = Question(f"Is it number {number}?", ("yes", "no"), answer="A")
        items.append(Item(f"q{number}", question, path, path.name, {"kind": str(number % 2)}))
    return Benchmark("bench", f"bench-{questions}", tuple(items))


def alone(benchmark: Benchmark) -> float:
    start, backend = time.perf_counter(), MockModel(answer)
    for place in range(0, len(benchmark.items), PER_VIDEO):
        group = benchmark.items[place : place + PER_VIDEO]
        with Session(group[0].video, model=backend, k=3) as session:
            for item in group:
                session.ask(item.question)
    return time.perf_counter() - start


def harness(benchmark: Benchmark, out: Path, workers: int) -> float:
    """Seconds from the first record to the last, so that starting processes is not counted; they start once."""
    start = time.perf_counter()
    if workers:
        run(benchmark, out, setup=asked_by(Sleeper("scripted:scripted")), pool=PoolOptions(workers))
        lines = [json.loads(line) for file in out.glob("records-*") for line in file.open()]
        times = sorted(time_of(line["at"]) for line in lines)
        return (times[-1] - times[0]) * len(times) / max(1, len(times) - workers)
    run(benchmark, out, setup=asked_by(MockModel(answer)))
    return time.perf_counter() - start


def time_of(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def resume(folder: Path, count: int) -> tuple[str, float, float]:
    """The time until a run over so many records knows what is left, megabytes of records, peak megabytes of memory."""
    benchmark = made(folder / "data", 3)
    question = benchmark.items[0].question
    many = tuple(Item(f"q{n}", question, folder / f"v{n // 3}", f"v{n // 3}", {"kind": "x"}) for n in range(count + 1))
    big = Benchmark("bench", "bench-many", many)
    run(benchmark, folder / "one", setup=asked_by(MockModel(answer), k=12))
    (file,) = (folder / "one").glob("records-*")
    line = json.loads(file.read_text().splitlines()[0])
    line["selection"] |= {"indices": list(range(40)), "timestamps": [n * 1.5 for n in range(40)]}
    line["selection"] |= {"row_confidence": [0.123456789012] * 12, "column_confidence": [0.123456789012] * 12}
    with Evaluation(big, folder / "many", setup=asked_by(MockModel(answer))):
        pass
    with (folder / "many" / "records-w0-host-1-0.jsonl").open("w") as stream:
        for number in range(count):
            stream.write(json.dumps({**line, "schema": "gridprobe.record/1", "id": f"q{number}"}) + "\n")
    size = (folder / "many" / "records-w0-host-1-0.jsonl").stat().st_size / 1e6
    start, cpu = time.perf_counter(), time.process_time()
    with Evaluation(big, folder / "many", setup=asked_by(MockModel(answer))) as evaluation:
        assert evaluation.counts.todo == 1
        assert evaluation._tasks()
    spent = f"{time.perf_counter() - start:.1f} s, {time.process_time() - cpu:.1f} s of it on the processor"
    return spent, size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=120)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    os.environ[LATENCY] = str(given.latency)
    ideal = given.questions * given.latency
    load_before = os.getloadavg()[0]
    rows = ["| | seconds | above the model's own time | CPU ms per question |", "|---|---|---|---|"]
    rows.append(f"| the model's sleep alone | {ideal:.2f} | | |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        benchmark = made(folder / "data", given.questions)
        ways: list[tuple[str, Callable[[], float], int]] = [
            ("`Session.ask`, nothing recorded", lambda: alone(benchmark), 0),
            ("evaluation, in process", lambda: harness(benchmark, folder / "here", 0), 0),
            ("evaluation, 1 worker process", lambda: harness(benchmark, folder / "one-worker", 1), 1),
            ("evaluation, 2 worker processes", lambda: harness(benchmark, folder / "two", 2), 2),
        ]
        for title, work, workers in ways:
            cpu = time.process_time()
            seconds = work()
            each = "" if workers else f"{(time.process_time() - cpu) / given.questions * 1000:.1f}"
            above = f"{seconds / (ideal / max(1, workers)) - 1:+.1%}" if ideal else ""
            rows.append(f"| {title} | {seconds:.2f} | {above} | {each} |")
        spent, size, memory = resume(folder / "resume", given.records)
    text = f"""# What the harness costs

`python speed/harness.py --questions {given.questions} --latency {given.latency:g} --records {given.records}`,
{date.today()}, {os.cpu_count()} cores, load average {load_before:.1f} before and {os.getloadavg()[0]:.1f} after (others
used the machine; an idle one is at 0). A scripted model that sleeps {given.latency:g} s per question, three
questions to a video. Target: at most 5 % above the model's own time.

{chr(10).join(rows)}

Worker processes are timed from their first record to their last, scaled to all questions; starting them is not counted.

Start of a resume over {given.records:,} records ({size:.0f} MB): {spent} (target 5 s), peak memory of the whole
benchmark process {memory:.0f} MB.
"""
    given.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
