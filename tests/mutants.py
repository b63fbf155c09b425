"""Videos with a few bytes overwritten, and whether the damage is visible, flagged by FFmpeg, and warned of by us.

    python tests/mutants.py [--count 200] [--seed 0] [--only h264.mp4 …]

prints a table. A frame is visibly wrong if it differs from the true one by more than 4 levels of 255 on average, or by
more than 24 in one of 64 blocks. A mutant is silent if its pool holds a visibly wrong frame and no warning.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, sample
from gridprobe.video.decode import SWSCALE
from videos import Pixels

FPS, FRAMES, GOP, CELLS = 25, 200, 20, 100
SIDE = 64
X264 = "b-adapt=0:scenecut=0:threads=1"
SEEDS = {
    "h264.mp4": ("libx264", {"bf": "2", "x264-params": X264}),
    "cavlc.mp4": ("libx264", {"bf": "0", "x264-params": f"cabac=0:{X264}"}),
    "h264.ts": ("libx264", {"bf": "2", "x264-params": X264}),
    "asp.mp4": ("mpeg4", {"qscale": "3"}),
    "mpeg2.ts": ("mpeg2video", {"bf": "2"}),
    "hevc.mp4": ("libx265", {"x265-params": f"log-level=none:keyint={GOP}:min-keyint={GOP}:pools=none"}),
    "vp9.webm": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
}


@dataclass(frozen=True)
class Seed:
    """A video without damage and all its frames."""

    path: Path
    frames: dict[int, Pixels]


@dataclass(frozen=True)
class Fate:
    """What became of one mutant."""

    visible: bool
    """Whether FFmpeg, left to itself, shows a wrong frame or loses one."""
    flagged: bool
    """Whether FFmpeg said so: by an error, or a corrupt packet or frame."""
    refused: bool
    warned: bool
    wrong: bool
    """Whether the pool holds a visibly wrong frame."""

    @property
    def silent(self) -> bool:
        """Whether damage was served without a word."""
        return self.wrong and not self.warned


def make_seed(folder: Path, name: str) -> Seed:
    """Textures that move, 320×192, a keyframe every 20 frames."""
    path, (codec, options) = folder / name, SEEDS[name]
    smooth = np.random.default_rng(3).integers(0, 256, (24, 40, 3)).astype(np.uint8).repeat(16, 0).repeat(16, 1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=FPS, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 320, 192, "yuv420p"
        stream.codec_context.gop_size = GOP
        for number in range(FRAMES):
            picture = np.roll(smooth, (number * 3, -number * 2), axis=(0, 1))[:192, :320] // 2
            picture[:, : number * 5 % 320] += 90
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        output.mux(stream.encode())
    return Seed(path, decoded(path)[0])


def decoded(path: Path) -> tuple[dict[int, Pixels], bool]:
    """Every frame by its number as FFmpeg gives it in one pass, and whether it flagged anything."""
    frames, flagged = {}, False
    scaler = av.video.reformatter.VideoReformatter()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        start, tick = stream.start_time or 0, stream.time_base
        assert tick
        for packet in container.demux(stream):
            flagged |= packet.is_corrupt
            try:
                found = stream.codec_context.decode(packet if packet.size else None)
            except av.FFmpegError:
                flagged = True
                continue
            for frame in found:
                flagged |= frame.is_corrupt
                if frame.pts is not None:
                    small = scaler.reformat(frame, SIDE, SIDE, "rgb24", interpolation=SWSCALE).to_ndarray()
                    frames[round((frame.pts - start) * tick * FPS)] = small.astype(np.uint8, copy=False)
    return frames, flagged


def differs(one: Pixels, other: Pixels) -> bool:
    """Whether two frames are visibly different."""
    gap = np.abs(one.astype(np.int16) - other)
    blocks = gap.reshape(8, SIDE // 8, 8, SIDE // 8, 3).mean((1, 3, 4))
    return bool(gap.mean() > 4 or blocks.max() > 24)


def mutants(seed: Seed, count: int, *, number: int = 0) -> Iterator[bytes]:
    """Copies with 1 to 4 places of 1 to 16 bytes overwritten, in the media and not in the index."""
    data, chance = seed.path.read_bytes(), random.Random(f"{seed.path.name} {number}")
    first, last = len(data) // 20, len(data)
    if b"moov" in data:
        first, last = sorted((data.index(b"mdat") + 8, data.index(b"moov") - 4))
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at, size = chance.randrange(first, last - 16), chance.choice((1, 4, 4, 16))
            mutant[at : at + size] = chance.randbytes(size)
        yield bytes(mutant)


def fate(seed: Seed, mutant: bytes, folder: Path) -> Fate:
    """Decode a mutant as FFmpeg does and as we do."""
    path = folder / f"mutant-{seed.path.name}"
    path.write_bytes(mutant)
    plain, flagged = decoded(path)
    visible = any(number not in plain or differs(plain[number], true) for number, true in seed.frames.items())
    try:
        pool = sample(path, num_frames=CELLS, size=FrameSize(square=SIDE))
    except VideoError:
        return Fate(visible, flagged, refused=True, warned=True, wrong=False)
    shown = [(round(time * FPS), pixels) for time, pixels in zip(pool.times, pool.pixels, strict=True)]
    wrong = any(number not in seed.frames or differs(seed.frames[number], pixels) for number, pixels in shown)
    return Fate(visible, flagged, refused=False, warned=bool(pool.warnings), wrong=wrong)


def fates(name: str, count: int, folder: Path, *, number: int = 0) -> list[Fate]:
    """The fates of `count` mutants of one seed."""
    seed = make_seed(folder, name)
    return [fate(seed, mutant, folder) for mutant in mutants(seed, count, number=number)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants of each seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=SEEDS, default=list(SEEDS))
    given = parser.parse_args()
    print(
        "| seed | mutants | visibly damaged | flagged by FFmpeg | refused | warned | silent | silent though flagged |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            found = fates(name, given.count, Path(folder), number=given.seed)
        sums = Counter[str]()
        for each in found:
            sums.update({key: value for key, value in vars(each).items() if value})
        silent, though = sum(each.silent for each in found), sum(each.silent and each.flagged for each in found)
        share = f"{silent} ({silent / max(1, sums['visible']):.0%})"
        warned = sums["warned"] - sums["refused"]
        row = [name, len(found), sums["visible"], sums["flagged"], sums["refused"], warned, share, though]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
