"""plan(): what a run would cost, before a model is loaded.

Every probe is laid out as it would be sent, and counted. How many frames are kept is not known in advance, so the
focused pass is a range between the selector's bounds. Nor is it known how many questions the overview settles: those
need neither probes nor a focused pass. A second look (refine) is not counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.backends import FrameGroup, Gauge, ScoreRequest
from gridprobe.benchmarks import Benchmark, Item
from gridprobe.errors import DataError, VideoError
from gridprobe.evaluation.method import Method
from gridprobe.evaluation.tasks import Choice, Shard, tasks_of
from gridprobe.flops import Cost
from gridprobe.progress import report
from gridprobe.question import Question
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.setup import Setup
from gridprobe.stages import focus_request
from gridprobe.video import FramePool, FrameSize, Pending, SampleSpec, VideoInfo, probe

__all__ = ["SCHEMA", "GridPrice", "blank_frames", "plan", "price_grid"]

SCHEMA = "gridprobe.plan-run/1"


def plan(
    benchmark: Benchmark,
    setup: Setup,
    *,
    model: Gauge,
    answerer: Gauge,
    choice: Choice | None = None,
    subtitles: str = "none",
) -> dict[str, Any]:
    """What asking a benchmark's questions would cost, with gauges in place of the models.

    Sizes are read from the videos' headers. A video that cannot be read is reported and counted with the
    most common size.
    """
    gauged = replace(setup, selector=setup.selector.loaded(weights=False)).using(model, answerer)
    method = Method.of(benchmark, gauged, subtitles=subtitles)
    setup = method.setup
    assert setup.sampling is not None
    items = (choice or Choice()).items(benchmark)
    tasks = tasks_of(items, Shard())
    videos = list(_headers([task.items[0] for task in tasks], benchmark, setup.sampling))
    known = [info for info in videos if isinstance(info, VideoInfo)]
    usual = _usual(known, videos)
    bill, done = _Bill(), 0
    for task, info in zip(tasks, videos, strict=True):
        video = _Footage.of(task.items[0], info if isinstance(info, VideoInfo) else usual, setup)
        for item in task.items:
            asked = method.question(item)
            bill = bill.plus(asked, video, setup)
            done += 1
            report("plan", done, len(items))
    return {
        "schema": SCHEMA,
        "questions": len(items),
        "videos": len(tasks),
        "hours": sum(_seconds(t.items[0], i) or 0.0 for t, i in zip(tasks, videos, strict=True)) / 3600,
        "unknown_length": sum(_seconds(t.items[0], i) is None for t, i in zip(tasks, videos, strict=True)),
        "unreadable": [info for info in videos if not isinstance(info, VideoInfo)],
        "frame_size": [usual.width, usual.height],
        "model": model.identity,
        "answer_model": answerer.identity,
        "text_tokens": "counted by the tokenizer"
        if model.exact and answerer.exact
        else "estimated at 4 characters each",
        "overview": _values(bill.overview),
        "settled_by_overview": setup.effort in ("quick", "auto"),
        "probes": _values(bill.probes),
        "focus": {"least": _values(bill.least), "most": _values(bill.most)},
        "memory_gb": {"weights": _weights(model, answerer), "largest_pass": round(answerer.memory(bill.longest), 1)},
        "longest_pass_tokens": bill.longest,
    }


@dataclass(frozen=True)
class _Bill:
    """What the questions so far cost, stage by stage."""

    overview: Cost = field(default_factory=Cost)
    probes: Cost = field(default_factory=Cost)
    least: Cost = field(default_factory=Cost)
    most: Cost = field(default_factory=Cost)
    longest: int = 0
    """Tokens of the longest pass."""

    def plus(self, question: Question, video: "_Footage", setup: Setup) -> "_Bill":
        """With one more question about a video."""
        pool, selector = video.frames(setup.pool_size(len(video.times))), setup.selector
        overview, probes, longest = self.overview, self.probes, self.longest
        if setup.overview is not None:
            (first,) = setup.model.score([overview_request(pool, question, setup.overview)])
            overview, longest = overview + first.cost, max(longest, first.cost.tokens)
            selector = selector.with_overview(first)
        if setup.effort == "quick":
            return replace(self, overview=overview, longest=longest)
        if selector.models:
            probes += selector.select(pool, question).cost
        few, many = (
            setup.answerer.estimate(_focus(count, video, question, setup)) for count in selector.bounds(len(pool))
        )
        return _Bill(overview, probes, self.least + few, self.most + many, max(longest, many.tokens))


@dataclass(frozen=True)
class GridPrice:
    """What one question about K × K frames would cost."""

    k: int
    everything: Cost
    """One pass over all frames at native size."""
    overview: Cost
    selecting: Cost
    """The overview and the probes."""
    focus: Mapping[int, Cost]
    """Number of kept frames -> the focused pass over them."""


def price_grid(setup: Setup, question: Question, info: VideoInfo, *, kept: Sequence[int] = ()) -> GridPrice:
    """Price one question about a video of this size, for so many kept frames or else for the selector's bounds.

    The models of the setup are gauges.
    """
    assert setup.sampling is not None
    video = _Footage.of(Item("", question, Path(info.path), ""), info, setup)
    cells = len(video.times)
    counts = kept or setup.selector.bounds(cells)
    bill = _Bill().plus(question, video, setup)
    whole = focus_request(video.frames(setup.size_of(setup.shown, cells)), question, setup)
    return GridPrice(
        k=isqrt(setup.sampling.cells),
        everything=setup.answerer.estimate(whole),
        overview=bill.overview,
        selecting=bill.overview + bill.probes,
        focus={count: setup.answerer.estimate(_focus(count, video, question, setup)) for count in counts},
    )


def blank_frames(info: VideoInfo, setup: Setup) -> FramePool:
    """As many frames as a video of this size would give, at its own size, without pixels."""
    return _Footage.of(Item("", Question("-"), Path(info.path), ""), info, setup).frames(FrameSize())


def _headers(items: Sequence[Item], benchmark: Benchmark, spec: SampleSpec) -> Iterator[VideoInfo | str]:
    """Each video's properties, or why they cannot be read."""
    for done, item in enumerate(items, start=1):
        try:
            yield benchmark.info(item) or probe(item.video, limits=spec.limits, stream=spec.stream)
        except VideoError as error:
            yield str(error)
        report("headers", done, len(items))


def _usual(known: Sequence[VideoInfo], videos: Sequence[VideoInfo | str]) -> VideoInfo:
    """A video of the most common size."""
    if not known:
        raise DataError(f"no video of the benchmark can be read: {videos[0]}")
    (size, _), *_ = Counter((info.width, info.height) for info in known).most_common(1)
    return next(info for info in known if (info.width, info.height) == size)


def _seconds(item: Item, info: VideoInfo | str) -> float | None:
    return item.duration if item.duration is not None or isinstance(info, str) else info.duration


def _focus(count: int, video: "_Footage", question: Question, setup: Setup) -> ScoreRequest:
    """The focused pass over this many kept frames, with the selector's extra frames and with the context."""
    kept = video.frames(setup.size_of(setup.shown, count)).take(range(count))
    extra_frames = setup.selector.extra_frames(count, len(video.times))
    shown = [(number, setup.smaller(kept, share)) for number, share in extra_frames]
    rest = len(video.times) - count - sum(number for number, _ in shown)
    if setup.context is not None and rest:
        shown.append((rest, setup.context))
    others, start = [], count
    for number, view in shown:
        frames = video.frames(setup.size_of(view, number)).take(range(start, start + number))
        others.append(FrameGroup(frames, view))
        start += number
    return focus_request(kept, question, setup, others=others)


@dataclass(frozen=True)
class _Footage:
    """The frames that a video would give, without pixels."""

    info: VideoInfo
    times: tuple[float, ...]

    @classmethod
    def of(cls, item: Item, info: VideoInfo, setup: Setup) -> "_Footage":
        """A short video has fewer frames than the grid has cells."""
        assert setup.sampling is not None
        cells = setup.sampling.cells
        seconds = _seconds(item, info) or 0.0
        count = max(1, min(cells, info.frames or cells))
        return cls(info, tuple((i + 0.5) / count * seconds for i in range(count)))

    def frames(self, size: FrameSize) -> FramePool:
        """All of them at a size."""
        width, height = size.fit(self.info.width, self.info.height)
        shape = (len(self.times), height, width, 3)
        pixels = Pending(lambda rows: np.zeros((len(rows), *shape[1:]), np.uint8), shape)
        return FramePool(pixels, self.times, source=self.info.path, info=self.info)


def _weights(*gauges: Gauge) -> float:
    return round(sum({each.identity: each.weights for each in gauges}.values()) / 1e9, 1)


def _values(cost: Cost) -> Mapping[str, float]:
    return {
        "calls": cost.calls,
        "tokens": cost.tokens,
        "visual_tokens": cost.visual_tokens,
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
    }
