"""gridprobe find on a gridworld library against its true times, and the index at the size of 10,000 hours.

    python speed/find.py library [--videos 20] [--first-seed 3000] [--minutes 2 10] [--every 2] [--folder DIR]
    python speed/find.py synthetic [--hours 10000] [--width 128] [--folder DIR]

`library` writes videos from the test seeds, indexes them with the embedded encoder, and looks for each of the 56 pairs
of a colour and a shape: some never appear, some once, some several times, and most have look-alikes of the same shape
or colour. "find" is `find_moments` with the embedded model; "model alone" counts a segment if the model says yes,
however similar it is. The others go without the model: "best threshold" counts what is as similar as gives the best F1
on these very queries; "noise" what is further above the median frame than the largest of that many noise scores, as
`importance.NoiseAware` has it; "gap" what is above the largest gap between segments. All refine borders to 0.5 s.

`synthetic` writes vectors in place of videos: an hour has 1,800 in shots of 5 to 40, each its shot's direction and
noise. A query is a shot's direction and noise; what is to be found is that shot's video.
"""

import argparse
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["GRIDPROBE_CACHE"] = "off"

import numpy as np

from gridprobe import load_model
from gridprobe.importance import null_maximum
from gridprobe.options import Options
from gridprobe.selectors.base import Encoder, load_encoder
from gridprobe_find.build import build, meta_of
from gridprobe_find.find import FindOptions, LibraryMoment, find_moments, joined
from gridprobe_find.index import IndexedVideo, IndexMeta, LibraryIndex, open_index
from gridprobe_find.propose import Proposal
from gridprobe_find.verify import refined
from gridprobe_world.dataset import script
from gridprobe_world.render import write_script
from gridprobe_world.world import COLOURS, NEVER, SHAPES, TEST_SEEDS

RESULTS = Path(__file__).parent / "results"
GOOD = 0.5
Intervals = list[tuple[str, float, float]]


# The library.


def write_library(folder: Path, count: int, minutes: Sequence[float], first_seed: int) -> dict[str, Intervals]:
    """Videos, log-uniform in length, and where each pair of a colour and a shape is on screen."""
    folder.mkdir(parents=True, exist_ok=True)
    truth: dict[str, Intervals] = {f"{colour} {shape}": [] for colour in COLOURS for shape in SHAPES}
    for number in range(count):
        seed = TEST_SEEDS[first_seed + number]
        worlds, draw = script(seed, "standard"), random.Random(seed)
        duration = float(round(60 * math.exp(draw.uniform(math.log(minutes[0]), math.log(minutes[1])))))
        path = folder / f"{number:03d}.mp4"
        if not path.exists():
            write_script(worlds, folder / f".{path.name}", duration=duration)
            (folder / f".{path.name}").replace(path)
        for j in range(worlds.shape.shape[1]):
            name = f"{list(COLOURS)[worlds.colour[0, j]]} {SHAPES[worlds.shape[0, j]]}"
            for start, end in zip(worlds.start[0, j].tolist(), worlds.end[0, j].tolist(), strict=True):
                if start < NEVER:
                    truth[name].append((str(path.absolute()), start * duration, min(end, 1.0) * duration))
    return truth


def iou(moment: LibraryMoment, other: tuple[str, float, float]) -> float:
    video, start, end = other
    shared = min(moment.end, end) - max(moment.start, start)
    return max(0.0, shared) / (max(moment.end, end) - min(moment.start, start)) if moment.video == video else 0.0


def matched(moments: Sequence[LibraryMoment], truth: Intervals) -> list[float]:
    """The IoU of each true moment with the one that was found for it; pairs with the highest IoU come first."""
    pairs = sorted(((iou(m, t), i, j) for i, m in enumerate(moments) for j, t in enumerate(truth)), reverse=True)
    best, used = [0.0] * len(truth), set()
    for value, i, j in pairs:
        if value > 0 and i not in used and not best[j]:
            best[j] = value
            used.add(i)
    return best


def scores_of(found: dict[str, list[LibraryMoment]], truth: dict[str, Intervals]) -> dict[str, float]:
    values = {query: matched(found[query], truth[query]) for query in truth}
    good = sum(value >= GOOD for each in values.values() for value in each)
    true, given = sum(map(len, truth.values())), sum(map(len, found.values()))
    absent = [query for query in truth if not truth[query]]
    recall, precision = good / true, good / given if given else 1.0
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * good / (true + given),
        "mean_iou": sum(sum(each) for each in values.values()) / true,
        "not_found_right": sum(not found[query] for query in absent) / len(absent) if absent else 1.0,
        "absent": len(absent),
        "given": given,
        "true": true,
    }


def closer(index: LibraryIndex, encoder: Encoder, query: str, moments: Sequence[LibraryMoment]) -> list[LibraryMoment]:
    """The moments with refined borders, as `find` has them."""
    vector, keys = encoder.texts([query])[0], {video.path: video.key for video in index.videos()}
    near = []
    for each in moments:
        curve = index.curves([keys[each.video]], vector)[keys[each.video]]
        segment = Proposal(keys[each.video], each.start, each.end, each.similarity)
        start, end, _ = refined(each.video, segment, curve, encoder, query=vector, precision=0.5)
        near.append(replace(each, start=start, end=end))
    return joined(near)


def noise_floor(index: LibraryIndex, encoder: Encoder, query: str) -> float:
    """The similarity that stands out from the frames of the library, by the rule of `importance.NoiseAware`."""
    curves = index.curves([video.key for video in index.videos()], encoder.texts([query])[0])
    scores = np.concatenate([curve.scores for curve in curves.values()])
    middle = float(np.median(scores))
    return middle + 1.4826 * float(np.median(np.abs(scores - middle))) * null_maximum(len(scores))


def gap_floor(moments: Sequence[LibraryMoment]) -> float:
    """The similarity above the largest gap."""
    scores = np.sort([moment.similarity for moment in moments])[::-1]
    return float(scores[np.argmax(-np.diff(scores))]) if len(scores) > 1 else -1.0


def cpu() -> float:
    """CPU seconds so far; those of the process that decodes count only once it has ended, so they are missing."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def library(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    truth = write_library(folder / "videos", arguments.videos, arguments.minutes, arguments.first_seed)
    encoder, model = load_encoder("embedded", cache=False), load_model("embedded")
    plan = Options.from_preset("gridworld", effort="quick").resolve(model=model)
    shutil.rmtree(folder / "index", ignore_errors=True)
    start, before = time.perf_counter(), cpu()
    index = open_index(folder / "index", meta_of("embedded", encoder))
    report = build(index, sorted((folder / "videos").glob("[!.]*.mp4")), encoder, every=arguments.every)
    indexing, indexing_cpu = time.perf_counter() - start, cpu() - before
    names = random.Random(0).sample(list(truth), min(arguments.queries, len(truth)))
    truth = {name: truth[name] for name in names}
    found, plain, alone, seconds, calls, checked, unchecked = {}, {}, {}, [], 0, 0, 0
    noise: dict[str, float] = {}
    gap: dict[str, float] = {}
    rough = FindOptions(verify=False, precision=60)  # borders are refined below, for what is above the threshold
    for number, query in enumerate(truth):
        result = find_moments(index, f"a {query}", encoder=encoder, plan=plan)
        found[query] = list(result.moments)
        seconds.append(result.work.seconds)
        calls, checked = calls + result.work.model.calls, checked + result.work.checked
        unchecked += sum("not checked" in problem for problem in result.problems)
        alone[query] = list(find_moments(index, f"a {query}", encoder=encoder, plan=None, options=rough).moments)
        with patch("gridprobe_find.find.weighed", list):
            plain[query] = list(find_moments(index, f"a {query}", encoder=encoder, plan=plan).moments)
        noise[query], gap[query] = noise_floor(index, encoder, f"a {query}"), gap_floor(alone[query])
        print(number, query, len(truth[query]), len(found[query]), result.work, file=sys.stderr, flush=True)
    cuts = sorted({moment.similarity for moments in alone.values() for moment in moments})

    def over(floors: dict[str, Any], *, near: bool = True) -> dict[str, float]:
        kept = {q: [m for m in moments if m.similarity >= floors[q]] for q, moments in alone.items()}
        return scores_of({q: closer(index, encoder, f"a {q}", ms) for q, ms in kept.items()} if near else kept, truth)

    steps = cuts[:: max(1, len(cuts) // 200)]
    best = float(max(steps, key=lambda cut: over(dict.fromkeys(truth, cut), near=False)["f1"]))
    hours = report.seconds / 3600
    return {
        "videos": arguments.videos,
        "hours": hours,
        "every": arguments.every,
        "queries": {n: sum(min(len(t), 2) == n for t in truth.values()) for n in (0, 1, 2)},
        "find": scores_of(found, truth),
        "model alone": scores_of(plain, truth),
        "similarity, best threshold": {**over(dict.fromkeys(truth, best)), "threshold": best},
        "similarity, noise": over(noise),
        "similarity, gap": over(gap),
        "calls_per_query": calls / len(truth),
        "segments_per_query": checked / len(truth),
        "queries_with_unchecked_segments": unchecked,
        "first_query_seconds": indexing + seconds[0],
        "later_query_seconds": float(np.median(seconds[1:])),
        "index_mb_per_hour": index.size() / 1e6 / hours,
        "hours_per_cpu_minute": hours / (indexing_cpu / 60),
        "hours_per_minute": hours / (indexing / 60),
        "problems": list(report.problems),
    }


# Synthetic vectors.


def vectors_of(rng: np.random.Generator, count: int, width: int) -> tuple[Any, Any, Any]:
    """Vectors of one video, the number of each one's shot, and the directions of the shots."""
    lengths = rng.integers(5, 41, count // 5 + 1)
    shots = np.repeat(np.arange(len(lengths)), lengths)[:count]
    centres = rng.standard_normal((int(shots[-1]) + 1, width), dtype=np.float32)
    vectors = centres[shots] + 0.5 * rng.standard_normal((count, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), shots, centres


def fill(index: LibraryIndex, hours: int, width: int) -> tuple[list[Any], list[str]]:
    """An hour of vectors for each video, written as the index stores them; gives queries and their videos."""
    import pyarrow as pa

    from gridprobe_find.index import _schema

    rng, queries, answers, waiting = np.random.default_rng(0), [], [], []
    videos = []
    for number in range(hours):
        vectors, shots, centres = vectors_of(rng, 1800, width)
        key = f"{number:032x}"
        videos.append(IndexedVideo(f"/library/{number:06d}.mp4", key, key, 3600.0, 25.0, 1800, 0, 2.0))
        if number % max(1, hours // 50) == 0:
            centre = centres[rng.integers(len(centres))]
            query = centre + 0.5 * rng.standard_normal(width, dtype=np.float32)
            queries.append((query / np.linalg.norm(query)).astype(np.float32))
            answers.append(key)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), width)
        times = (np.arange(1800) * 2 + 1).astype(np.float32)
        columns = {"key": [key] * 1800, "time": times, "shot": shots.astype(np.int32), "vector": rows}
        waiting.append(pa.table(columns, schema=_schema("frames", width)))
        if len(waiting) == 250 or number == hours - 1:
            index._tables["frames"].add(pa.concat_tables(waiting))
            waiting.clear()
    index._upsert(videos)
    return queries, answers


def peak_mb() -> float:
    """Of this program; what getrusage says begins with the peak of the program that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def synthetic(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder / "synthetic", ignore_errors=True)
    index = open_index(folder / "synthetic", IndexMeta("synthetic", "synthetic", arguments.width))
    start = time.perf_counter()
    queries, answers = fill(index, arguments.hours, arguments.width)
    writing = time.perf_counter() - start
    start, before = time.perf_counter(), cpu()
    index.tidy()
    ann, ann_cpu = time.perf_counter() - start, cpu() - before
    child = {"folder": str(folder / "synthetic"), "queries": [q.tolist() for q in queries], "answers": answers}
    (folder / "queries.json").write_text(json.dumps(child))
    values = {
        "hours": arguments.hours,
        "vectors": arguments.hours * 1800,
        "width": arguments.width,
        "write_seconds": writing,
        "ann_build_seconds": ann,
        "ann_build_cpu_seconds": ann_cpu,
        "build_peak_mb": peak_mb(),
        "index_gb": index.size() / 1e9,
    }
    for way in ("ann", "exact"):  # each in a process of its own, whose memory is measured
        values |= {f"{way}_{name}": value for name, value in in_child(way, folder).items()}
    return values


def in_child(way: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "query", way, "--folder", str(folder)], check=True, capture_output=True, text=True
    )
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


def query(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """How long `nearest` takes for each query, and whether the planted video comes first, or among the 200."""
    asked = json.loads((folder / "queries.json").read_text())
    index = open_index(Path(asked["folder"]))
    queries = asked["queries"][: 10 if arguments.way == "exact" else None]
    seconds, first, among = [], 0, 0
    for vector, answer in zip(queries, asked["answers"], strict=False):
        start = time.perf_counter()
        best = index.nearest(np.array(vector, np.float32), most=200, exact=arguments.way == "exact")
        seconds.append(time.perf_counter() - start)
        first, among = first + (next(iter(best)) == answer), among + (answer in best)
    return {
        "query_seconds": float(np.median(seconds)),
        "slowest": max(seconds),
        "first": first / len(queries),
        "among_200": among / len(queries),
        "queries": len(queries),
        "peak_mb": peak_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("library", "synthetic", "query"))
    parser.add_argument("way", nargs="?", choices=("ann", "exact"))
    parser.add_argument("--videos", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=3000, help="those up to 2999 were used to write the search")
    parser.add_argument("--minutes", type=float, nargs=2, default=(2.0, 10.0))
    parser.add_argument("--queries", type=int, default=56)
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--hours", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        values = {"library": library, "synthetic": synthetic, "query": query}[arguments.what](arguments, folder)
    if arguments.out:
        arguments.out.write_text(json.dumps({"date": str(date.today()), **values}, indent=2) + "\n")
    print(json.dumps(values))


if __name__ == "__main__":
    main()
