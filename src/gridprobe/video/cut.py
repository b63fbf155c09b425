"""Cut stretches out of a video: packets are copied where the container allows it, otherwise frames are encoded again.

A copy starts at the keyframe before each stretch, because nothing else can be decoded by itself. Sound is left out.
"""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from gridprobe.errors import UsageError, VideoError
from gridprobe.video.files import check_file
from gridprobe.video.limits import Deadline, VideoLimits
from gridprobe.video.source import Source, first_frame, open_video
from gridprobe.video.timeline import Clock, anchor

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.video.stream import VideoStream

__all__ = ["FORMATS", "Cut", "cut"]

FORMATS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""The ending of a file's name -> the container."""
Stretch = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Cut:
    """A file in memory."""

    content: bytes
    copied: bool
    """Whether packets were copied; otherwise the frames were encoded again."""


def cut(
    path: str | os.PathLike[str],
    stretches: Sequence[Stretch],
    *,
    suffix: str,
    limits: VideoLimits | None = None,
    stream: int | None = None,
) -> Cut:
    """One video of these intervals of seconds, which must not overlap, in time order; `stream` as for `sample`."""
    if suffix not in FORMATS:
        raise UsageError(f"a clip must end in {', '.join(FORMATS)}, got {suffix!r}")
    if os.path.isdir(path):
        raise UsageError(f"cannot cut {path}: it is a folder of pictures, not a video file")
    limits, file = limits or VideoLimits(), check_file(path)
    open_source = partial(open_video, file, limits=limits, deadline=Deadline(file.name, limits.seconds), number=stream)
    with open_source() as source:
        clock = Clock.of(source, first_frame(source))
        content = _copied(source, clock, stretches, FORMATS[suffix])
    if content:
        return Cut(content, copied=True)
    with open_source() as source:
        content = _encoded(source, clock, stretches, FORMATS[suffix])
    if not content:
        raise VideoError(f"{file.name}: no frame between {stretches[0][0]:g} s and {stretches[-1][1]:g} s to cut")
    return Cut(content, copied=False)


def _copied(source: Source, clock: Clock, stretches: Sequence[Stretch], form: str) -> bytes:
    """The packets of the stretches; empty if the container cannot hold the codec, or the packets have no times."""
    import av

    packets = [] if clock.counted else _joined(source, clock, stretches)
    content = io.BytesIO()
    output = av.open(content, "w", format=form)
    if not packets or source.stream.codec_context.name not in output.supported_codecs:
        return b""  # nothing was written, so there is nothing to close
    with output:
        copy = output.add_stream_from_template(source.stream)
        for packet in packets:
            packet.stream = copy
            output.mux_one(packet)
    return content.getvalue()


def _joined(source: Source, clock: Clock, stretches: Sequence[Stretch]) -> "list[Packet[VideoStream]]":
    """The packets of all stretches with times that leave no gap between them; empty if one has no time."""
    found: dict[int, Packet[VideoStream]] = {}
    shown, shift = 0, 0
    for stretch in stretches:
        for packet in _packets(source, clock, stretch):
            if packet.pts is None:
                return []
            if packet.pts in found:
                continue  # this stretch begins in a group of pictures that was copied already
            if packet.is_keyframe:
                length = packet.duration or round(1 / (source.time_base * (source.stream.average_rate or 25)))
                shift = (shown + length if found else 0) - packet.pts
            shown = max(shown, packet.pts + shift)
            found[packet.pts] = packet
            packet.pts += shift
    # Not every container stores when packets are to be decoded; it is derived: in this order, before they are shown.
    order = sorted(packet.pts or 0 for packet in found.values())
    early = max((due - (packet.pts or 0) for due, packet in zip(order, found.values(), strict=True)), default=0)
    for due, packet in zip(order, found.values(), strict=True):
        packet.dts = due - early
    return list(found.values())


def _packets(source: Source, clock: Clock, stretch: Stretch) -> "Iterator[Packet[VideoStream]]":
    """The packets from the keyframe before the start to the end, and those that are shown before the last of them."""
    place, end = anchor(source, clock, clock.at(stretch[0])), clock.at(stretch[1])
    latest: int | None = None
    source.container.seek(clock.start if place.seek is None else place.seek, stream=source.stream)
    for packet in source.packets():
        if latest is None and not (packet.is_keyframe and (place.key is None or packet.pts == place.key)):
            continue
        if latest is not None and packet.pts is not None and packet.pts > latest >= end:
            return
        latest = max(packet.pts or 0, latest or 0)
        yield packet


def _encoded(source: Source, clock: Clock, stretches: Sequence[Stretch], form: str) -> bytes:
    """The frames of the stretches as H.264; empty if there are none."""
    import av

    content, rate = io.BytesIO(), Fraction(source.stream.average_rate or source.stream.guessed_rate or 25)
    count = 0
    with av.open(content, "w", format=form) as output:
        made = output.add_stream("libx264", rate=rate, options={"crf": "20", "preset": "veryfast"})
        made.width, made.height = (side - side % 2 for side in (source.stream.width, source.stream.height))
        made.pix_fmt = "yuv420p"
        for frame in _frames(source, clock, stretches):
            frame = frame.reformat(made.width, made.height, "yuv420p")
            frame.pts, frame.time_base, count = count, 1 / rate, count + 1
            output.mux(made.encode(frame))
        output.mux(made.encode(None))
    return content.getvalue() if count else b""


def _frames(source: Source, clock: Clock, stretches: Sequence[Stretch]) -> "Iterator[VideoFrame]":
    """The frames on display in the stretches, decoded; a video without times is decoded from its beginning."""
    if clock.counted:
        for number, frame in enumerate(_decoded(source)):
            if any(clock.at(start) <= number <= clock.at(end) for start, end in stretches):
                yield frame
        return
    for start, end in stretches:
        place = anchor(source, clock, clock.at(start))
        source.container.seek(clock.start if place.seek is None else place.seek, stream=source.stream)
        for frame in _decoded(source):
            if frame.pts is not None and frame.pts > clock.at(end):
                break
            if frame.pts is not None and frame.pts >= clock.at(start):
                yield frame


def _decoded(source: Source) -> "Iterator[VideoFrame]":
    """The frames from the current position; those that cannot be decoded are left out."""
    import av

    for packet in chain(source.packets(), [None]):  # None flushes the decoder
        try:
            yield from source.stream.codec_context.decode(packet)
        except MemoryError:  # not damage; PyAV's MemoryError is also an FFmpegError
            raise
        except av.FFmpegError:
            continue
