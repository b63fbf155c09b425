"""What was found out about a video file, as JSON for the cache: with it nothing is opened a second time.

The frames' own ticks are part of it, so their times are known before anything is decoded.
"""

import json
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

from gridprobe.video.decode import Reel, Sampling
from gridprobe.video.files import VideoFile
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Limits
from gridprobe.video.plan import AUTO_FRACTION, Plan, Precision
from gridprobe.video.source import decoder_version
from gridprobe.video.timeline import Anchor, Clock

__all__ = ["FORMAT", "Ticks", "frame_key", "from_json", "plan_key", "to_json"]

FORMAT = 1
"""Part of every key: counts up when the same file, time and size give other pixels, or the same wish other times."""


@dataclass(frozen=True)
class Ticks:
    """The ticks of a pool's frames."""

    ticks: tuple[int, ...]
    damaged: int = 0
    """How many moments had to take a neighbour."""
    decoded: bool = True
    """Whether every one of them was decoded; else they are what the packets promise."""


def frame_key(*, decoder: str, source: str, time: float, size: tuple[int, int]) -> str:
    """A frame's identity, and what decoded it."""
    return f"frame {FORMAT}\n{decoder}\n{source}\n{time!r}\n{size[0]}x{size[1]}"


def plan_key(file: VideoFile, *, cells: int, sampling: Sampling, precision: Precision, limits: Limits) -> str:
    """Everything a plan depends on; the limits too, as what they forbid must stay forbidden."""
    wish = f"{cells} {sampling} {precision} {AUTO_FRACTION}"
    bounds = f"{limits.max_pixels} {limits.max_duration} {limits.max_streams}"
    return f"plan {FORMAT}\n{decoder_version()}\n{file.fingerprint}\n{wish}\n{bounds}"


def to_json(reel: Reel, ticks: Ticks) -> bytes:
    """The reel and its ticks, without the file's name: a copy under another name is the same video."""
    clock, plan = reel.clock, reel.plan
    return json.dumps(
        {
            "info": asdict(reel.info) | {"path": ""},
            "clock": [clock.tick.numerator, clock.tick.denominator, clock.start, clock.counted],
            "plan": [[target, start.seek, start.key] for target, start in zip(plan.targets, plan.anchors, strict=True)],
            "ticks": asdict(ticks),
        }
    ).encode()


def from_json(content: bytes, file: VideoFile, *, cells: int, limits: Limits) -> tuple[Reel, Ticks]:
    """The reel and its ticks for the file; ValueError, TypeError or KeyError where the content is not ours."""
    known = json.loads(content)
    info = replace(VideoInfo(**known["info"]), path=file.name)
    numerator, denominator, start, counted = known["clock"]
    clock = Clock(Fraction(numerator, denominator), start, counted)
    plan = Plan(tuple(step[0] for step in known["plan"]), tuple(Anchor(*step[1:]) for step in known["plan"]))
    ticks = Ticks(**known["ticks"])
    return Reel(file, info, clock, plan, cells, limits), replace(ticks, ticks=tuple(ticks.ticks))
