"""The test set: numbered questions about numbered videos, generated from seeds, the same on every machine."""

import hashlib
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, get_args
from uuid import uuid4

import numpy as np

from gridprobe.errors import UsageError
from gridprobe.open_ended import NOT_SAID
from gridprobe.video import FramePool, SampleSpec, VideoInfo
from gridprobe.video.subtitles import Between, Segment
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import choose
from gridprobe_world.parts import PARTS, Part, generate_part
from gridprobe_world.questions import (
    FAMILIES,
    PART_FAMILIES,
    SPOKEN,
    WorldQuestion,
    ask_about,
    ask_part,
    ask_spoken,
    ask_two_options,
    ask_yes_no,
)
from gridprobe_world.render import Renderer, render_frames
from gridprobe_world.world import ORDINALS, SHAPES, TEST_SEEDS, TRAINING_SEEDS, Worlds, generate

Split = Literal["test", "train"]
SEEDS = {"test": TEST_SEEDS, "train": TRAINING_SEEDS}
Form = Literal["two-options", "yes-no", "spoken"]
FORMS: tuple[Form, ...] = get_args(Form)
"""Other questions about the videos of the standard part: with two options, with the options yes and no, and with
subtitles that hold the evidence or contradict it."""
CHOICES = (*PARTS, *FORMS, "all")
NAMES = frozenset((*SHAPES, *ORDINALS))
"""The words of a question that distinguish it from others with the same wording."""
SHORTEST, LONGEST = 60.0, 3600.0
"""Durations of videos in seconds, log-uniform between these."""
SHORTEST_BRIEF = 300.0
"""With this, a quarter of one of 144 cells is two frames of a video file at four frames per second."""


@dataclass(frozen=True)
class WorldItem:
    """A question about a video."""

    id: str
    seed: int
    """Of the video; items with the same seed share one."""
    duration: float
    asked: WorldQuestion
    part: Part | Form = "standard"

    @property
    def family(self) -> str:
        """What kind of question it is."""
        return self.asked.family

    @property
    def evidence(self) -> tuple[tuple[float, float], ...]:
        """When the evidence is on screen, in seconds; empty when the whole video is the evidence."""
        return self._seconds(self.asked.evidence)

    @property
    def hint(self) -> tuple[tuple[float, float], ...]:
        """When the marker that the question names is on screen, in seconds; empty for most questions."""
        return self._seconds(self.asked.hint)

    def _seconds(self, intervals: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        return tuple((start * self.duration, end * self.duration) for start, end in intervals)


def items(
    count: int,
    *,
    split: Split = "test",
    per_video: int = 4,
    first: int = 0,
    part: str = "standard",
) -> list[WorldItem]:
    """Items `first` to `first + count`. WorldItem i is the same for any count.

    A video gets questions of different families if its script allows it, least frequent families first. Not every
    script has a ring or a digit to ask about, so prejudice is rarer than the rest.

    Args:
        count: how many items.
        split: videos made from test seeds or from training seeds.
        per_video: questions about each video.
        first: the number of the first item.
        part: one of the test set's parts (`parts.PARTS`) or of `FORMS`, or "all": a video of each part in turn.
    """
    if split not in SEEDS:
        raise UsageError(f"split must be one of {', '.join(SEEDS)}, got {split!r}")
    if count < 0 or first < 0 or per_video < 1:
        raise UsageError(f"count, first and per_video cannot be {count}, {first} and {per_video}")
    if part not in CHOICES:
        raise UsageError(f"part must be one of {', '.join(CHOICES)}, got {part!r}")
    chosen = PARTS if part == "all" else (cast(Part | Form, part),)
    streams = [_part_items(SEEDS[split], per_video, name) for name in chosen]
    return list(islice(_in_turn(streams, per_video), first, first + count))


def _part_items(seeds: range, per_video: int, part: Part | Form) -> Iterator[WorldItem]:
    if part in ASKED:
        yield from _standard_items(seeds, per_video, part)
        return
    families = list(PART_FAMILIES[cast(Part, part)])
    for video, seed in enumerate(seeds):
        world = script(seed, part)
        previous: set[tuple[str, ...]] = set()
        for place in range(per_video):
            number = video * per_video + place
            question = _new_question(world, f"{seed}:{part}", families[number % len(families)], previous)
            yield WorldItem(
                f"gw-{part}-{number:07d}-{question.family}", seed, _duration(seed, part), question, part=part
            )


def _new_question(world: Worlds, name: str, family: str, previous: set[tuple[str, ...]]) -> WorldQuestion:
    """A question that was not asked about this video yet, if the script has one."""
    for again in range(20):
        question = ask_part(world, 0, family, random.Random(f"{name}:{family}:{len(previous)}:{again}"))
        words = (word.strip("?.,") for word in question.question.text.split())
        key = (question.wording, *(word for word in words if word in NAMES))
        if key not in previous:
            break
    previous.add(key)
    return question


def _in_turn(streams: Sequence[Iterator[WorldItem]], per_video: int) -> Iterator[WorldItem]:
    """The items of one video from each stream in turn."""
    while True:
        for stream in streams:
            yield from islice(stream, per_video)


Ask = Callable[[Worlds, int, str, random.Random], WorldQuestion | None]
ASKED: dict[str, tuple[Sequence[str], Ask]] = {
    "standard": (tuple(FAMILIES), ask_about),
    "two-options": (tuple(FAMILIES), ask_two_options),
    "spoken": (SPOKEN, ask_spoken),
    "yes-no": (("presence", "sequence", *(name for name in FAMILIES if name not in ("negation", "order"))), ask_yes_no),
}
"""The families that are asked about a standard script, and what makes their questions."""


def _standard_items(seeds: range, per_video: int, part: Part | Form) -> Iterator[WorldItem]:
    (families, ask), asked_so_far = ASKED[part], Counter[str]()
    form = "" if part == "standard" else f"{part}-"
    for video, seed in enumerate(seeds):
        turn = {family: (place - video) % len(families) for place, family in enumerate(families)}
        order = sorted(families, key=lambda family: (asked_so_far[family], turn[family]))
        world = script(seed, part)
        questions = _questions(world, f"{seed}:{form}", order, ask)
        for place, question in enumerate(islice(questions, per_video)):
            asked_so_far[question.family] += 1
            name = f"gw-{form}{video * per_video + place:07d}-{question.family}"
            yield WorldItem(name, seed, _duration(seed), question, part)


def _questions(world: Worlds, name: str, order: list[str], ask: Ask) -> Iterator[WorldQuestion]:
    """One question of each family that suits the script, then a second round, and so on."""
    for again in count_up():
        for family in order:
            question = ask(world, 0, family, random.Random(f"{name}{family}:{again}"))
            if question is not None:
                yield question


def _duration(seed: int, part: Part | Form = "standard") -> float:
    """Whole seconds, so that whole frames fill the video exactly."""
    shortest = SHORTEST_BRIEF if part == "brief" else SHORTEST
    draw = random.Random(f"{seed}:duration").uniform(math.log(shortest), math.log(LONGEST))
    return float(round(math.exp(draw)))


def world_of(item: WorldItem) -> Worlds:
    """The script of the item's video."""
    return script(item.seed, item.part)


def script(seed: int, part: Part | Form) -> Worlds:
    """The script made from a seed."""
    if part in ASKED:
        return generate(np.random.default_rng(seed), 1)
    return generate_part(np.random.default_rng([seed, PARTS.index(part)]), 1, cast(Part, part))


def pool_of(item: WorldItem, *, cells: int = 144, size: int = 224, device: str = "cpu") -> FramePool:
    """The frames that sampling the middles of equal shares of the item's video would give, without the video."""
    part = "" if item.part in ASKED else f":{item.part}"
    source = f"gridworld:{item.seed}:{size}{part}"  # equal sources mean equal pixels
    return rendered(world_of(item), item.duration, source=source, cells=cells, size=size, device=device)


def rendered(world: Worlds, duration: float, *, source: str, cells: int, size: int, device: str) -> FramePool:
    """Frames of a script at the middles of equal shares of its time."""
    time = ((np.arange(cells) + 0.5) / cells).astype(np.float32)
    if device == "cpu":  # painting only where objects are is faster than tensors here
        renderer = Renderer(world, size)
        pixels = np.stack([renderer.frame(float(moment)) for moment in time])
    else:
        picture = render_frames(world, time[None], size, device)[0].permute(0, 2, 3, 1)
        pixels = (picture * 255 + 0.5).byte().cpu().numpy()
    return FramePool(pixels, tuple((i + 0.5) / cells * duration for i in range(cells)), source=source)


# gridworld as a benchmark: questions and videos generated from seeds, the same on every machine.

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
            "two-options" and "yes-no" ask such questions about the videos of the standard part, and "spoken" asks what
            somebody says there, if subtitles are shown (`--subtitles interleaved`).
        source: "mp4" writes and decodes real files; "rendered" takes the frames straight from the script, which needs
            no PyAV and, on a GPU, hardly any time.
        evidence: "hidden" leaves out every frame that shows evidence, to see how sure a model is without it; it needs
            rendered frames, and leaves out questions whose evidence is the whole video.
    """
    choose("split", split, ("test", "train"))
    choose("part", part, CHOICES)
    choose("source", source, tuple(OPENERS))
    choose("evidence", evidence, ("shown", "hidden"))
    if evidence == "hidden" and source != "rendered":
        raise UsageError("evidence=hidden leaves frames out, which needs source=rendered")
    for name, value, least in (("count", count, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")
    chosen = [_item(item, data) for item in items(count, first=first, split=cast(Split, split), part=part)]
    if evidence == "hidden":  # other frames are hidden for each question, so none shares its video with another
        chosen = [replace(item, video=data / item.id) for item in chosen if item.extra["evidence"]]
    version = f"gridworld-{len(chosen)}-{_fingerprint(chosen)}"
    opener = open_without_evidence if evidence == "hidden" else OPENERS[source]
    hooks: dict[str, Any] = {"open": opener, "info": video_info}
    return Benchmark("gridworld", version, tuple(chosen), model="embedded", generated=True, **hooks)


def _item(item: WorldItem, data: Path) -> Item:
    """With a hint and with lines only where there are any, so that old releases keep their fingerprint."""
    suffix = "" if item.part in ASKED else f"-{item.part}"
    hint: dict[str, Any] = {"hint": [list(interval) for interval in item.hint]} if item.hint else {}
    lines = tuple(Segment(a * item.duration, b * item.duration, text) for a, b, text in item.asked.lines)
    spoken = Between(lines, rule="every", duration=item.duration) if lines else None
    hint |= {"lines": [astuple(line) for line in lines]} if lines else {}
    return Item(
        id=item.id,
        question=replace(item.asked.question, id=item.id, spoken=spoken),
        video=data / f"gridworld-{item.seed}-{SIDE}{suffix}.mp4",
        group=f"{item.seed}{suffix}",
        bins={"family": item.family, "part": item.part},
        duration=item.duration,
        extra={"seed": item.seed, "evidence": [list(interval) for interval in item.evidence], **hint},
    )


def _fingerprint(items: Sequence[Item]) -> str:
    """A hash of the questions, as there is no file to hash: a changed generator makes another release."""
    content = [[item.id, item.question.prompt, item.question.answer, item.duration, item.extra] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def video_info(item: Item) -> VideoInfo:
    """What the item's video will be like once it is written."""
    from gridprobe_world.render import FPS

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
    from gridprobe_world.render import write_script

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
    torch = sys.modules.get("torch")
    device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    source = f"gridworld:{item.extra['seed']}:{item.bins['part']}:{SIDE}"
    return rendered(_script(item), item.duration or 0.0, source=source, cells=spec.num_frames, size=SIDE, device=device)


def open_without_evidence(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The rendered frames that show nothing of the evidence."""
    pool = open_rendered(item, spec)
    assert isinstance(pool, FramePool)
    shown = [any(start <= time < end for start, end in item.extra["evidence"]) for time in pool.times]
    return pool.take([place for place, evidence in enumerate(shown) if not evidence])


OPENERS = {"mp4": open_video, "rendered": open_rendered}


def _script(item: Item) -> Worlds:
    return script(item.extra["seed"], cast(Part | Form, item.bins["part"]))


def open_answer(item: Item) -> str | None:
    """The answer to a question without options; what never appears cannot be asked so."""
    if item.bins["family"] == "negation":
        return None
    question = item.question
    return question.option(question.answer) if question.answer else NOT_SAID


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy of all questions, by part and by family."""
    return [accuracy(items, right), *by_bin(items, right, "part"), *by_bin(items, right, "family")]
