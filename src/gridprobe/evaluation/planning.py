"""plan(): what a run would cost, before a model is loaded.

Every probe is laid out as it would be sent and counted. What is kept of a pool is not known before, so the focused pass
is a range, from one frame to all of them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gridprobe.backends import Posterior, ScoreRequest, Scripted
from gridprobe.backends.embedded import MODELS
from gridprobe.benchmarks import Item
from gridprobe.errors import DataError, ModelError, UsageError, VideoError
from gridprobe.evaluation.tasks import Shard, tasks_of
from gridprobe.evaluation.trial import as_it_is, nothing
from gridprobe.flops import QWEN3_VL, Cost, ModelDims, dims_of, price
from gridprobe.pipeline import check_selector, focus_request, make_selector
from gridprobe.progress import report
from gridprobe.question import Question
from gridprobe.settings import Settings
from gridprobe.video import FramePool, FrameSize, VideoInfo, probe
from gridprobe.video.frames import Undecoded

__all__ = ["SCHEMA", "Gauge", "gauge", "plan"]

SCHEMA = "gridprobe.plan-run/1"
BYTES = 2
"""Of a weight or an activation in bfloat16, which is what a GPU is given."""
CAUTION = 2
"""As the engine, a pass is taken to need so many times its activations."""
UNTIED = ("8B",)
"""Sizes of Qwen3-VL whose vocabulary has two matrices, one at each end."""


@dataclass(frozen=True)
class Gauge:
    """Measures requests for a model that is not loaded."""

    name: str
    dims: ModelDims
    measure: Callable[[ScoreRequest], Cost]
    exact: bool
    """Whether text is counted by the model's own tokenizer; else four characters are taken for a token."""
    weights: int
    """Bytes."""

    identity = "gauge"

    def estimate(self, request: ScoreRequest) -> Cost:
        """As a backend does."""
        return self.measure(request)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Believe in nothing, at the model's price: what a selector spends is found by letting it select."""
        return [Posterior.from_probabilities(dict.fromkeys(r.labels, 1.0), self.measure(r)) for r in requests]

    def memory(self, tokens: int) -> float:
        """Gigabytes for the weights and one pass over so many tokens: its widest layer, and all keys and values."""
        d = self.dims
        attention = (d.heads + 2 * d.kv_heads) * d.head_dim
        widest = (6 * d.hidden + 3 * d.ffn + 3 * attention) * BYTES
        kept = 2 * d.kv_heads * d.head_dim * d.layers * BYTES
        return (self.weights + tokens * (CAUTION * widest + kept)) / 1e9


def gauge(model: str) -> Gauge:
    """Find a model's widths and, if its folder is at hand, its tokenizer; nothing is downloaded."""
    folder = _folder(model)
    if folder is None:
        size = re.search(r"qwen3-vl-(\d+b)\b", model.lower())
        if size is None or size[1].upper() not in QWEN3_VL:
            known = ", ".join(f"Qwen/Qwen3-VL-{name}-Instruct" for name in QWEN3_VL)
            raise UsageError(
                f"cannot plan for {model!r}: it is no checkpoint folder on this machine, nor one of {known}"
            )
        dims, tied = QWEN3_VL[size[1].upper()], size[1].upper() not in UNTIED
        return Gauge(model, dims, _guess(dims), False, _parameters(dims, tied=tied) * BYTES)
    dims = _read_dims(folder)
    exact = _count(folder, dims)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return Gauge(model, dims, exact or _guess(dims), exact is not None, weights)


def _folder(model: str) -> Path | None:
    kind, _, size = model.partition(":")
    folder = MODELS / (size or "micro") if kind == "embedded" else Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder
    with suppress(ModuleNotFoundError, OSError, ValueError):
        from huggingface_hub import snapshot_download

        found = Path(snapshot_download(model, local_files_only=True))
        return found if (found / "config.json").is_file() else None
    return None


def _read_dims(folder: Path) -> ModelDims:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
        return dims_of(json.loads(text, object_hook=lambda values: SimpleNamespace(**values)))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder}/config.json is not that of a Qwen3-VL model: {error}") from error


def _guess(dims: ModelDims) -> Callable[[ScoreRequest], Cost]:
    return Scripted(lambda request: {}, priced_as=dims).estimate


def _count(folder: Path, dims: ModelDims) -> Callable[[ScoreRequest], Cost] | None:
    """Count tokens as the engine does; None without its packages or a tokenizer."""
    try:
        from transformers import AutoTokenizer

        from gridprobe.backends.qwen3vl.prompt import SpecialTokens, build_layout, encoder

        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (ModuleNotFoundError, OSError, ValueError):
        return None
    special, encode, vision = SpecialTokens.of(tokenizer), encoder(tokenizer), dims.vision

    def measure(request: ScoreRequest) -> Cost:
        layout = build_layout(request, encode, special, patch=vision.patch, merge=vision.merge)
        return price(dims, len(layout), [layout.grid])

    return measure


def _parameters(dims: ModelDims, *, tied: bool) -> int:
    """How many weights a model of these widths has, but for norms and biases (about one in a thousand)."""
    q, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    layer = dims.hidden * (2 * q + 2 * kv + 3 * dims.ffn)
    vocabulary = dims.hidden * dims.vocab * (1 if tied else 2)
    v = dims.vision
    merged = v.hidden * v.merge**2
    vision = v.depth * (4 * v.hidden**2 + 2 * v.hidden * v.ffn) + v.mergers * merged * (merged + v.out)
    return dims.layers * layer + vocabulary + vision + 3 * v.temporal_patch * v.patch**2 * v.hidden


def plan(
    items: Sequence[Item],
    settings: Settings,
    *,
    model: Gauge,
    answer_model: Gauge | None = None,
    selector: str = "gridprobe",
    ready: Callable[[Item], object] = nothing,
    question: Callable[[Item], Question] = as_it_is,
) -> dict[str, Any]:
    """What asking these questions would take.

    Sizes are read from the videos' headers. A video that cannot be read is counted with the size most others have, and
    reported.
    """
    check_selector(selector, settings)
    tasks = tasks_of(items, Shard())
    ready(tasks[0].items[0])
    videos = list(_headers([task.items[0] for task in tasks], settings))
    known = [info for info in videos if isinstance(info, VideoInfo)]
    usual = _usual(known, videos)
    answerer = answer_model or model
    keeps_all = selector == "all"
    probes, least, most = Cost(), Cost(), Cost()
    longest, done = 0, 0
    for task, info in zip(tasks, videos, strict=True):
        pool, native = _pools(task.items[0], info if isinstance(info, VideoInfo) else usual, settings)
        chooser = make_selector(selector, model, settings)
        fewest, largest = _kept(settings, len(pool), keeps_all=keeps_all)
        for item in task.items:
            asked = question(item)
            probes += chooser.select(pool, asked).cost
            least += answerer.measure(focus_request(native.take(range(fewest)), asked, settings))
            full = answerer.measure(focus_request(native.take(range(largest)), asked, settings))
            most, longest = most + full, max(longest, full.tokens)
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
        "model": model.name,
        "answer_model": answerer.name,
        "text_tokens": "counted by the tokenizer"
        if model.exact and answerer.exact
        else "estimated at 4 characters each",
        "probes": _told(probes),
        "focus": {"least": _told(least), "most": _told(most)},
        "memory_gb": {"weights": _weights(model, answerer), "largest_pass": round(answerer.memory(longest), 1)},
        "longest_pass_tokens": longest,
    }


def _headers(items: Sequence[Item], settings: Settings) -> Iterator[VideoInfo | str]:
    """Each video's properties, or why they cannot be read."""
    for done, item in enumerate(items, start=1):
        try:
            yield probe(item.video, limits=settings.limits)
        except VideoError as error:
            yield str(error)
        report("headers", done, len(items))


def _usual(known: Sequence[VideoInfo], videos: Sequence[VideoInfo | str]) -> VideoInfo:
    """A video of the size that most have."""
    if not known:
        raise DataError(f"no video of the benchmark can be read: {videos[0]}")
    (size, _), *_ = Counter((info.width, info.height) for info in known).most_common(1)
    return next(info for info in known if (info.width, info.height) == size)


def _seconds(item: Item, info: VideoInfo | str) -> float | None:
    return item.duration if item.duration is not None or isinstance(info, str) else info.duration


def _pools(item: Item, info: VideoInfo, settings: Settings) -> tuple[FramePool, FramePool]:
    """The pool at the selector's size and at native size; a short video has fewer frames than the grid has cells."""
    cells = settings.k**2
    seconds = _seconds(item, info) or 0.0
    count = max(1, min(cells, info.frames or cells))
    times = tuple((i + 0.5) / count * seconds for i in range(count))
    return _pool(times, info, settings.pool_pixels), _pool(times, info, settings.native_pixels)


def _pool(times: tuple[float, ...], info: VideoInfo, size: FrameSize) -> FramePool:
    width, height = size.of(info)
    blank = lambda: np.zeros((len(times), height, width, 3), np.uint8)  # noqa: E731  # only a collage looks
    facts = {"source": info.path, "info": info, "warnings": (), "substituted": 0}
    return Undecoded.of(blank, (width, height), times, **facts)


def _kept(settings: Settings, pool: int, *, keeps_all: bool) -> tuple[int, int]:
    """How few and how many frames the focused pass may have."""
    if keeps_all:
        return pool, pool
    if settings.frames == "auto":
        return 1, pool
    return min(settings.frames, pool), min(settings.frames, pool)


def _weights(*gauges: Gauge) -> float:
    return round(sum({each.name: each.weights for each in gauges}.values()) / 1e9, 1)


def _told(cost: Cost) -> Mapping[str, float]:
    return {
        "calls": cost.calls,
        "tokens": cost.tokens,
        "visual_tokens": cost.visual_tokens,
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
    }
