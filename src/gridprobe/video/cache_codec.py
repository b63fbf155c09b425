"""A planned video file as JSON for the cache, so that the file need not be opened again.

The JSON holds the frames' ticks, so their times are known before anything is decoded.
"""

import json
from dataclasses import asdict
from fractions import Fraction
from typing import get_type_hints

from gridprobe.video.decode_plan import AUTO_FRACTION, DecodePlan
from gridprobe.video.files import VideoFile
from gridprobe.video.info import VideoInfo
from gridprobe.video.rows import Found
from gridprobe.video.sampling import SampleSpec
from gridprobe.video.timeline import Anchor, Clock

__all__ = ["FORMAT", "checked_info", "frame_key", "from_json", "plan_key", "to_json"]

FORMAT = 3
"""Part of every key; raised when the same file, time and size give other pixels, or the same spec other times."""


def frame_key(*, decoder: str, source: str, time: float, size: tuple[int, int]) -> str:
    """Identifies a frame and the decoder that made it."""
    return f"frame {FORMAT}\n{decoder}\n{source}\n{time!r}\n{size[0]}x{size[1]}"


def plan_key(file: VideoFile, spec: SampleSpec, decoder: str) -> str:
    """Everything a plan depends on, including the limits: a cached plan must not get around them."""
    limits = spec.limits
    wanted = f"{spec.cells} {spec.sampling} {spec.precision} {AUTO_FRACTION}"
    wanted += f" {spec.stretches}" if spec.stretches else ""
    wanted += "" if spec.stream is None else f" stream {spec.stream}"
    bounds = f"{limits.max_pixels} {limits.max_duration} {limits.max_streams}"
    return f"plan {FORMAT}\n{decoder}\n{file.fingerprint}\n{wanted}\n{bounds}"


def to_json(info: VideoInfo, clock: Clock, plan: DecodePlan, found: Found) -> bytes:
    """The parts of a clip and its frames, without the file name: a copy under another name is the same video."""
    return json.dumps(
        {
            "info": asdict(info) | {"path": ""},
            "clock": [clock.tick.numerator, clock.tick.denominator, clock.start, clock.counted],
            "note": plan.note,
            "plan": [[target, start.seek, start.key] for target, start in zip(plan.targets, plan.anchors, strict=True)],
            "found": found._asdict(),
        }
    ).encode()


def from_json(content: bytes) -> tuple[VideoInfo, Clock, DecodePlan, Found]:
    """Undo `to_json`; ValueError, TypeError or KeyError for malformed content."""
    known = json.loads(content)
    info = checked_info(VideoInfo(**known["info"]))
    numerator, denominator, start, counted = known["clock"]
    steps, found = [list(step) for step in known["plan"]], Found(**known["found"])
    numbers = [numerator, denominator, start, *(n for step in steps for n in step if n is not None), *found.ticks]
    if not all(isinstance(number, int) for number in [*numbers, *(step[0] for step in steps)]):
        raise TypeError("ticks are whole numbers")
    if numerator <= 0 or denominator <= 0 or [step[0] for step in steps] != sorted({step[0] for step in steps}):
        raise ValueError("a plan rises in time")
    clock = Clock(Fraction(numerator, denominator), start, bool(counted))
    plan = DecodePlan(tuple(step[0] for step in steps), tuple(Anchor(*step[1:]) for step in steps), str(known["note"]))
    return info, clock, plan, found._replace(ticks=tuple(found.ticks))


def checked_info(info: VideoInfo) -> VideoInfo:
    """The same; TypeError if a field is of another type than it should be."""
    for name, kind in get_type_hints(VideoInfo).items():
        if not isinstance(getattr(info, name), kind):
            raise TypeError(name)
    return info
