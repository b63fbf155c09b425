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
from gridprobe.video.files import Deadline, VideoLimits, check_file
from gridprobe.video.sampling import FrameClock, anchor
from gridprobe.video.source import Source, first_frame, open_video

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.video.stream import VideoStream
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe._util import report
from gridprobe.video.files import VideoFile
from gridprobe.video.frames import Pixels
from gridprobe.video.sampling import Found
from gridprobe.video.source import VideoInfo

__all__ = ["FORMATS", "Checked", "Clip", "Cut", "Place", "cut", "write_video"]

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
        clock = FrameClock.of(source, first_frame(source))
        content = _copied(source, clock, stretches, FORMATS[suffix])
    if content:
        return Cut(content, copied=True)
    with open_source() as source:
        content = _encoded(source, clock, stretches, FORMATS[suffix])
    if not content:
        raise VideoError(f"{file.name}: no frame between {stretches[0][0]:g} s and {stretches[-1][1]:g} s to cut")
    return Cut(content, copied=False)


def _copied(source: Source, clock: FrameClock, stretches: Sequence[Stretch], form: str) -> bytes:
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


def _joined(source: Source, clock: FrameClock, stretches: Sequence[Stretch]) -> "list[Packet[VideoStream]]":
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


def _packets(source: Source, clock: FrameClock, stretch: Stretch) -> "Iterator[Packet[VideoStream]]":
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


def _encoded(source: Source, clock: FrameClock, stretches: Sequence[Stretch], form: str) -> bytes:
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


def _frames(source: Source, clock: FrameClock, stretches: Sequence[Stretch]) -> "Iterator[VideoFrame]":
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


# Clip: an opened video as `Video` uses it, whether it is a file or a folder of pictures.


class Checked(NamedTuple):
    """A path that was looked at."""

    file: VideoFile | None
    """None for a folder of pictures."""
    decoder: str
    """Name and version of the library that decodes files."""


class Clip(Protocol):
    """An opened video with a sampling plan. A tick is the clip's own unit of time; it identifies a frame."""

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""

    @property
    def source(self) -> str:
        """Identifies the content: equal sources, decoded by equal decoders, have equal pixels."""

    @property
    def decoder(self) -> str:
        """Name and version of the library that makes the pixels."""

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, in seconds from the start."""

    def expected_ticks(self) -> list[int] | None:
        """The ticks of the sampled frames, found without decoding; None if only decoding can find them."""

    def read(
        self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[Found, Pixels]:
        """Decode all sampled frames, or those at these ascending ticks, to (width, height).

        With `whole`, decode them exactly as in the pass over all frames.
        """

    def warnings(self, found: Found) -> tuple[str, ...]:
        """What to warn about in an answer based on these frames."""

    def to_json(self, found: Found) -> bytes | None:
        """The clip and its frames for the cache on disk; None for a clip that is not cached."""


class Place(Protocol):
    """Where one video is opened and decoded: in this process or in a child."""

    def check(self) -> Checked:
        """Identify the file, or say that it is a folder."""

    def open(self, checked: Checked) -> Clip:
        """Inspect, measure and plan."""

    def restore(self, content: bytes, checked: Checked) -> tuple[Clip, Found]:
        """The clip and its frames from the cache; ValueError, TypeError or KeyError for malformed content."""


# Writing frames to an H.264 file: for the demo, gridworld and tests.


def write_video(
    path: Path,
    frames: Iterable[npt.NDArray[np.uint8]],
    *,
    fps: int,
    size: tuple[int, int],
    count: int,
    crf: int = 20,
    gop: int = 50,
) -> None:
    """Encode `count` RGB frames of `size` (width, height) as H.264.

    Args:
        path: the file to write.
        frames: height × width × 3 arrays.
        fps: frames per second.
        size: width and height, both even.
        count: how many frames there are, for progress.
        crf: x264's quality; 20 is visually lossless for drawn pictures.
        gop: the largest distance between keyframes, in frames; it keeps seeking cheap.
    """
    import av

    with av.open(str(path), "w") as container:
        # For small pictures one x264 thread is faster: 0.72 s instead of 1.17 for 2,400 of 224 × 224.
        options = {"crf": str(crf), "preset": "ultrafast", "threads": "1" if size[0] * size[1] <= 512 * 512 else "0"}
        stream = container.add_stream("libx264", rate=Fraction(fps), options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.gop_size = gop
        for done, pixels in enumerate(frames, start=1):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            if done % fps == 0 or done == count:
                report("encode", done, count)
        container.mux(stream.encode(None))
