"""estimate_run(): what a run would cost, before a model is loaded.

Nor is it known how many questions the overview settles: those need neither probes nor a focused pass.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridprobe._util import report
from gridprobe.errors import DataError, VideoError
from gridprobe.models import CostModel
from gridprobe.models.base import Cost
from gridprobe.plan import Plan
from gridprobe.video import SampleSpec, VideoInfo, probe
from gridprobe_eval.benchmarks import Benchmark, Item
from gridprobe_eval.planning import BlankVideo, Stages
from gridprobe_eval.tasks import Choice, Method, Shard, tasks_of

SCHEMA = "gridprobe.plan-run/1"


def estimate_run(
    benchmark: Benchmark,
    setup: Plan,
    *,
    model: CostModel,
    answerer: CostModel,
    choice: Choice | None = None,
    subtitles: str = "none",
) -> dict[str, Any]:
    """What asking a benchmark's questions would cost, with cost models in place of the models.

    Sizes are read from the videos' headers. A video that cannot be read is reported and counted with the
    most common size.
    """
    estimating = replace(setup, selector=setup.selector.loaded(weights=False)).using(model, answerer)
    method = Method(estimating, benchmark.open, subtitles)
    setup = method.setup
    assert setup.sampling is not None
    items = (choice or Choice()).items(benchmark)
    tasks = tasks_of(items, Shard())
    videos = list(_headers([task.items[0] for task in tasks], benchmark, setup.sampling))
    infos = [info for info in videos if isinstance(info, VideoInfo)]
    usual = _usual(infos, videos)
    costs, done = Stages(), 0
    for task, info in zip(tasks, videos, strict=True):
        seconds = _seconds(task.items[0], info)
        video = BlankVideo.of(info if isinstance(info, VideoInfo) else usual, setup, seconds=seconds)
        for item in task.items:
            costs = costs.plus(method.question(item), video, setup)
            done += 1
            report("estimate_run", done, len(items))
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
        "overview": _values(costs.overview),
        "settled_by_overview": setup.effort in ("quick", "auto") and costs.overview.calls > 0,
        "probes": _values(costs.probes),
        "focus": {"least": _values(costs.least), "most": _values(costs.most)},
        "memory_gb": {
            "weights": _weights(model, answerer),
            "largest_pass": round(answerer.capabilities.memory(costs.longest), 1),
        },
        "longest_pass_tokens": costs.longest,
    }


def _headers(items: Sequence[Item], benchmark: Benchmark, spec: SampleSpec) -> Iterator[VideoInfo | str]:
    """Each video's properties, or why they cannot be read."""
    for done, item in enumerate(items, start=1):
        try:
            yield benchmark.info(item) or probe(item.video, limits=spec.limits, stream=spec.stream)
        except VideoError as error:
            yield str(error)
        report("headers", done, len(items))


def _usual(infos: Sequence[VideoInfo], videos: Sequence[VideoInfo | str]) -> VideoInfo:
    """A video of the most common size."""
    if not infos:
        raise DataError(f"no video of the benchmark can be read: {videos[0]}")
    (size, _), *_ = Counter((info.width, info.height) for info in infos).most_common(1)
    return next(info for info in infos if (info.width, info.height) == size)


def _seconds(item: Item, info: VideoInfo | str) -> float | None:
    return item.duration if item.duration is not None or isinstance(info, str) else info.duration


def _weights(*models: CostModel) -> float:
    return round(sum({each.identity: each.capabilities.weight_bytes or 0 for each in models}.values()) / 1e9, 1)


def _values(cost: Cost) -> Mapping[str, float]:
    return {
        "calls": cost.calls,
        "tokens": cost.tokens,
        "visual_tokens": cost.visual_tokens,
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
    }
