"""gridworld as a benchmark: questions and videos generated from seeds, the same on every machine."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from gridprobe.benchmarks.base import Benchmark, Item, Metric
from gridprobe.benchmarks.rows import choose
from gridprobe.benchmarks.scores import accuracy, by_bin
from gridprobe.drafts import NOT_SAID
from gridprobe.errors import UsageError
from gridprobe.video import FramePool, SampleSpec, VideoInfo

if TYPE_CHECKING:
    from gridprobe.gridworld import dataset as gridworld
    from gridprobe.gridworld.dataset import Split
    from gridprobe.gridworld.parts import Part
    from gridprobe.gridworld.world import Worlds

__all__ = ["load", "metrics", "open_answer", "open_video", "video_info"]

SIDE = 224


def load(
    data: Path,
    *,
    count: int = 400,
    first: int = 0,
    split: str = "test",
    part: str = "standard",
    source: str = "mp4",
    evidence: str = "shown",
) -> Benchmark:
    """Items `first` to `first + count`; their videos are written to `data` when they are needed.

    Args:
        data: the folder for the videos.
        count: how many questions.
        first: the number of the first one.
        split: "test" or "train".
        part: "standard", "fine", "brief", "crowded", "unanswerable", or "all" for a video of each in turn. Of the
            unanswerable part one question in three has no right option: its answer is None, and accuracy leaves it out.
        source: "mp4" writes and decodes real files; "rendered" takes the frames straight from the script, which needs
            no PyAV and, on a GPU, hardly any time.
        evidence: "hidden" leaves out every frame that shows evidence, to see how sure a model is without it; it needs
            rendered frames, and leaves out questions whose evidence is the whole video.
    """
    from gridprobe.gridworld.dataset import CHOICES, items

    choose("split", split, ("test", "train"))
    choose("part", part, CHOICES)
    choose("source", source, tuple(OPENERS))
    choose("evidence", evidence, ("shown", "hidden"))
    if evidence == "hidden" and source != "rendered":
        raise UsageError("evidence=hidden leaves frames out, which needs source=rendered")
    for name, value, least in (("count", count, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")
    found = []
    for made in items(count, first=first, split=cast("Split", split), part=part):
        found.append(
            Item(
                id=made.id,
                question=replace(made.asked.question, id=made.id),
                video=data / f"gridworld-{made.seed}-{SIDE}{_suffix(made.part)}.mp4",
                group=str(made.seed) if made.part == "standard" else f"{made.seed}-{made.part}",
                bins={"family": made.family, "part": made.part},
                duration=made.duration,
                extra=_extra(made),
            )
        )
    if evidence == "hidden":  # other frames are hidden for each question, so none shares its video with another
        found = [replace(item, video=data / item.id) for item in found if item.extra["evidence"]]
    version = f"gridworld-{len(found)}-{_fingerprint(found)}"
    opener = open_without_evidence if evidence == "hidden" else OPENERS[source]
    hooks: dict[str, Any] = {"open": opener, "info": video_info}
    return Benchmark("gridworld", version, tuple(found), model="embedded", generated=True, **hooks)


def _suffix(part: str) -> str:
    return "" if part == "standard" else f"-{part}"


def _extra(made: "gridworld.Item") -> dict[str, Any]:
    """What else is known about an item; hints only where there are any, so that old releases keep their fingerprint."""
    hint = {"hint": [list(interval) for interval in made.hint]} if made.hint else {}
    return {"seed": made.seed, "evidence": [list(interval) for interval in made.evidence], **hint}


def _fingerprint(items: Sequence[Item]) -> str:
    """A hash of the questions, as there is no file to hash: a changed generator makes another release."""
    content = [[item.id, item.question.prompt, item.question.answer, item.duration, item.extra] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def video_info(item: Item) -> VideoInfo:
    """What the item's video will be like once it is written."""
    from gridprobe.gridworld.video import FPS

    frames = round((item.duration or 0.0) * FPS)
    return VideoInfo(
        path=str(item.video),
        container="mp4",
        codec="h264",
        width=SIDE,
        height=SIDE,
        rotation=0,
        fps=float(FPS),
        duration_header=frames / FPS,
        frames_header=frames,
        duration_found=None,
        frames_found=None,
        start_time=0.0,
        pixel_format="yuv420p",
        hdr=False,
        decoder="",
        fingerprint="",
    )


def open_video(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The item's video, written if it is missing. A partly written file never gets the final name."""
    if item.video.is_file():
        return item.video
    from gridprobe.gridworld.video import write_script

    item.video.parent.mkdir(parents=True, exist_ok=True)
    partial = item.video.with_name(f"{item.video.stem}.{uuid4().hex[:8]}.partial.mp4")
    try:
        write_script(_script(item), partial, duration=item.duration or 0.0, size=SIDE)
        partial.replace(item.video)
    finally:
        partial.unlink(missing_ok=True)
    return item.video


def open_rendered(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The frames of the item's video, rendered; on a GPU where torch has found one."""
    from gridprobe.gridworld.dataset import rendered

    torch = sys.modules.get("torch")
    device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    source = f"gridworld:{item.extra['seed']}:{item.bins['part']}:{SIDE}"
    return rendered(_script(item), item.duration or 0.0, source=source, cells=spec.cells, size=SIDE, device=device)


def open_without_evidence(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The rendered frames that show nothing of the evidence."""
    pool = open_rendered(item, spec)
    assert isinstance(pool, FramePool)
    shown = [any(start <= time < end for start, end in item.extra["evidence"]) for time in pool.times]
    return pool.take([place for place, evidence in enumerate(shown) if not evidence])


OPENERS = {"mp4": open_video, "rendered": open_rendered}


def _script(item: Item) -> "Worlds":
    from gridprobe.gridworld.dataset import script

    return script(item.extra["seed"], cast("Part", item.bins["part"]))


def open_answer(item: Item) -> str | None:
    """The answer to a question without options; what never appears cannot be asked so."""
    if item.bins["family"] == "negation":
        return None
    question = item.question
    return question.option(question.answer) if question.answer else NOT_SAID


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy of all questions, by part and by family."""
    return [accuracy(items, right), *by_bin(items, right, "part"), *by_bin(items, right, "family")]
