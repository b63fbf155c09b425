"""The files of speed/decode.py: 1280×720, 25 frames a second, B-frames, moving textures, noise and cuts.

About a minute is encoded and repeated by stream copy. The number of turns is coprime to 144, so that 144 targets fall
on 144 different places of the encoded minute. Every frame carries its number, counted from the start of its turn, as
wide black and white blocks.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FRAMES = 144
FPS = 25
WIDTH, HEIGHT = 1280, 720
BITS, STRIP = 16, 96
RECIPE = 2
"""Counts up when the files change, so that old ones are not taken for new."""


@dataclass(frozen=True)
class Kind:
    """One of the files, before it is made."""

    title: str
    codec: str
    gop: int
    share: float
    """Of the length asked for with --minutes."""
    options: dict[str, str]


KINDS = {
    "gop50": Kind("H.264, a key frame every 50 frames or sooner", "libx264", 50, 1.0, {"crf": "25"}),
    "gop250": Kind(
        "H.264, a key frame every 250 frames or sooner (x264's default)", "libx264", 250, 1.0, {"crf": "24"}
    ),
    "hevc": Kind(
        "HEVC, open groups of at most 250 frames (x265's default)",
        "libx265",
        250,
        1 / 6,
        {"crf": "22", "preset": "fast", "x265-params": "log-level=none"},
    ),
}


@dataclass(frozen=True)
class File:
    """A file that was made: `turns` times the same `turn` frames."""

    path: Path
    turns: int
    turn: int

    @property
    def frames(self) -> int:
        return self.turns * self.turn

    def wanted(self) -> list[int]:
        """The numbers, from the start of the file, of the frames on display. `frames` is odd, so none is a tie."""
        return [(2 * i + 1) * self.frames // (2 * FRAMES) for i in range(FRAMES)]


def make(name: str, folder: Path, minutes: float) -> File:
    """Make a file, or find it where an earlier run left it."""
    kind = KINDS[name]
    length = minutes * kind.share
    turns = max(1, round(length))
    while math.gcd(turns, FRAMES) != 1:
        turns += 1
    turn = min(round(length * 60 * FPS / turns) | 1, 1 << BITS)
    path = folder / f"{name}-{turns}x{turn}-{RECIPE}.mp4"
    if not path.exists():
        print(f"making {path.name} …", file=sys.stderr)
        once = folder / f"{name}-{turn}.part.mp4"
        encode(once, turn, kind)
        half = path.with_suffix(".part.mp4")
        repeat(once, half, turns, turn)
        once.unlink()
        half.rename(path)
    return File(path, turns, turn)


def pictures(count: int, *, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Iterator[npt.NDArray[np.uint8]]:
    """Planar 4:2:0 frames: two textures moving against each other, noise that is new in every frame, cuts, a number."""
    width, height = size
    rng = np.random.default_rng(7)

    def texture(octaves: range) -> npt.NDArray[np.int16]:
        total = np.zeros((2 * height, 2 * width))
        for octave in octaves:
            small = rng.normal(size=(2 * height // 2**octave + 2, 2 * width // 2**octave + 2))
            rows = np.linspace(0, small.shape[0] - 1.001, 2 * height)
            columns = np.linspace(0, small.shape[1] - 1.001, 2 * width)
            r, c = rows.astype(int), columns.astype(int)
            fr, fc = (rows - r)[:, None], (columns - c)[None, :]
            top = small[r][:, c] * (1 - fc) + small[r][:, c + 1] * fc
            bottom = small[r + 1][:, c] * (1 - fc) + small[r + 1][:, c + 1] * fc
            total += (top * (1 - fr) + bottom * fr) * 2 ** (0.7 * octave)
        total -= total.min()
        steps: npt.NDArray[np.int16] = (total * 200 / total.max()).astype(np.int16) // 20 * 20  # edges to be followed
        return steps

    textures = [texture(range(2, 8)) for _ in range(3)]
    noise = np.clip(rng.normal(0, 2.5, size=(height + 256, width + 256)), -10, 10).astype(np.int16)
    left = 0
    for number in range(count):
        if left == 0:  # a cut: another pair of textures, places and speeds
            left = int(rng.integers(90, 420))
            one, two = (textures[i] for i in rng.permutation(3)[:2])
            place = rng.uniform(0.2, 0.8, size=4)
            speed = rng.uniform(-0.004, 0.004, size=4)
        left -= 1
        place = np.where((place + speed < 0) | (place + speed > 1), place, place + speed)
        y1, y2 = (int(v * height) for v in place[:2])
        x1, x2 = (int(v * width) for v in place[2:])
        ny, nx = rng.integers(0, 256, size=2)
        luma = (2 * one[y1 : y1 + height, x1 : x1 + width] + two[y2 : y2 + height, x2 : x2 + width]) // 3 + 20
        luma += noise[ny : ny + height, nx : nx + width]
        picture = np.empty((height * 3 // 2, width), np.uint8)
        np.clip(luma, 0, 255, out=picture[:height], casting="unsafe")
        strip = height * STRIP // HEIGHT
        columns = np.arange(width) * BITS // width
        picture[:strip] = np.where((number >> columns) & 1, 235, 16)
        chroma = 90 + one[y1 : y1 + height : 2, x1 : x1 + width : 2] // 3
        picture[height:] = chroma.astype(np.uint8).reshape(-1, width).repeat(2, axis=0)[: height // 2]
        yield picture


def encode(path: Path, count: int, kind: Kind, *, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    import av
    from av.video.stream import VideoStream

    with av.open(str(path), "w") as out:
        stream = out.add_stream(kind.codec, rate=FPS, options=kind.options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.gop_size = kind.gop
        for picture in pictures(count, size=size):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
        out.mux(stream.encode(None))


def repeat(source: Path, target: Path, turns: int, turn: int) -> None:
    import av

    with av.open(str(target), "w") as out:
        stream = None
        for number in range(turns):
            with av.open(str(source)) as once:
                stream = stream or out.add_stream_from_template(once.streams.video[0])
                for packet in once.demux(once.streams.video[0]):
                    if packet.dts is None:
                        continue
                    assert packet.pts is not None
                    shift = round(number * turn / FPS / packet.time_base)
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                    out.mux(packet)


def read_number(pixels: npt.NDArray[np.uint8]) -> int:
    """The number a frame shows, at any size from about 64 pixels wide."""
    height, width = pixels.shape[:2]
    tall, wide = height * STRIP / HEIGHT, width / BITS
    strip = pixels[math.ceil(tall * 0.25) : max(math.floor(tall * 0.75), math.ceil(tall * 0.25) + 1)].mean(axis=(0, 2))
    levels = [strip[math.ceil((b + 0.25) * wide) : math.floor((b + 0.75) * wide)].mean() for b in range(BITS)]
    return sum(1 << b for b, level in enumerate(levels) if level > 127)
