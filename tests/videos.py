"""Test videos, made on the fly with PyAV: every frame carries its own number as 16 wide black and white bars."""

import math
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from av.video.stream import VideoStream

Pixels = npt.NDArray[np.uint8]

QUIET = {"libx265": "x265-params", "libsvtav1": "svtav1-params"}
"""Encoders that write to stderr whatever FFmpeg's log level is, and the option that takes their own settings."""


def bars(number: int, size: tuple[int, int]) -> Pixels:
    """A frame showing `number`: bar b, from the left, is white where bit b is set."""
    width, height = size
    column = np.arange(width) * 16 // width
    row = np.where((number >> column) & 1, 255, 0).astype(np.uint8)
    pixels: Pixels = np.broadcast_to(row[None, :, None], (height, width, 3)).copy()
    return pixels


def read_number(pixels: Pixels) -> int:
    """The number a frame shows, at any size from about 32 pixels wide."""
    row = pixels.astype(np.float64).mean(axis=(0, 2))
    width = len(row) / 16
    middles = [row[math.ceil((b + 0.25) * width) : math.floor((b + 0.75) * width) or None].mean() for b in range(16)]
    return sum(1 << b for b, level in enumerate(middles) if level > 127)


def numbered_video(
    path: Path,
    frames: int,
    *,
    fps: int = 25,
    size: tuple[int, int] = (256, 64),
    gop: int = 12,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    container: str | None = None,
    ticks: Sequence[int] | None = None,
    aspect: Fraction | None = None,
) -> Path:
    """Write a video of numbered frames, by default H.264 with B-frames.

    `ticks` are the frames' time stamps in units of 1/fps, for a variable rate; `container` is needed where the name
    does not say the format.
    """
    settings = {"bf": "2", "crf": "10"} if codec == "libx264" else {}
    if codec in QUIET:
        settings[QUIET[codec]] = "log-level=none" if codec == "libx265" else "lp=1"
    if codec == "libvpx-vp9":
        settings = {"deadline": "realtime", "cpu-used": "8"}
    settings.update(options or {})
    with av.open(str(path), "w", format=container, options=container_options or {}) as output:
        stream = output.add_stream(codec, rate=fps, options=settings)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = *size, pixel_format
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = Fraction(1, fps)
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(bars(number, size), "rgb24")
            frame.pts = ticks[number] if ticks else number
            frame.time_base = Fraction(1, fps)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path


def picture_video(path: Path, picture: Pixels, *, frames: int = 3, **options: object) -> Path:
    """A few frames of one still picture, in colours that hardly suffer."""
    height, width = picture.shape[:2]
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "4"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv444p"
        for _ in range(frames):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        output.mux(stream.encode())
    return path


def remux(source: Path, target: Path, *, loops: int = 1, offset: float = 0.0, **options: str) -> Path:
    """Copy the packets of a video, `loops` times over, shifted by `offset` seconds: long files for little time."""
    with av.open(str(target), "w", options=options) as output:
        stream = None
        shift = 0
        for _ in range(loops):
            with av.open(str(source)) as original:
                template = original.streams.video[0]
                stream = stream or output.add_stream_from_template(template)
                assert template.time_base
                length = template.duration or round((original.duration or 0) / 1_000_000 / template.time_base)
                for packet in original.demux(template):
                    if packet.size:
                        assert packet.pts is not None and packet.dts is not None
                        start = shift + round(offset / template.time_base)
                        packet.pts, packet.dts = packet.pts + start, packet.dts + start
                        packet.stream = stream
                        output.mux(packet)
                shift += length
    return target


def turn_by_matrix(path: Path, degrees: int) -> Path:
    """Write a clockwise rotation into an MP4's track header by hand, as ISO 14496-12 lays it out.

    The matrix (a b u, c d v, x y w) maps x' = ax + cy and y' = bx + dy with y pointing down, so (0 1, -1 0) carries the
    right-hand side of the picture to the bottom: a quarter turn clockwise.
    """
    one = 1 << 16
    a, b, c, d = {90: (0, one, -one, 0), 180: (-one, 0, 0, -one), 270: (0, -one, one, 0)}[degrees]
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # version 0: 4 flags, 20 times and ids, 16 reserved, layer, group, volume
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(bytes(data))
    return path


def patched(path: Path, target: Path, *, start: float, length: float, filler: Iterator[int] | None = None) -> Path:
    """Copy a file with a part of it, given as fractions, overwritten by zeros or by `filler`."""
    data = bytearray(path.read_bytes())
    first, count = int(len(data) * start), int(len(data) * length)
    data[first : first + count] = bytes(next(filler) for _ in range(count)) if filler else bytes(count)
    target.write_bytes(bytes(data))
    return target
