"""Which stream of a container is the video."""

from typing import TYPE_CHECKING

from gridprobe.errors import VideoError
from gridprobe.video.files import VideoFile

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

__all__ = ["choose_stream"]


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
