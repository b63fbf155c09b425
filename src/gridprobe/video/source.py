"""Opening a video safely: `open_video`, the only place where FFmpeg opens a file, and `probe`.

The input may be hostile. FFmpeg chooses a format by content, and some formats are scripts that name other files, so it
may only use a fixed list of containers and no protocol but plain files.
"""

import errno
import math
import os
import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gridprobe.cores import usable_cores
from gridprobe.errors import VideoError
from gridprobe.video.files import VideoFile, check_file, lacks_index, looks_like, timestamps_restart
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, VideoLimits
from gridprobe.video.nal import recovery_rule
from gridprobe.video.streams import choose_stream

if TYPE_CHECKING:
    from av import FFmpegError, VideoFrame
    from av.buffer import Buffer
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["CONTAINERS", "HELD", "Source", "decoder_version", "describe", "first_frame", "open_video", "probe"]

MP4 = ("mov", "mp4", "m4a", "3gp", "3g2", "mj2")
CONTAINERS = frozenset(
    {*MP4, "matroska", "webm", "avi", "mpegts", "flv", "gif", "mpeg", "ogg", "h264", "hevc", "asf", "apng"}
)
"""FFmpeg's names of the accepted formats. None of them can name another file."""
HDR_TRANSFERS = frozenset({16, 18})
"""FFmpeg's numbers for PQ (SMPTE 2084) and HLG (ARIB STD-B67)."""
OLDEST_PYAV = (17, 1)
"""Before 17.1 PyAV frees memory it does not own if it is given options and streams appear after the header (FLV)."""
HELD = 6
"""Frames that a decoder without threads holds, as a rule: those it refers to, and some that wait to be shown."""
ALWAYS_HELD = 320 << 20
"""Bytes of such frames that need no leave: 8K, even where VideoLimits.memory is small so that little is kept."""
REFERRING = frozenset({"h264", "hevc", "vp9", "av1", "libdav1d"})
"""Codecs of large frames that refer to each other."""
MAX_TILT = 1.0
"""Degrees by which a display matrix may differ from a quarter turn."""
MAX_READ_ERRORS = 100
"""Read errors skipped in one pass; after that, the rest of the file is not read."""


@dataclass(frozen=True, eq=False)
class Source:
    """An open video: its container and the one stream that is used."""

    file: VideoFile
    container: "InputContainer"
    stream: "VideoStream"
    deadline: Deadline
    read_errors: "list[FFmpegError]" = field(default_factory=list)
    """Errors between packets, where some may be missing."""

    @cached_property
    def _recovery(self) -> "Callable[[memoryview], int] | None":
        context = self.stream.codec_context
        return recovery_rule(context.name, context.extradata)

    def recovery(self, packet: "Packet[VideoStream]") -> int | None:
        """After how many frames decoding from a packet on is right: 0 for a real keyframe, None for other packets."""
        if not packet.is_keyframe:
            return None
        return self._recovery(memoryview(packet)) if self._recovery else 0

    @property
    def is_indexed(self) -> bool:
        """Whether the header lists all packets: MP4 that is not fragmented."""
        return _is_mp4(self.container) and self.stream.frames > 0

    @property
    def time_base(self) -> Fraction:
        """Seconds per tick of the stream's timestamps."""
        return self.stream.time_base or Fraction(1, 1_000_000)

    def packets(self) -> "Iterator[Packet[VideoStream]]":
        """The stream's packets from the current position; read errors are skipped and the deadline is checked."""
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
                except av.FFmpegError as error:  # also out of memory: a damaged index can claim packets of gigabytes
                    errors += 1
                    self.read_errors.append(error)
                    demux = self._demux()
                    continue
                except (
                    IndexError
                ):  # PyAV knows only the streams that were there when it began; this is a packet of another
                    demux = self._demux()
                    continue
                if packet is None:
                    return
                if packet.size:  # an empty packet signals the end of the stream to a decoder
                    yield packet
        finally:
            demux.close()  # PyAV leaks some 160 bytes for each one that is not closed

    def _demux(self) -> "Generator[Packet[VideoStream], None, None]":
        return cast("Generator[Packet[VideoStream], None, None]", self.container.demux(self.stream))


@contextmanager
def open_video(
    file: VideoFile, *, limits: VideoLimits, deadline: Deadline, number: int | None = None
) -> Iterator[Source]:
    """Open a checked file within the limits, and close it afterwards; FFmpeg's errors become VideoErrors.

    `number` is that of the stream to use; None is the default one.
    """
    try:
        import av
    except (ImportError, OSError) as error:
        raise VideoError(f"PyAV does not load: {error}; run: pip install --force-reinstall av") from error
    try:
        with _open_container(file, limits, deadline) as container:
            stream = choose_stream(file, container, number)
            _check_limits(file, container, stream, limits)
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = _threads(stream.width, stream.height)
            # Frames can become larger than the header says in mid-stream, so the decoder gets the limit too.
            stream.codec_context.options = {"max_pixels": str(int(limits.max_pixels))}
            yield Source(file, container, stream, deadline)
    except av.FFmpegError as error:
        raise _as_video_error(file, error, deadline) from None


def probe(path: str | os.PathLike[str], *, limits: VideoLimits | None = None, stream: int | None = None) -> VideoInfo:
    """What the header and the first frame say about a video. It reads no further, so `*_found` stay None."""
    from gridprobe.video.pictures import describe_folder  # imports Pillow

    limits = limits or VideoLimits()
    if os.path.isdir(path):
        return describe_folder(Path(path), limits)
    file = check_file(path)
    deadline = Deadline(file.name, limits.seconds)
    with open_video(file, limits=limits, deadline=deadline, number=stream) as source:
        return describe(source, first_frame(source))


def decoder_version() -> str:
    """The versions of PyAV and of the FFmpeg it contains."""
    import av

    return f"PyAV {av.__version__}, FFmpeg {av.ffmpeg_version_info}"


def first_frame(source: Source) -> "VideoFrame":
    """The first frame that decodes: only a frame has the rotation and the true pixel format."""
    import av

    for packet in chain(source.packets(), [None]):  # None flushes the decoder
        try:
            frames = source.stream.codec_context.decode(packet)
        except MemoryError:  # not damage; PyAV's MemoryError is also an FFmpegError
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
    rotation, mirrored = _orientation(file, frame)
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
        mirrored=mirrored,
        late=_late(source),
        stream=stream.index,
        restarts=timestamps_restart(file) if source.container.format.name == "mpegts" else False,
    )


def _orientation(file: VideoFile, frame: "VideoFrame") -> tuple[int, bool]:
    """Degrees counter-clockwise to rotate a frame by, and whether to mirror it left to right before."""
    matrix = cast("Buffer | None", frame.side_data.get("DISPLAYMATRIX"))
    if matrix is None:
        return round(frame.rotation / 90) * 90 % 360, False
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(matrix)[:36])
    mirrored = a * d - b * c < 0
    angle = -math.degrees(math.atan2(-b, -a) if mirrored else math.atan2(b, a)) if a or b else math.nan
    if (
        math.isnan(angle)
        or abs(angle - 90 * round(angle / 90)) > MAX_TILT
        or abs(a * c + b * d) > 0.1 * (a * a + b * b)
    ):
        raise VideoError(
            f"{file.name}: its display matrix is no quarter turn ({a}, {b}, {c}, {d}); re-encode the video"
        )
    return 90 * round(angle / 90) % 360, mirrored


def _late(source: Source) -> float:
    """In MP4 the timeline starts at zero, whatever an edit list delays; elsewhere with the first stream."""
    stream, container = source.stream, source.container
    if stream.start_time is None or stream.time_base is None:
        return 0.0
    begins = 0.0 if _is_mp4(container) else (container.start_time or 0) / 1_000_000
    return max(0.0, float(stream.start_time * stream.time_base) - begins)


def _is_mp4(container: "InputContainer") -> bool:
    return not set(MP4).isdisjoint(container.format.name.split(","))


def _open_container(file: VideoFile, limits: VideoLimits, deadline: Deadline) -> "InputContainer":
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
    # FFmpeg has checked this already; checking again is free and does not depend on the spelling of an option.
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


def _check_limits(file: VideoFile, container: "InputContainer", stream: "VideoStream", limits: VideoLimits) -> None:
    if len(container.streams) > limits.max_streams:
        raise VideoError(
            f"{file.name}: more than {limits.max_streams} streams; raise the limit (VideoLimits.max_streams)"
        )
    if not stream.width * stream.height:  # FFmpeg leaves zero if its own inspection exceeded max_pixels
        raise VideoError(
            f"{file.name}: no frame size can be found, or frames have more than {limits.max_pixels} pixels; "
            "raise the limit (VideoLimits.max_pixels) or scale the video down"
        )
    if stream.width * stream.height > limits.max_pixels:
        raise VideoError(
            f"{file.name}: frames of {stream.width}×{stream.height} have more than {limits.max_pixels} pixels; "
            "raise the limit (VideoLimits.max_pixels) or scale the video down"
        )
    needed = HELD * stream.width * stream.height * 3 // 2
    if stream.codec_context.name in REFERRING and needed > max(limits.memory, ALWAYS_HELD):
        raise VideoError(
            f"{file.name}: decoding frames of {stream.width}×{stream.height} takes at least {needed >> 20} MiB, more "
            f"than {int(limits.memory) >> 20}; raise the limit (VideoLimits.memory) or scale the video down"
        )
    duration = _header_duration(container, stream)
    if duration is not None and duration > limits.max_duration:
        raise VideoError(
            f"{file.name}: {duration:.0f} s is longer than {limits.max_duration:.0f} s; "
            "raise the limit (VideoLimits.max_duration) or cut the video"
        )


def _header_duration(container: "InputContainer", stream: "VideoStream") -> float | None:
    """The stream's own duration if the container stores it (MP4, TS, AVI), else that of the whole file."""
    if stream.duration and stream.time_base:
        return max(0.0, float(stream.duration * stream.time_base)) or None
    return container.duration / 1_000_000 if container.duration and container.duration > 0 else None


def _display_size(frame: "VideoFrame", aspect: Fraction | None, rotation: int) -> tuple[int, int]:
    width = max(1, math.floor(frame.width * (aspect or 1) + Fraction(1, 2)))
    return (frame.height, width) if rotation % 180 else (width, frame.height)


def _threads(width: int, height: int) -> int:
    """Decoder threads: each holds its own frames, so large frames get fewer threads (1080p: 8, 8K: 2, beyond it 1)."""
    pixels = max(1, width * height)
    return max(2 if pixels < 40_000_000 else 1, min(8, usable_cores(), 32_000_000 // pixels))


def _as_video_error(file: VideoFile, error: "FFmpegError", deadline: Deadline) -> VideoError:
    """An FFmpeg error as one plain sentence."""
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
