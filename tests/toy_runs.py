"""A benchmark of picture folders and a model that answers from its prompt; importable by child processes.

What a question's text says happens: "dies" kills the process, "hangs" waits for ever, "fails" raises a ModelError,
"breaks" something nobody foresaw. With GRIDPROBE_TOY_REPAIRED nothing fails. Every focused pass is noted in the file
that GRIDPROBE_TOY_CALLS names. Where GRIDPROBE_TOY_GATE names a FIFO, each takes a byte from it first, and waits for
one: see `Gate`.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from PIL import Image

from gridprobe import MockModel
from gridprobe._util import Disk
from gridprobe.errors import ModelError
from gridprobe.models import LazyModel, Model, Request
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe_eval import Choice, Evaluation, PoolOptions, Shard, disk
from gridprobe_eval.benchmarks import Benchmark, Item
from gridprobe_eval.folder import Timeouts
from waiting import wait_until
from ways import PUBLISHED

CALLS = "GRIDPROBE_TOY_CALLS"
GATE = "GRIDPROBE_TOY_GATE"
REPAIRED = "GRIDPROBE_TOY_REPAIRED"
PICTURES = 4


def make_video(folder: Path, shade: int = 100) -> Path:
    folder.mkdir(parents=True)
    for number in range(PICTURES):
        pixels = np.full((64, 64, 3), (shade + 20 * number) % 256, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def toy_benchmark(
    folder: Path, *, videos: int = 3, questions: int = 2, words: Mapping[str, str] | None = None
) -> Benchmark:
    """`videos` × `questions` items v0-q0, v0-q1, …; `words` go into the text of single ones."""
    items = []
    for video in range(videos):
        path = folder / f"v{video}"
        if not path.exists():
            make_video(path, 10 * video)
        for number in range(questions):
            name = f"v{video}-q{number}"
            text = f"Is it <{name}>? {(words or {}).get(name, '')}"
            question = Question(text, ("yes", "no"), answer="AB"[number % 2], id=name)
            bins = {"length": "short" if video % 2 else "long", "kind": f"q{number}"}
            items.append(Item(name, question, path, f"v{video}", bins, duration=float(PICTURES)))
    return Benchmark("toy", f"toy-{len(items)}", tuple(items))


def answer(request: Request) -> Mapping[str, float]:
    prompt = request.prompt
    if "dies" in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hangs" in prompt:
        with _beside_calls("hangs").open("a") as file:
            file.write("x")
        Event().wait()
    if "fails" in prompt and REPAIRED not in os.environ:
        raise ModelError("the model was told to fail")
    if "breaks" in prompt:
        raise ZeroDivisionError("nobody foresaw this")
    if request.groups[0].view.pixels.max_pixels:
        _note(prompt)
        _pass_gate()
    light = 0.2 + float(request.frames.pixels.mean()) / 512
    return {"A": light, "B": 1 - light}


def _note(prompt: str) -> None:
    if CALLS in os.environ:
        with open(os.environ[CALLS], "a") as file:
            file.write(prompt.split("<")[1].split(">")[0] + "\n")


def _pass_gate() -> None:
    if GATE in os.environ:
        descriptor = os.open(os.environ[GATE], os.O_RDONLY)
        os.read(descriptor, 1)
        os.close(descriptor)


class Gate:
    """Lets exactly as many focused passes through as it is told to, in whichever processes; the others wait."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR)  # also a reader, so that nobody ever meets the end of the file

    def let(self, count: int) -> None:
        os.write(self._descriptor, bytes(count))

    def close(self) -> None:
        os.close(self._descriptor)


def _beside_calls(name: str) -> Path:
    return Path(os.environ[CALLS]).parent / name


def hangs() -> int:
    """How many questions hang, or did until their worker was killed."""
    file = _beside_calls("hangs")
    return file.stat().st_size if file.exists() else 0


def calls() -> Counter[str]:
    """How often each question was put to a model for its answer."""
    file = Path(os.environ[CALLS])
    return Counter(file.read_text().split()) if file.exists() else Counter()


def model() -> MockModel:
    return MockModel(answer, name="toy")


@dataclass(frozen=True)
class ToyModel(LazyModel):
    """A model that a worker loads in its own process."""

    name: str = "scripted:toy"

    def load(self, **options: Any) -> Model:
        return model()


def toy_setup(model: Model | None = None, **options: Any) -> Plan:
    """How the toy's questions are asked: by a model that workers load, or by the one given."""
    named = {name: options.pop(name) for name in ("answer_model", "selector") if name in options}
    settings = Options.from_preset(options.pop("preset", "default"), **{"k": 2, **PUBLISHED, **options})
    return settings.resolve(model=model or ToyModel(), **named)


CHOICE = ("limit", "ids", "seed")
PASSED = ("subtitles", "max_failures", "retry_failed", "redo_changed", "totals")


def evaluation(benchmark: Benchmark, out: Path, **options: Any) -> Evaluation:
    """An evaluation from flat options: those of the choice, the pool, the evaluation, and for the rest the setup."""
    shard = Shard.parse(options.pop("shard", "1/1"))
    choice = Choice(shard=shard, **{name: options.pop(name) for name in CHOICE if name in options})
    timeout = Timeouts(options.pop("timeout", 600.0), options.pop("start_timeout", 1800.0))
    pool = PoolOptions(options.pop("workers", None), options.pop("engine", "local"), timeout)
    passed = {name: options.pop(name) for name in PASSED if name in options}
    return Evaluation(benchmark, out, setup=toy_setup(**options), choice=choice, pool=pool, **passed)


def ids(benchmark: Benchmark) -> list[str]:
    return [item.id for item in benchmark.items]


def here(benchmark: Benchmark, out: Path, **options: Any) -> dict[str, Any]:
    return started(benchmark, out, **{"model": model(), **options})


def started(benchmark: Benchmark, out: Path, **options: Any) -> dict[str, Any]:
    with evaluation(benchmark, out, **options) as running:
        return running.run()


def lines(folder: Path) -> Counter[str]:
    """How many whole lines there are of each id, whatever they say."""
    found = Counter[str]()
    for file in folder.glob("records-*.jsonl"):
        found.update(json.loads(line)["id"] for line in file.read_bytes().split(b"\n")[:-1])
    return found


def has_lines(folder: Path, count: int) -> bool:
    return lines(folder).total() == count


def kill_when(true: Callable[[], bool], folder: Path, workers: int, by: signal.Signals = signal.SIGKILL) -> int:
    """Run this file as a program, end it by a signal, wait until its workers are gone, and return its exit code."""
    command = [sys.executable, __file__, str(folder / "data"), str(folder / "run"), str(workers)]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: true() or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(by)
        process.wait()
    finally:
        process.kill()
    wait_until(lambda: not any(map(disk.held, (folder / "run").glob("records-*.jsonl"))))
    return process.returncode


class _Fragile(Disk):
    """Kills its process at the third record: before it is synced if the worker's number is even, after it if odd."""

    def __init__(self, number: int) -> None:
        self.after, self.records = number % 2 == 1, 0

    def write(self, descriptor: int, content: bytes) -> int:
        taken = super().write(descriptor, content)
        self.records += content.startswith(b'{"schema": "gridprobe.record/2"')
        return taken

    def sync(self, descriptor: int) -> None:
        if self.records == 3 and self.after:
            super().sync(descriptor)
        if self.records == 3:
            _die("after" if self.after else "before", descriptor)
        super().sync(descriptor)


def _die(when: str, descriptor: int) -> None:
    if when == "before":
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - 9)  # as after a power cut
    with _beside_calls("deaths").open("a") as file:
        file.write(when + "\n")
    os.kill(os.getpid(), signal.SIGKILL)


class FragileModel(ToyModel):
    """The first three workers to load it die at their third record."""

    def load(self, **options: Any) -> Model:
        loads = _beside_calls("loads")
        with loads.open("a") as file:
            file.write("x")
        number = loads.stat().st_size
        if number <= 3:
            disk.DISK = _Fragile(number)
        return model()


class _Full(Disk):
    def write(self, descriptor: int, content: bytes) -> int:
        if content.startswith(b'{"schema": "gridprobe.record/2"'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, content)


class FullDiskModel(ToyModel):
    """A worker that loads it can write no record."""

    def load(self, **options: Any) -> Model:
        disk.DISK = _Full()
        return model()


def main() -> None:
    """Run twelve videos in a process that can be killed: DATA OUT WORKERS."""
    data, out, workers = sys.argv[1:]
    benchmark = toy_benchmark(Path(data), videos=12, questions=1)
    with evaluation(benchmark, Path(out), workers=int(workers)) as running:
        running.run()


if __name__ == "__main__":
    import toy_runs  # so that what children are given has an importable name

    toy_runs.main()
