"""Evaluate a model on gridworld, several ways of choosing frames side by side, and print what came out.

    python -m gridprobe.gridworld.evaluate --model DIR --count 400 --out records.jsonl --calibration
    python -m gridprobe.gridworld.evaluate --table records.jsonl

Each item × way is one JSON line, written as soon as it is known; a run that was cut short goes on where it stopped.
With frames rendered directly (the default) nothing here needs PyAV.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gridprobe.answer import Answer
from gridprobe.backends import Backend, Posterior, ScoreRequest, load_model
from gridprobe.backends.memo import Memo
from gridprobe.errors import DataError, GridProbeError, UsageError
from gridprobe.gridworld.dataset import Item, items, pool_of, world_of
from gridprobe.gridworld.statistics import tables
from gridprobe.pipeline import Session
from gridprobe.settings import PRESETS
from gridprobe.video import FramePool, FrameSize, sample

__all__ = ["CROSS", "WAYS", "Evaluation", "Way", "evaluate", "main", "read_records"]

K, SIDE = 12, 224
PROBE_PIXELS = PRESETS["gridworld"].probe_pixels
NATIVE_PIXELS = FrameSize(max_pixels=SIDE * SIDE)
SUBSET_SIZES = (1, 2, 4, 8, 16, 36)
SUBSET = "subset"
"""What stands as the way in records that only serve calibration."""
PATIENCE = 5.0
"""Seconds between two lines about progress."""

Done = Set[tuple[str, str]]
"""Item and way of what is known already."""


@dataclass(frozen=True)
class Way:
    """One way of choosing frames and answering from them."""

    name: str
    selector: str
    frames: int | Literal["auto"] = "auto"
    cross: bool = False
    """Whether the selector model probes and the other one answers."""


WAYS = (
    Way("all", "all"),
    Way("gridprobe", "gridprobe"),
    Way("uniform-like", "uniform-like"),
    Way("gridprobe M=8", "gridprobe", 8),
    Way("uniform M=8", "uniform", 8),
)
CROSS = Way("cross", "gridprobe", cross=True)


class Evaluation:
    """Answers items in every way with one model, or with a second, usually smaller, one that probes for it.

    Probing and answering go through memos of their own: ways share their work, and what a shared piece took is added
    to the seconds of each way that used it.
    """

    def __init__(self, model: Backend, selector: Backend | None = None, *, calibration: bool = False) -> None:
        self.model = model
        self.selector = selector
        self._calibration = calibration
        self._answerer = Memo(model)
        self._probers = {False: Memo(model), True: Memo(selector or model)}
        self.ways = (*WAYS, CROSS) if selector else WAYS

    def records(self, item: Item, frames: "Frames", done: Done) -> Iterator[dict[str, Any]]:
        """One record for each way that is not done yet, then those of the subsets."""
        ways = [way for way in self.ways if (item.id, way.name) not in done]
        subsets = self._calibration and (item.id, SUBSET) not in done
        if not ways and not subsets:
            return
        try:
            pool = frames.of(item)
        except GridProbeError as error:
            yield from (self._head(item, way.name) | _failure(error) for way in ways)
            return
        moments = [(moment + frames.shift) / item.duration for moment in pool.times]
        for way in ways:
            yield self._head(item, way.name) | self._answer(item, pool, way, moments)
        if subsets:
            found = (self._head(item, SUBSET) | each for each in self._subsets(item, pool, moments))
            yield from (record for record in found if (item.id, _name(record)) not in done)

    def _head(self, item: Item, way: str) -> dict[str, Any]:
        cross = way == CROSS.name and self.selector is not None
        return {
            "id": item.id,
            "seed": item.seed,
            "duration": item.duration,
            "family": item.family,
            "wording": item.asked.wording,
            "way": way,
            "model": self.model.identity,
            "selector": self._probers[cross].identity,
            "answer": item.asked.question.answer,
            "options": len(item.asked.question.options),
            "chance": 1 / len(item.asked.question.options),
        }

    def _answer(self, item: Item, pool: FramePool, way: Way, moments: Sequence[float]) -> dict[str, Any]:
        prober = self._probers[way.cross]
        session = Session(
            pool,
            model=prober,
            answer_model=self._answerer,
            selector=way.selector,
            k=K,
            frames=way.frames,
            probe_pixels=PROBE_PIXELS,
            native_pixels=NATIVE_PIXELS,
        )
        before = prober.saved, self._answerer.saved
        try:
            answer = session.ask(item.asked.question)
        except GridProbeError as error:
            return _failure(error)
        saved = prober.saved - before[0], self._answerer.saved - before[1]
        kept = [moments[i] for i in answer.selection.indices]
        return _judged(item, answer.posterior) | _spent(answer, saved) | {"covered": _covered(item, kept)}

    def _subsets(self, item: Item, pool: FramePool, moments: Sequence[float]) -> list[dict[str, Any]]:
        """Random frames, and random frames of which none shows the evidence; all in one call to the model."""
        question, subsets = item.asked.question, list(_draw_subsets(item, moments))
        heads = [
            {"kind": kind, "kept": len(chosen), "of": len(subsets), "has_evidence": _seen(item, chosen, moments)}
            for kind, chosen in subsets
        ]
        requests = [
            ScoreRequest(pool.take(chosen), question.prompt, question.labels, PROBE_PIXELS) for _, chosen in subsets
        ]
        try:
            posteriors = self.model.score(requests)
        except GridProbeError as error:
            return [head | _failure(error) for head in heads]
        return [head | _judged(item, posterior) for head, posterior in zip(heads, posteriors, strict=True)]


def _failure(error: GridProbeError) -> dict[str, Any]:
    return {"outcome": "failed", "error": f"{type(error).__name__}: {error}", "right": False}


def _judged(item: Item, posterior: Posterior) -> dict[str, Any]:
    return {
        "outcome": "ok",
        "right": posterior.choice == item.asked.question.answer,
        "choice": posterior.choice,
        "confidence": round(posterior.confidence, 6),
        "posterior": {label: round(p, 6) for label, p in posterior.probabilities.items()},
        "mass": round(posterior.mass, 6),
    }


def _spent(answer: Answer, saved: tuple[float, float]) -> dict[str, Any]:
    selection, cost = answer.selection, answer.cost
    return {
        "kept": selection.kept,
        "sigma": None if selection.shape is None else round(selection.shape.sigma, 6),
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
        "baseline_tflops": cost.baseline.tflops,
        "baseline_tflops_paper": cost.baseline.tflops_paper,
        "seconds": {
            "probe": round(answer.seconds.probe + saved[0], 6),
            "focus": round(answer.seconds.focus + saved[1], 6),
        },
    }


def _covered(item: Item, kept: Sequence[float]) -> float | None:
    """The share of the evidence's intervals that at least one kept frame shows; None when all is evidence."""
    intervals = item.asked.evidence
    if not intervals:
        return None
    return sum(any(start <= moment < end for moment in kept) for start, end in intervals) / len(intervals)


def _seen(item: Item, chosen: Sequence[int], moments: Sequence[float]) -> bool:
    """Whether any of the chosen frames shows any of the evidence; where all is evidence every frame does."""
    return _covered(item, [moments[i] for i in chosen]) != 0.0


def _draw_subsets(item: Item, moments: Sequence[float]) -> Iterator[tuple[str, list[int]]]:
    rng = random.Random(f"{item.id}:subsets")
    everywhere = range(len(moments))
    blind = [i for i in everywhere if not _seen(item, [i], moments)]
    for size in SUBSET_SIZES:
        for kind, choices in (("random", everywhere), ("blind", blind)):
            if size <= len(choices):
                yield kind, sorted(rng.sample(choices, size))


class Frames:
    """The pool of an item's video, rendered directly or decoded from a file that is made where it is missing."""

    def __init__(self, source: Literal["rendered", "mp4"], *, device: str, videos: Path) -> None:
        self.source = source
        self._mp4 = source == "mp4"
        self._device = device
        self._videos = videos
        self._last: tuple[int, FramePool] | None = None

    @property
    def shift(self) -> float:
        """Seconds from a frame's time stamp to the moment it shows: a file's frame shows the middle of its display."""
        if not self._mp4:
            return 0.0
        from gridprobe.gridworld.video import FPS

        return 0.5 / FPS

    def of(self, item: Item) -> FramePool:
        """Items of one video follow each other, so the last pool is kept."""
        if self._last is None or self._last[0] != item.seed:
            self._last = item.seed, self._decoded(item) if self._mp4 else self._rendered(item)
        return self._last[1]

    def _rendered(self, item: Item) -> FramePool:
        return pool_of(item, cells=K * K, size=SIDE, device=self._device)

    def _decoded(self, item: Item) -> FramePool:
        from gridprobe.gridworld.video import write_script

        path = self._videos / f"gridworld-{item.seed}-{SIDE}.mp4"
        if not path.is_file():
            self._videos.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.stem}.{os.getpid()}.partial.mp4")  # a torn file never gets the final name
            write_script(world_of(item), partial, duration=item.duration, size=SIDE)
            partial.replace(path)
        return sample(path, cells=K * K, size=NATIVE_PIXELS)


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a file; a last line without its end was cut short and does not count."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number} is not a JSON record: {error}") from error
    return records


def _name(record: dict[str, Any]) -> str:
    """What a record is of its item's: a way, or one of the subsets."""
    way: str = record["way"]
    return f"{way} {record['kind']} {record['kept']}" if way == SUBSET else way


def _resume(path: Path, evaluation: Evaluation, source: str) -> Done:
    """What a file holds already; a torn last line is cut off, records of other models or frames are an error."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        return frozenset()
    records = read_records(path)
    for record in records:
        _check_origin(record, evaluation, source, path)
    with path.open("r+b") as stream:
        stream.truncate(stream.read().rfind(b"\n") + 1)
    subsets = [record for record in records if record["way"] == SUBSET]
    scored = Counter(record["id"] for record in subsets)
    whole = {(record["id"], SUBSET) for record in subsets if scored[record["id"]] == record["of"]}
    return whole | {(record["id"], _name(record)) for record in records}


def _check_origin(record: dict[str, Any], evaluation: Evaluation, source: str, path: Path) -> None:
    expected = {"model": evaluation.model.identity, "source": source}
    if record["way"] == CROSS.name and evaluation.selector is not None:
        expected["selector"] = evaluation.selector.identity
    for name, value in expected.items():
        if record[name] != value:
            raise UsageError(f"{path} holds records with {name} {record[name]}, not {value}; give another --out")


def evaluate(evaluation: Evaluation, chosen: Sequence[Item], frames: Frames, *, out: Path) -> None:
    """Run all items and append their records to `out`."""
    done = _resume(out, evaluation, frames.source)
    start = said = time.monotonic()
    with out.open("a", encoding="utf-8") as stream:
        for number, item in enumerate(chosen, start=1):
            for record in evaluation.records(item, frames, done):
                stream.write(json.dumps(record | {"source": frames.source}) + "\n")
                stream.flush()
            now = time.monotonic()
            if now - said > PATIENCE or number == len(chosen):
                said, each = now, (now - start) / number
                left = f"{each:.2f} s each, about {each * (len(chosen) - number):.0f} s left"
                print(f"{number}/{len(chosen)} items, {left}", file=sys.stderr, flush=True)


def _warm_up(evaluation: Evaluation, item: Item, frames: Frames) -> None:
    """The first calls on a device load its kernels; they shall not count as somebody's seconds."""
    for model in filter(None, (evaluation.model, evaluation.selector)):
        list(Evaluation(model).records(item, frames, frozenset()))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Evaluate a model on gridworld.")
    parser.add_argument("--model", help="folder of the model that answers")
    parser.add_argument("--selector-model", help="folder of a second model that probes for it (the way called cross)")
    parser.add_argument("--source", choices=("rendered", "mp4"), default="rendered", help="where the frames come from")
    parser.add_argument("--count", type=int, default=400, help="how many items")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--out", type=Path, help="file the records are appended to")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--videos", type=Path, default=Path("gridworld-videos"), help="folder that keeps mp4 files")
    parser.add_argument("--calibration", action="store_true", help="score random and evidence-free subsets, too")
    parser.add_argument("--min-letter-mass", type=float, help="the least share of probability on the option letters")
    parser.add_argument("--table", type=Path, nargs="+", metavar="RECORDS", help="print the tables of these files")
    parser.add_argument("--together", action="store_true", help="with --table: one table for all models and sources")
    given = parser.parse_args(arguments)
    if not given.table and not (given.model and given.out):
        parser.error("give --model and --out, or --table")
    return given


def _load(name: str, given: argparse.Namespace) -> Backend:
    options = {} if given.min_letter_mass is None else {"min_letter_mass": given.min_letter_mass}
    return load_model(name, device=given.device, dtype=given.dtype, **options)


def _render_device(device: str) -> str:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate, or print the tables of an evaluation."""
    given = _arguments(arguments)
    if given.table:
        records = [record for path in given.table for record in read_records(path)]
        print(tables(records, together=given.together))
        return
    chosen = items(given.count, first=given.first)
    selector = _load(given.selector_model, given) if given.selector_model else None
    evaluation = Evaluation(_load(given.model, given), selector, calibration=given.calibration)
    device = _render_device(given.device)
    frames = Frames(given.source, device=device, videos=given.videos)
    if chosen and device != "cpu":
        _warm_up(evaluation, chosen[0], frames)
    evaluate(evaluation, chosen, frames, out=given.out)


if __name__ == "__main__":
    try:
        main()
    except GridProbeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
