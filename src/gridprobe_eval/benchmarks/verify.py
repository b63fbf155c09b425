"""verify(): check before a long run that a benchmark's files are complete and readable."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridprobe._util import report
from gridprobe.errors import GridProbeError
from gridprobe.video import FrameSize, probe, sample
from gridprobe.video.subtitles import read_subtitles
from gridprobe_eval.benchmarks import load_benchmark
from gridprobe_eval.benchmarks.base import Benchmark, DataProblem

LENGTH_SECONDS, LENGTH_SHARE = 2.0, 0.1
"""How far the length of a video may be from the annotated one; containers and annotators round."""
DEEP_CELLS = 9
DEEP_SIZE = FrameSize(max_side=224)

RELEASES: dict[str, dict[str, int]] = {
    "video-mme-v2": {"": 3200},
    "longvideobench": {"": 1337, "paper_subset": 1202, "test": 5341},
    "video-mme": {"": 2700},
    "mlvu": {"": 2175},
    "lvbench": {"": 1549},
    "egoschema": {"": 500, "all": 5031},
    "nextqa": {"": 4996, "test": 8564},
}
"""Number of rows in the official releases, by benchmark and variant."""

VARIANTS = {
    "": "without any option",
    "paper_subset": "with paper_subset=true",
    "test": "with split=test",
    "all": "with answered=false",
}
"""How each variant is asked for."""

KINDS = {
    "rows": "the number of questions differs from the release's",
    "row": "questions that cannot be used",
    "missing video": "missing videos",
    "unreadable video": "videos that cannot be read to the end",
    "other length": "videos whose length is not the annotated one",
    "missing subtitles": "missing subtitle files",
    "unreadable subtitles": "subtitle files that cannot be read",
}


@dataclass(frozen=True)
class Verified:
    """What was checked, and the problems found."""

    benchmark: str
    version: str
    rows: int
    released_rows: int | None
    """Rows in the official release, if there is one."""
    questions: int
    videos: int
    without_subtitles: int
    """Videos for which the benchmark names no subtitle file."""
    findings: tuple[DataProblem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"schema": "gridprobe.data/1", **asdict(self), "findings": [asdict(each) for each in self.findings]}


def verify(
    name: str, data: Path, options: Mapping[str, Any] | None = None, *, deep: bool = False, subtitles: bool = True
) -> Verified:
    """Load the benchmark and check every file it names, each once.

    Args:
        name: one of `BENCHMARKS`.
        data: the benchmark's folder.
        options: the benchmark's own options.
        deep: sample frames from the whole of each video, which finds truncated and damaged files; otherwise read only
            the header and the first frame.
        subtitles: whether to check subtitle files, too.
    """
    options = dict(options or {})
    benchmark = load_benchmark(name, data, **options)
    rows, released = len(benchmark.items) + len(benchmark.problems), released_rows(name, options)
    findings = list(benchmark.problems)
    if released is not None and rows != released:
        findings.insert(0, DataProblem(str(data), _row_count(name, rows, released), "rows"))
    findings += _check_files(benchmark, deep=deep, subtitles=subtitles)
    return Verified(
        benchmark=name,
        version=benchmark.version,
        rows=rows,
        released_rows=released,
        questions=len(benchmark.items),
        videos=len({item.video for item in benchmark.items}),
        without_subtitles=len({item.video for item in benchmark.items if item.subtitles is None}),
        findings=tuple(findings),
    )


def released_rows(name: str, options: Mapping[str, Any]) -> int | None:
    """How many questions the official release of this variant has; None if there is no release."""
    variant = ""
    if options.get("paper_subset"):
        variant = "paper_subset"
    elif options.get("split") == "test":
        variant = "test"
    elif options.get("answered") is False:
        variant = "all"
    return RELEASES.get(name, {}).get(variant)


def _row_count(name: str, rows: int, released: int) -> str:
    """How many rows there are and should be; the rows may be those of another variant."""
    others = [VARIANTS[variant] for variant, count in RELEASES[name].items() if count == rows]
    same = f", but {rows} {others[0]}" if others else ""
    return f"{rows} questions; the official release has {released}{same}"


def _check_files(benchmark: Benchmark, *, deep: bool, subtitles: bool) -> Iterator[DataProblem]:
    videos = list(dict.fromkeys(item.video for item in benchmark.items))
    tracks = list(dict.fromkeys(item.subtitles for item in benchmark.items if item.subtitles)) if subtitles else []
    made = benchmark.generated
    lengths = {item.video: item.duration for item in benchmark.items}
    for done, path in enumerate(videos, start=1):
        if path.exists() or not made:
            problems = list(_check("video", path, _check_frames if deep else _check_header))
            yield from problems or _check_length(path, lengths[path])
        report("verify videos", done, len(videos))
    for done, path in enumerate(tracks, start=1):
        yield from _check("subtitles", path, _check_subtitles)
        report("verify subtitles", done, len(tracks))


def _check(kind: str, path: Path, check: Callable[[Path], list[str]]) -> Iterator[DataProblem]:
    if not path.exists():
        yield DataProblem(str(path), _hint(path), f"missing {kind}")
        return
    try:
        problems = check(path)
    except GridProbeError as error:
        problems = [str(error)]
    yield from (DataProblem(str(path), problem, f"unreadable {kind}") for problem in problems)


def _hint(path: Path) -> str:
    """The likely cause, often an archive that was not unpacked."""
    missing = "no such file" if path.parent.is_dir() else f"there is no folder {path.parent}"
    places = {"in the same folder ": path.parent, "in the folder above it ": path.parent.parent}
    for where, folder in places.items():
        names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        parts = [name for name in names if ".tar.part" in name]
        if parts:
            stem = parts[0][: parts[0].index(".part")]
            return f"{missing}; {stem} is still in {len(parts)} parts; run: cat {stem}.part.* | tar -x -C {folder} -f -"
        archives = [name for name in names if name.endswith((".zip", ".tar", ".gz"))]
        if archives:
            return f"{missing}; {archives[0]} {where}may need unpacking"
    return missing


def _check_length(path: Path, annotated: float | None) -> Iterator[DataProblem]:
    """Another length than the annotated one: another video, or another cut of it."""
    length = probe(path).duration if annotated is not None and path.exists() else None
    if annotated is None or length is None or abs(length - annotated) <= max(LENGTH_SECONDS, LENGTH_SHARE * annotated):
        return
    yield DataProblem(str(path), f"{length:.1f} s long; the annotation says {annotated:.1f} s", "other length")


def _check_header(path: Path) -> list[str]:
    probe(path)
    return []


def _check_frames(path: Path) -> list[str]:
    """The warnings about damage; a short or HDR video is not a problem."""
    pool = sample(path, num_frames=DEEP_CELLS, precision="keyframe", size=DEEP_SIZE)
    return [warning for warning in pool.warnings if "truncated" in warning or "damaged" in warning]


def _check_subtitles(path: Path) -> list[str]:
    track = read_subtitles(path)
    return [f"{track.skipped} entries are not timed lines"] if track.skipped else []
