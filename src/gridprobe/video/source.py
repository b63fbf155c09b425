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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gridprobe._util import usable_cores
from gridprobe.errors import VideoError
from gridprobe.video.files import (
    SOUND,
    Deadline,
    VideoFile,
    VideoLimits,
    check_file,
    lacks_index,
    looks_like,
    timestamps_restart,
)

if TYPE_CHECKING:
    from av import FFmpegError, VideoFrame
    from av.buffer import Buffer
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

# VideoInfo: a video's properties, with the header's claims kept apart from what was found in the file.


@dataclass(frozen=True)
class VideoInfo:
    """A video's properties. Headers can be wrong: `*_header` is their claim, `*_found` is what was found."""

    path: str
    container: str
    codec: str
    width: int
    """Width of a frame as displayed: upright, with square pixels."""
    height: int
    rotation: int
    """Degrees counter-clockwise by which a stored frame is rotated for display: 0, 90, 180 or 270."""
    fps: float | None
    """Mean frame rate; the real rate may vary."""
    duration_header: float | None
    frames_header: int | None
    duration_found: float | None
    """Seconds from the start to the end of the last frame that is really in the file; None if not measured."""
    frames_found: int | None
    start_time: float
    """Timestamp of the presentation start, in seconds; all other times are relative to it."""
    pixel_format: str
    hdr: bool
    decoder: str
    fingerprint: str
    mirrored: bool = False
    """Whether a stored frame is mirrored left to right for display, before it is rotated."""
    late: float = 0.0
    """Seconds from the start of the file's timeline, as players and subtitles count, to the presentation start."""
    restarts: bool = False
    """Whether timestamps start again within the file, so that a part of it cannot be found."""
    stream: int | None = None
    """The number of the video stream in the file; None for pictures, and where it is not known."""

    @property
    def duration(self) -> float | None:
        """Seconds: as found, else as the header says."""
        return self.duration_header if self.duration_found is None else self.duration_found

    @property
    def frames(self) -> int | None:
        """Number of frames: as found, else as the header says."""
        return self.frames_header if self.frames_found is None else self.frames_found

    def to_dict(self) -> dict[str, Any]:
        """The fields that go into a JSON answer."""
        return {
            "path": self.path,
            "duration": None if self.duration is None else round(self.duration, 3),
            "fps": None if self.fps is None else round(self.fps, 3),
            "frames": self.frames,
            "width": self.width,
            "height": self.height,
            "rotation": self.rotation,
            "container": self.container,
            "codec": self.codec,
            "hdr": self.hdr,
            "stream": self.stream,
            "decoder": self.decoder,
            "fingerprint": self.fingerprint,
        }


# Which stream of a container is the video.


def choose_stream(file: VideoFile, container: "InputContainer", number: int | None = None) -> "VideoStream":
    """The stream of that number, else the default video stream, else the largest.

    Cover art and thumbnails do not count.
    """
    from av.stream import Disposition

    pictures = Disposition.attached_pic | Disposition.timed_thumbnails
    streams = [s for s in container.streams.video if not s.disposition & pictures]
    if not streams:
        only = "; it holds only sound" if container.streams.audio else ""
        raise VideoError(f"{file.name}: no video stream in the file{only}")
    decodable = [s for s in streams if s.codec_context is not None]
    if not decodable:
        raise VideoError(f"{file.name}: the video stream is encrypted, or its codec is not part of this PyAV build")
    if number is None:
        return max(decodable, key=lambda s: (bool(s.disposition & Disposition.default), s.width * s.height, -s.index))
    chosen = next((s for s in decodable if s.index == number), None)
    if chosen is None:
        raise VideoError(f"{file.name}: {_reason(container, number)}; choose {_listed(decodable)}")
    return chosen


def _reason(container: "InputContainer", number: int) -> str:
    """Why the stream of that number cannot be the video."""
    if number >= len(container.streams):
        return f"the file has no stream {number}"
    stream = container.streams[number]
    if stream.type != "video":
        return f"stream {number} is {stream.type}, not video"
    if stream.codec_context is None:
        return f"stream {number} is encrypted, or its codec is not part of this PyAV build"
    return f"stream {number} is a still picture, not video"


def _listed(streams: "list[VideoStream]") -> str:
    """For example "stream 0 (h264, 1920×1080) or stream 2 (hevc, 640×360)"."""
    return " or ".join(f"stream {s.index} ({s.codec_context.name}, {s.width}×{s.height})" for s in streams)


# Which H.264 and HEVC packets hold an unreferenced picture, according to the headers of their NAL units.
#
# A decoder can skip such pictures itself, but then it does not report a damaged reference that looks like one. So a
# packet is droppable only if its units fill it to the byte and are all of a known kind.

START_CODE = b"\0\0\1"
H264_SLICE, H264_HARMLESS = 1, frozenset({6, 9, 12})
"""A slice of a non-IDR picture; supplemental information, delimiter and filler."""
H264_IDR, H264_SEI, RECOVERY_POINT = 5, 6, 6
"""A picture that nothing before it is needed for; supplemental information; the kind of it that marks a refresh."""
HEVC_NOT_REFERENCED, HEVC_HARMLESS = frozenset({0, 2, 4, 6, 8}), frozenset({35, 38, 39, 40})
"""TRAIL_N, TSA_N, STSA_N, RADL_N and RASL_N; delimiter, filler and supplemental information."""


class NalKind(NamedTuple):
    """What a packet's headers say."""

    droppable: bool = False
    """Whether no picture in the same temporal layer refers to it."""
    layer: int = 0
    """Its temporal layer; pictures in a higher layer may still refer to it."""


def kind_rule(codec: str, extradata: bytes | None) -> Callable[[memoryview], NalKind] | None:
    """A function that classifies a stream's packets; None for other codecs.

    The extradata say whether units are prefixed with their length (MP4, Matroska) or with start codes.
    """
    if codec not in ("h264", "hevc"):
        return None
    classify, offset = (_h264, 4) if codec == "h264" else (_hevc, 21)
    if extradata and extradata[0] == 1 and len(extradata) > offset:
        size = (extradata[offset] & 3) + 1
        return lambda data: classify(list(_by_length(data, size)))
    return lambda data: classify(list(_by_start_code(bytes(data))))


def recovery_rule(codec: str, extradata: bytes | None) -> Callable[[memoryview], int] | None:
    """A function that says after how many frames decoding from a packet is right; None for codecs other than H.264.

    It is 0 for real keyframes. Intra refresh renews a strip of the picture in every frame instead: FFmpeg calls the
    packet where a round begins a keyframe too, but pictures are only whole when the round is over.
    """
    if codec != "h264":
        return None
    if extradata and extradata[0] == 1 and len(extradata) > 4:
        size = (extradata[4] & 3) + 1
        return lambda data: _recovery(list(_whole_by_length(data, size)))
    return lambda data: _recovery([memoryview(unit) for unit in bytes(data).split(START_CODE)[1:]])


def _recovery(units: list[memoryview]) -> int:
    if any(unit[:1] and unit[0] & 31 == H264_IDR for unit in units):
        return 0
    return max((_recovery_count(bytes(unit[1:])) for unit in units if unit[:1] and unit[0] & 31 == H264_SEI), default=0)


def _recovery_count(message: bytes) -> int:
    """The recovery_frame_cnt of a supplemental information unit; 0 if it has none."""
    message, at = message.replace(b"\0\0\3", b"\0\0"), 0
    while at + 2 < len(message):
        kind, at = _varied(message, at)
        size, at = _varied(message, at)
        if kind == RECOVERY_POINT:
            return _exp_golomb(message[at : at + size])
        at += size
    return 0


def _varied(message: bytes, at: int) -> tuple[int, int]:
    """A number written as 255, 255, …, rest; and where it ends."""
    value = 0
    while at < len(message) and message[at] == 255:
        value, at = value + 255, at + 1
    return value + (message[at] if at < len(message) else 0), at + 1


def _exp_golomb(payload: bytes) -> int:
    bits = "".join(f"{byte:08b}" for byte in payload[:8])
    zeros = len(bits) - len(bits.lstrip("0"))
    return int(bits[zeros : 2 * zeros + 1], 2) - 1 if len(bits) > 2 * zeros else 0


def _whole_by_length(data: memoryview, size: int) -> Iterator[memoryview]:
    offset = 0
    while offset + size < len(data):
        length = int.from_bytes(data[offset : offset + size], "big")
        yield data[offset + size : offset + size + length]
        offset += size + length


def _by_length(data: memoryview, size: int) -> Iterator[bytes]:
    """The first two bytes of every unit; b"" for a length that does not fit, then nothing more."""
    offset = 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + size], "big")
        offset += size
        if not 2 <= length <= len(data) - offset:
            yield b""
            return
        yield bytes(data[offset : offset + 2])
        offset += length


def _by_start_code(data: bytes) -> Iterator[bytes]:
    offset = data.find(START_CODE)
    if offset < 0 or data[:offset].strip(b"\0"):
        yield b""
    while offset >= 0:
        yield data[offset + 3 : offset + 5]
        offset = data.find(START_CODE, offset + 3)


def _h264(units: list[bytes]) -> NalKind:
    if any(len(unit) < 2 or unit[0] & 0xE0 for unit in units):  # the forbidden bit, or a reference
        return NalKind()
    kinds = {unit[0] & 31 for unit in units}
    return NalKind(H264_SLICE in kinds and kinds - {H264_SLICE} <= H264_HARMLESS)


def _hevc(units: list[bytes]) -> NalKind:
    if any(len(unit) < 2 or unit[0] & 0x81 or unit[1] & 0xF8 for unit in units):  # forbidden bit, or another layer
        return NalKind()
    kinds = {unit[0] >> 1 for unit in units}
    layer = max((unit[1] & 7 for unit in units), default=1) - 1
    slices = kinds & HEVC_NOT_REFERENCED
    return NalKind(bool(slices) and kinds - slices <= HEVC_HARMLESS, layer)


MP4 = ("mov", "mp4", "m4a", "3gp", "3g2", "mj2")
CONTAINERS = frozenset(
    {*MP4, "matroska", "webm", "avi", "mpegts", "flv", "gif", "mpeg", "ogg", "h264", "hevc", "asf", "apng"}
)
"""FFmpeg's names of the accepted formats. None of them can name another file."""
HDR_TRANSFERS = frozenset({16, 18})
"""FFmpeg's numbers for PQ (SMPTE 2084) and HLG (ARIB STD-B67)."""
OLDEST_PYAV = (17, 1)
"""Before 17.1 PyAV frees memory it does not own if it is given options and streams appear after the header (FLV)."""
DECODER_FRAMES = 6
"""Frames that a decoder without threads holds, as a rule: those it refers to, and some that wait to be shown."""
DECODER_BYTES = 320 << 20
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
        """Seconds per unit of the stream's timestamps."""
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


def decoded_frames(source: Source) -> "Iterator[VideoFrame]":
    """The frames from the current position on; those that cannot be decoded are left out."""
    import av

    for packet in chain(source.packets(), [None]):  # None flushes the decoder
        try:
            yield from source.stream.codec_context.decode(packet)
        except MemoryError:  # not damage; PyAV's MemoryError is also an FFmpegError
            raise
        except av.FFmpegError:
            continue


def first_frame(source: Source) -> "VideoFrame":
    """The first frame that decodes: only a frame has the rotation and the true pixel format."""
    frame = next(decoded_frames(source), None)
    if frame is None:
        raise VideoError(f"{source.file.name}: no frame can be decoded; the video is encrypted or damaged")
    return frame


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
    if kind := looks_like(file.head):
        raise _not_accepted(file, kind)
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


def _not_accepted(file: VideoFile, kind: str) -> VideoError:
    if kind in SOUND:
        return VideoError(f"{file.name}: no video stream in the file; it holds only sound ({kind})")
    return VideoError(f"{file.name}: not a video container gridprobe accepts (found {kind}); convert it to MP4")


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
    needed = DECODER_FRAMES * stream.width * stream.height * 3 // 2
    if stream.codec_context.name in REFERRING and needed > max(limits.memory, DECODER_BYTES):
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
