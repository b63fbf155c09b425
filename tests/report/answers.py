"""Answers to render: real Sessions over drawn frames with a scripted model, and hand-made ones for odd shapes."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe import Answer, FramePool, MockModel, Question, Session, VideoInfo
from gridprobe.answer import AnswerCost, Seconds, Trace
from gridprobe.early_exit import EarlyExit
from gridprobe.importance import Grid, ImportanceMap, MapKind
from gridprobe.models import Posterior, Request
from gridprobe.models.base import Cost
from gridprobe.options import Options
from gridprobe.selectors import Selection
from gridprobe.video import FrameSize

PUBLISHED: dict[str, Any] = {"effort": "focus", "probes": "fresh", "frames": "shape", "context": "none"}
"""The published method: rows and columns are probed by themselves, and there is no overview."""
NEEDLE = (90, 91, 92, 102)
CITIES = Question(
    "In which city does the balloon land after it has crossed the mountains?",
    options=["Oslo, on the market square", "Rome, beside the river", "Lima, in a football ground", "Not shown"],
    answer="B",
)


def landscape(frames: int = 144, width: int = 256, height: int = 144) -> npt.NDArray[np.uint8]:
    """A day over hills: the sky turns, a sun moves, hills drift by; the needle frames carry a red balloon."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    y, x = y / height, x / width
    pixels = np.empty((frames, height, width, 3), np.uint8)
    for i in range(frames):
        day = i / max(1, frames - 1)
        light = 0.25 + 0.75 * np.sin(np.pi * day)
        sky = np.stack([90 + 150 * day + 30 * y, 130 + 60 * np.sin(6 * day) + 40 * y, 215 - 90 * day + 20 * y], -1)
        sun = ((x - day) * width / height) ** 2 + (y - 0.25) ** 2 < 0.006
        sky[sun] = (255, 236, 150)
        for depth, colour in ((0.55, (70, 95, 110)), (0.7, (50, 90, 60)), (0.85, (95, 80, 45))):
            ridge = depth + 0.07 * np.sin(7 * x + 9 * depth + 5 * day * depth) + 0.03 * np.sin(23 * x + 20 * day)
            sky[y > ridge] = colour
        if i in NEEDLE:
            sky[(((x - 0.55) * width / height) ** 2 + (y - 0.4) ** 2) < 0.025] = (225, 30, 35)
        pixels[i] = np.clip(sky * light, 0, 255)
    return pixels


def info(path: str = "/videos/balloon.mp4") -> VideoInfo:
    return VideoInfo(
        path, "mp4", "h264", 1920, 1080, 0, 25.0, 3600.0, 90000, 3600.0, 90000, 0.0, "yuv420p", False, "PyAV", "f00d"
    )


def balloon(k: int = 12, frames: int | None = None, *, wide: int = 256, high: int = 144, **settings: Any) -> Answer:
    """A whole run of the published method: probes that hold more of the balloon are surer of B."""
    count = k * k if frames is None else frames
    times = tuple(3600 * (i + 0.5) / count for i in range(count))
    pool = FramePool(landscape(count, wide, high), times, "f00d", info=info())
    rng = np.random.default_rng(7)

    def eyes(request: Request) -> dict[str, float]:
        image = request.frames.pixels.astype(np.int16)
        red = ((image[..., 0] > 120) & (image[..., 1] < 70) & (image[..., 2] < 70)).mean(axis=(1, 2))
        sure = 0.34 + 0.5 * min(1.0, 3 * float((red > 0.01).mean())) + rng.uniform(0, 0.08)
        return {"A": (1 - sure) / 2, "B": sure, "C": (1 - sure) / 3, "D": (1 - sure) / 6}

    scripted = MockModel(eyes, name="balloon-eyes")
    return Session(pool, model=scripted, **{"k": k, **PUBLISHED, **settings}).ask(CITIES)


def handmade(
    rows: tuple[float, ...] = (0.4, 0.9, 0.5),
    columns: tuple[float, ...] = (0.3, 0.8, 0.6),
    *,
    kept: tuple[int, ...] = (1, 4, 5),
    cells: int = -1,
    question: Question = CITIES,
    pixels: npt.NDArray[np.uint8] | None = None,
    **changes: Any,
) -> Answer:
    """An answer with exactly this map and these kept cells; one frame every ten minutes, all mid grey."""
    grid = Grid(len(columns), cells)
    pixels = np.full((grid.cells, 36, 64, 3), 128, np.uint8) if pixels is None else pixels
    pool = FramePool(pixels, tuple(600.0 * i for i in range(grid.cells)), "f00d")
    evidence = ImportanceMap(grid, rows, columns)
    selection = replace(Selection.of("gridprobe", pool, kept), evidence=evidence)
    weights = dict(zip(question.labels, [0.25, 1.5, *[0.125] * 24], strict=False))
    answer = Answer(
        question=question,
        posterior=Posterior.from_probabilities(weights, Cost()),
        selection=selection,
        cost=AnswerCost(
            Cost(6, 6000, 5000, 2e12, 3e12), Cost(1, 3000, 2500, 3e12, 4e12), Cost(1, 9000, 8000, 2e13, 28e12)
        ),
        seconds=Seconds(1.0, 2.25, 0.5),
        pool=pool,
        frames=pool.take(kept),
        models=(("scripted:a",), "scripted:a"),
        settings=Options(k=grid.k, **PUBLISHED).resolve(model=MockModel(lambda _: {}, name="a")).describe(),
    )
    return replace(answer, **changes)


def by_frame(scores: tuple[float, ...], *, kind: MapKind = "attention", kept: tuple[int, ...] = (4,)) -> Answer:
    """An answer whose map has one number for each frame."""
    k = next(k for k in range(1, len(scores) + 1) if k * k >= len(scores))
    grid = Grid(k, len(scores))
    answer = handmade((0.5,) * k, (0.5,) * k, cells=len(scores), kept=kept)
    evidence = ImportanceMap(grid, by_frame=scores, kind=kind)
    return replace(answer, selection=replace(answer.selection, evidence=evidence))


def posterior(**shares: float) -> Posterior:
    """For example posterior(A=0.1, B=0.9); options that are not named share the rest."""
    rest = (1 - sum(shares.values())) / (len(CITIES.labels) - len(shares))
    return Posterior.from_probabilities({label: shares.get(label, rest) for label in CITIES.labels}, Cost())


def reached(answer: Answer, by: Any, *, overview: Posterior, exit: EarlyExit | None = None, **changes: Any) -> Answer:
    """The same answer after an overview of frames of 48 pixels."""
    settings = {k: v for k, v in PUBLISHED.items() if k not in ("effort", "context")}
    settings |= {"effort": "auto" if exit else "full", "small": FrameSize(max_side=48)}
    described = Options(**settings).resolve(model=MockModel(lambda _: {}, name="a")).describe()
    told = Trace(by, overview=overview, focus=None if by == "overview" else answer.posterior, exit=exit)
    return replace(answer, settings=described, reached=replace(told, **changes))


def without_map(answer: Answer, kept: tuple[int, ...] = (0, 4, 8)) -> Answer:
    """The same answer as if a selector without evidence had chosen the frames."""
    selection = Selection.of("uniform", answer.pool, kept)
    return replace(answer, selection=selection, frames=answer.pool.take(kept))
