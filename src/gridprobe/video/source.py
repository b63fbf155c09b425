"""Opening a video safely: `open_video`, the only place where FFmpeg is given a file, and `probe`.

The input is taken to be hostile. FFmpeg chooses a format by content, and some formats are scripts that name other
files, so it may only use a fixed list of containers and no protocol but plain files.
"""

import errno
import math
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gridprobe.errors import VideoError
from gridprobe.video.files import VideoFile, check_file, lacks_index, looks_like
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.pictures import describe_folder

if TYPE_CHECKING:
    from av import FFmpegError, VideoFrame
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["CONTAINERS", "Source", "decoder_version", "describe", "first_frame", "open_video", "probe"]

MP4 = ("mov", "mp4", "m4a", "3gp", "3g2", "mj2")
CONTAINERS = frozenset({*MP4, "matroska", "webm", "avi", "mpegts", "flv", "gif", "mpeg", "ogg", "h264", "hevc"})
"""FFmpeg's names of the formats that are opened. None of them can name another file."""
HDR_TRANSFERS = frozenset({16, 18})
"""PQ (SMPTE 2084) and HLG (ARIB STD-B67), as FFmpeg numbers them."""
OLDEST_PYAV = (17, 1)
"""Before 17.1 PyAV frees memory it does not own if it is given options and streams appear after the header (FLV)."""
MAX_READ_ERRORS = 100
"""Unreadable places stepped over in one pass before the rest of the file is given up."""


@dataclass(frozen=True, eq=False)
class Source:
    """An open video: its container and the one stream that is looked at."""

    file: VideoFile
    container: "InputContainer"
    stream: "VideoStream"
    deadline: Deadline

    @property
    def time_base(self) -> Fraction:
        """Seconds per tick of the stream's time stamps."""
        return self.stream.time_base or Fraction(1, 1_000_000)

    def packets(self) -> "Iterator[Packet[VideoStream]]":
        """The stream's packets from here on, stepping over what cannot be read and watching the clock."""
        import av

        errors = 0
        demux = self._demux()
        try:
            while errors < MAX_READ_ERRORS:
                self.deadline.check()
                try:
                    packet = next(demux, None)
                except av.error.ExitError:
                    raise self.deadline.error() from None
                except av.FFmpegError:  # want of memory, too: a damaged index asks for packets of gigabytes
                    errors += 1
                    demux = self._demux()
                    continue
                if packet is None:
                    return
                if packet.size:  # an empty packet tells a decoder that the stream is over
                    yield packet
        finally:
            demux.close()  # PyAV loses some 160 bytes for every one that is merely dropped

    def _demux(self) -> "Generator[Packet[VideoStream], None, None]":
        return cast("Generator[Packet[VideoStream], None, None]", self.container.demux(self.stream))


@contextmanager
def open_video(file: VideoFile, *, limits: Limits, deadline: Deadline) -> Iterator[Source]:
    """Open a checked file, within the limits; FFmpeg's errors come out as VideoError, and it is always closed."""
    import av

    try:
        with _open_container(file, limits, deadline) as container:
            stream = _choose_stream(file, container)
            _check_limits(file, container, stream, limits)
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = _threads(stream.width, stream.height)
            # Size can grow in mid-stream, behind the header's back, so the decoder knows the limit too.
            stream.codec_context.options = {"max_pixels": str(int(limits.max_pixels))}
            yield Source(file, container, stream, deadline)
    except av.FFmpegError as error:
        raise _plain(file, error, deadline) from None


def probe(path: str | os.PathLike[str], *, limits: Limits | None = None) -> VideoInfo:
    """What the header and the first frame say about a video. Reads no further, so `*_found` stay None."""
    limits = limits or Limits()
    if os.path.isdir(path):
        return describe_folder(Path(path), limits)
    file = check_file(path)
    with open_video(file, limits=limits, deadline=Deadline(file.name, limits.seconds)) as source:
        return describe(source, first_frame(source))


def decoder_version() -> str:
    """PyAV and the FFmpeg inside it."""
    import av

    return f"PyAV {av.__version__}, FFmpeg {av.ffmpeg_version_info}"


def first_frame(source: Source) -> "VideoFrame":
    """The first frame that decodes: only a frame knows its rotation and its true format."""
    import av

    for packet in chain(source.packets(), [None]):  # None makes the decoder give out what it still holds
        try:
            frames = source.stream.codec_context.decode(packet)
        except MemoryError:  # no damage; PyAV's own is an FFmpegError, too
            raise
        except av.FFmpegError:
            continue
        if frames:
            return frames[0]
    raise VideoError(f"{source.file.name}: no frame can be decoded; the video is encrypted or damaged")


def describe(source: Source, frame: "VideoFrame") -> VideoInfo:
    """The VideoInfo of an open video and its first frame."""
    import av

    stream, file = source.stream, source.file
    rotation = round(frame.rotation / 90) * 90 % 360
    width, height = _display_size(frame, stream.sample_aspect_ratio, rotation)
    rate = stream.average_rate or stream.guessed_rate
    start = stream.start_time if stream.start_time is not None else frame.pts
    return VideoInfo(
        path=file.name,
        container=source.container.format.name,
        codec=stream.codec_context.name,
        width=width,
        height=height,
        rotation=rotation,
        fps=float(rate) if rate else None,
        duration_header=_header_duration(source.container, stream),
        frames_header=stream.frames or None,
        duration_found=None,
        frames_found=None,
        start_time=float((start or 0) * source.time_base),
        pixel_format=frame.format.name,
        hdr=int(frame.color_trc) in HDR_TRANSFERS,
        decoder=f"PyAV {av.__version__}, {stream.codec_context.codec.name}",
        fingerprint=file.fingerprint,
    )


def _open_container(file: VideoFile, limits: Limits, deadline: Deadline) -> "InputContainer":
    import av

    _check_version(file)
    deadline.check()
    if found := looks_like(file.head):
        raise _not_accepted(file, found)
    options = {
        "format_whitelist": ",".join(sorted(CONTAINERS)),
        "protocol_whitelist": "file",
        "enable_drefs": "0",
        "max_streams": str(int(limits.max_streams) + 1),
        "max_pixels": str(int(limits.max_pixels)),
    }
    container = av.open(file.url, "r", options=options, timeout=deadline.left, metadata_errors="replace")
    # The list above has done this already; a second look costs nothing and does not rest on an option's spelling.
    if not CONTAINERS.issuperset(container.format.name.split(",")):
        container.close()
        raise _not_accepted(file, container.format.name)
    return container


def _check_version(file: VideoFile) -> None:
    """Refuse a PyAV that another package's requirements have put in place of the one gridprobe asked for."""
    import av

    if tuple(map(int, av.__version__.split(".")[:2])) < OLDEST_PYAV:
        needed = "av>=" + ".".join(map(str, OLDEST_PYAV))
        raise VideoError(
            f"{file.name}: PyAV {av.__version__} corrupts memory when it opens some files; run: pip install '{needed}'"
        )


def _not_accepted(file: VideoFile, found: str) -> VideoError:
    return VideoError(f"{file.name}: not a video container gridprobe accepts (found {found}); convert it to MP4")


def _choose_stream(file: VideoFile, container: "InputContainer") -> "VideoStream":
    """The default video stream, else the largest; cover art and thumbnails are not video."""
    from av.stream import Disposition

    pictures = Disposition.attached_pic | Disposition.timed_thumbnails
    streams = [s for s in container.streams.video if not s.disposition & pictures]
    if not streams:
        raise VideoError(f"{file.name}: no video stream in the file")
    decodable = [s for s in streams if s.codec_context is not None]
    if not decodable:
        raise VideoError(f"{file.name}: the video stream is encrypted, or its codec is not part of this PyAV build")
    return max(decodable, key=lambda s: (bool(s.disposition & Disposition.default), s.width * s.height, -s.index))


def _check_limits(file: VideoFile, container: "InputContainer", stream: "VideoStream", limits: Limits) -> None:
    if len(container.streams) > limits.max_streams:
        raise VideoError(f"{file.name}: more than {limits.max_streams} streams; raise the limit (Limits.max_streams)")
    if not stream.width * stream.height:  # what FFmpeg leaves behind when its own look hit max_pixels
        raise VideoError(
            f"{file.name}: no frame size can be found, or frames have more than {limits.max_pixels} pixels; "
            "raise the limit (Limits.max_pixels) or scale the video down"
        )
    if stream.width * stream.height > limits.max_pixels:
        raise VideoError(
            f"{file.name}: frames of {stream.width}×{stream.height} have more than {limits.max_pixels} pixels; "
            "raise the limit (Limits.max_pixels) or scale the video down"
        )
    duration = _header_duration(container, stream)
    if duration is not None and duration > limits.max_duration:
        raise VideoError(
            f"{file.name}: {duration:.0f} s is longer than {limits.max_duration:.0f} s; "
            "raise the limit (Limits.max_duration) or cut the video"
        )


def _header_duration(container: "InputContainer", stream: "VideoStream") -> float | None:
    """The stream's own duration where the container keeps one (MP4, TS, AVI), else that of the whole file."""
    if stream.duration and stream.time_base:
        return max(0.0, float(stream.duration * stream.time_base)) or None
    return container.duration / 1_000_000 if container.duration and container.duration > 0 else None


def _display_size(frame: "VideoFrame", aspect: Fraction | None, rotation: int) -> tuple[int, int]:
    width = max(1, math.floor(frame.width * (aspect or 1) + Fraction(1, 2)))
    return (frame.height, width) if rotation % 180 else (width, frame.height)


def _threads(width: int, height: int) -> int:
    """Decoder threads: each holds frames of its own, so large frames get fewer (1080p: 8, 8K: 2)."""
    return max(2, min(8, os.cpu_count() or 1, 32_000_000 // max(1, width * height)))


def _plain(file: VideoFile, error: "FFmpegError", deadline: Deadline) -> VideoError:
    """One sentence for an FFmpeg error."""
    import av

    if isinstance(error, av.error.ExitError):
        return deadline.error()
    if error.errno == errno.EAGAIN:  # no thread could be started
        return VideoError(f"{file.name}: not enough memory, or too many processes, to decode it")
    if error.errno == errno.ENOMEM:
        return VideoError(f"{file.name}: not enough memory to decode it, or it is damaged and asks for too much")
    if lacks_index(file):
        return VideoError(f"{file.name}: the file is incomplete (no index); download it again")
    if isinstance(error, av.error.InvalidDataError | av.error.ArgumentError):
        return VideoError(f"{file.name}: not a video container gridprobe accepts, or its header is damaged")
    return VideoError(f"{file.name}: cannot be opened as a video ({error.strerror})")
