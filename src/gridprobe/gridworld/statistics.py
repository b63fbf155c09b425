"""What the records of an evaluation say: accuracy, cost, paired differences and calibration, as Markdown.

A record is a dictionary as `evaluate` writes it. A failed one counts as wrong in every accuracy and has no cost.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.gridworld.questions import FAMILIES

__all__ = [
    "PAIRS",
    "Interval",
    "clustered_bootstrap",
    "expected_calibration_error",
    "paired_difference",
    "tables",
]

Record = Mapping[str, Any]

PAIRS = (("gridprobe", "uniform-like"), ("gridprobe", "all"), ("gridprobe M=8", "uniform M=8"), ("cross", "all"))
"""The comparisons that are printed, where both ways were run."""

CHUNK = 500
"""Resamples drawn at a time, to keep memory small."""


@dataclass(frozen=True)
class Interval:
    """A mean and where 95 % of its resamples lie."""

    mean: float
    low: float
    high: float
    count: int
    clusters: int


def clustered_bootstrap(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, samples: int = 4000, seed: int = 0
) -> Interval:
    """Percentile bootstrap of the mean that draws whole clusters: questions about one video are not independent."""
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        raise ValueError("a mean of nothing has no interval")
    _, member = np.unique(np.asarray(clusters), return_inverse=True)
    total, size = np.bincount(member, weights=numbers), np.bincount(member).astype(np.float64)
    rng, means = np.random.default_rng(seed), []
    for start in range(0, samples, CHUNK):
        drawn = rng.integers(0, len(size), (min(CHUNK, samples - start), len(size)))
        means.append(total[drawn].sum(axis=1) / size[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return Interval(float(numbers.mean()), float(low), float(high), len(numbers), len(size))


def paired_difference(records: Iterable[Record], one: str, other: str, *, seed: int = 0) -> Interval | None:
    """Accuracy of one way minus that of the other, over the items both were asked; None without any."""
    by_way: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        by_way[record["way"]][record["id"]] = record
    shared = [name for name in by_way[one] if name in by_way[other]]
    if not shared:
        return None
    gained = [float(by_way[one][name]["right"]) - float(by_way[other][name]["right"]) for name in shared]
    return clustered_bootstrap(gained, [by_way[one][name]["seed"] for name in shared], seed=seed)


def expected_calibration_error(confidence: npt.ArrayLike, right: npt.ArrayLike, *, bins: int = 10) -> float:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by how full they are."""
    sure, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not len(sure):
        raise ValueError("calibration of nothing is not defined")
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gap = np.bincount(place, weights=hit - sure, minlength=bins)
    return float(np.abs(gap).sum() / len(sure))


def tables(records: Sequence[Record], *, together: bool = False) -> str:
    """All tables, for each model and source of frames its own, or for all together.

    Of records of the same thing the last one counts.
    """
    names = ("model", "source", "id", "way")
    # Subsets of an item differ in kind and size.
    unique = {(*(r[name] for name in names), r.get("kind"), r.get("kind") and r["kept"]): r for r in records}
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in unique.values():
        groups[record["model"], record["source"]].append(record)
    if together:
        title = " and ".join(f"{model}, {source} frames" for model, source in sorted(groups))
        return _group(title, [record for group in groups.values() for record in group])
    return "\n\n".join(_group(f"{model}, {source} frames", group) for (model, source), group in sorted(groups.items()))


def _group(title: str, records: list[Record]) -> str:
    answers = [record for record in records if record["way"] != "subset"]
    subsets = [record for record in records if record["way"] == "subset"]
    parts = [f"## {title}"]
    if answers:
        parts += [_accuracy(answers), _differences(answers), _cost(answers), _kept(answers)]
    if subsets:
        parts.append(_calibration(subsets))
    return "\n\n".join(parts)


def _accuracy(records: list[Record]) -> str:
    ways = list(dict.fromkeys(record["way"] for record in records))
    rows = []
    for family in (*FAMILIES, "all families"):
        mine = [record for record in records if family in (record["family"], "all families")]
        cells = [[float(record["right"]) for record in mine if record["way"] == way] for way in ways]
        if mine:
            counts = {len(cell) for cell in cells}
            rows.append([family, "–".join(map(str, sorted({min(counts), max(counts)}))), *map(_share, cells)])
    return "### Accuracy\n\n" + _markdown(["family", "n", *ways], rows)


def _share(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f}" if values else "–"


def _cost(records: list[Record]) -> str:
    rows = []
    for way in dict.fromkeys(record["way"] for record in records):
        mine = [record for record in records if record["way"] == way]
        done = [record for record in mine if record["outcome"] == "ok"]
        rows.append([way, str(len(mine)), str(len(mine) - len(done)), *(_spent(done) if done else ["–"] * 8)])
    header = ["way", "n", "failed", "mean kept", "median kept", "TFLOPs", "× all", "× all (paper)"]
    return "### Cost\n\n" + _markdown([*header, "probe s", "focus s", "evidence hit"], rows)


def _spent(records: list[Record]) -> list[str]:
    kept = [record["kept"] for record in records]
    tflops, baseline, paper, paper_baseline = (
        float(np.mean([record[name] for record in records]))
        for name in ("tflops", "baseline_tflops", "tflops_paper", "baseline_tflops_paper")
    )
    probe, focus = (float(np.mean([record["seconds"][stage] for record in records])) for stage in ("probe", "focus"))
    covered = [record["covered"] for record in records if record["covered"] is not None]
    return [
        f"{np.mean(kept):.1f}",
        f"{np.median(kept):.0f}",
        f"{tflops:.4f}",
        f"{tflops / baseline:.3f}",
        f"{paper / paper_baseline:.3f}",
        f"{probe:.3f}",
        f"{focus:.3f}",
        _share(covered),
    ]


def _kept(records: list[Record]) -> str:
    """How many frames the adaptive ways keep for each family, and what share of the evidence is among them."""
    ways = [way for way in ("gridprobe", "uniform-like", "cross") if any(record["way"] == way for record in records)]
    rows = []
    for family in FAMILIES:
        mine = [record for record in records if record["family"] == family and record["outcome"] == "ok"]
        if mine:
            rows.append([family, *(_kept_cell([record for record in mine if record["way"] == way]) for way in ways)])
    return "### Frames kept: mean / median / evidence hit\n\n" + _markdown(["family", *ways], rows)


def _kept_cell(records: list[Record]) -> str:
    if not records:
        return "–"
    kept = [record["kept"] for record in records]
    covered = [record["covered"] for record in records if record["covered"] is not None]
    return f"{np.mean(kept):.1f} / {np.median(kept):.0f} / {_share(covered)}"


def _differences(records: list[Record]) -> str:
    rows = []
    for one, other in PAIRS:
        found = paired_difference(records, one, other)
        if found:
            # One video alone says nothing about how much videos differ.
            interval = f"{found.low:+.3f} … {found.high:+.3f}" if found.clusters > 1 else "–"
            rows.append([f"{one} − {other}", f"{found.mean:+.3f}", interval, str(found.count), str(found.clusters)])
    header = ["difference in accuracy", "mean", "95 % interval", "items", "videos"]
    return "### Paired differences\n\n" + (_markdown(header, rows) if rows else "No two ways to compare.")


def _calibration(records: list[Record]) -> str:
    done = [record for record in records if record["outcome"] == "ok"]
    rows = []
    for family in (*FAMILIES, "all families"):
        mine = [record for record in done if family in (record["family"], "all families")]
        if mine:
            rows.append([family, *_calibrated(mine)])
    header = [
        "family",
        "random subsets",
        "accuracy",
        "confidence",
        "ECE",
        "without evidence",
        "accuracy",
        "peak − chance",
    ]
    failed = f"\n\n{len(records) - len(done)} items failed." if len(done) < len(records) else ""
    return "### Calibration on subsets\n\n" + _markdown(header, rows) + failed


def _calibrated(records: list[Record]) -> list[str]:
    drawn = [record for record in records if record["kind"] == "random"]
    blind = [record for record in records if record["kind"] == "blind"]
    sure, right = [record["confidence"] for record in drawn], [float(record["right"]) for record in drawn]
    error = f"{expected_calibration_error(sure, right):.3f}" if drawn else "–"
    excess = [record["confidence"] - record["chance"] for record in blind]
    blind_right = [float(record["right"]) for record in blind]
    return [str(len(drawn)), _share(right), _share(sure), error, str(len(blind)), _share(blind_right), _share(excess)]


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))
