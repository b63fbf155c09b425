"""What was found out about a video file, as JSON for the cache: with it nothing is opened a second time.

The frames' own ticks are part of it, so their times are known before anything is decoded.
"""

import json
from dataclasses import asdict, replace
from fractions import Fraction

from gridprobe.video.decode import FileClip
from gridprobe.video.files import VideoFile
from gridprobe.video.frames import Found
from gridprobe.video.info import VideoInfo
from gridprobe.video.plan import AUTO_FRACTION, Plan
from gridprobe.video.sampling import SampleSpec
from gridprobe.video.source import decoder_version
from gridprobe.video.timeline import Anchor, Clock
from gridprobe.video.torchcodec import other_decoder

__all__ = ["FORMAT", "frame_key", "from_json", "plan_key", "to_json"]

FORMAT = 2
"""Part of every key: counts up when the same file, time and size give other pixels, or the same wish other times."""


def frame_key(*, decoder: str, source: str, time: float, size: tuple[int, int]) -> str:
    """A frame's identity, and what decoded it."""
    return f"frame {FORMAT}\n{decoder}\n{source}\n{time!r}\n{size[0]}x{size[1]}"


def plan_key(file: VideoFile, wish: SampleSpec) -> str:
    """Everything a plan depends on; the limits too, as what they forbid must stay forbidden."""
    limits = wish.limits
    wanted = f"{wish.cells} {wish.sampling} {wish.precision} {AUTO_FRACTION} {other_decoder(wish.decoder)}"
    bounds = f"{limits.max_pixels} {limits.max_duration} {limits.max_streams}"
    return f"plan {FORMAT}\n{decoder_version()}\n{file.fingerprint}\n{wanted}\n{bounds}"


def to_json(reel: FileClip, found: Found) -> bytes:
    """The reel and its frames, without the file's name: a copy under another name is the same video."""
    clock, plan = reel.clock, reel.plan
    return json.dumps(
        {
            "info": asdict(reel.info) | {"path": ""},
            "clock": [clock.tick.numerator, clock.tick.denominator, clock.start, clock.counted],
            "plan": [[target, start.seek, start.key] for target, start in zip(plan.targets, plan.anchors, strict=True)],
            "found": found._asdict(),
        }
    ).encode()


def from_json(content: bytes, file: VideoFile, wish: SampleSpec) -> tuple[FileClip, Found]:
    """The reel and its frames for the file; ValueError, TypeError or KeyError where the content is not ours."""
    known = json.loads(content)
    info = replace(VideoInfo(**known["info"]), path=file.name)
    numerator, denominator, start, counted = known["clock"]
    clock = Clock(Fraction(numerator, denominator), start, counted)
    plan = Plan(tuple(step[0] for step in known["plan"]), tuple(Anchor(*step[1:]) for step in known["plan"]))
    found = Found(**known["found"])
    return FileClip(file, info, clock, plan, wish), found._replace(ticks=tuple(found.ticks))
