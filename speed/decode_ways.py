"""The contenders of speed/decode.py. Each imports what it needs and gives back the work to be timed."""

import bisect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from decode_files import FRAMES

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # this checkout

CORES = os.cpu_count() or 1
TIMEOUT = 900

Taken = tuple[Any, list[float]]
"""Frames as one array or a list of arrays, and the time their reader gives each."""
Work = Callable[[str], Taken]


def gridprobe(precision: str, side: int | None) -> Work:
    import av  # noqa: F401

    from gridprobe.video import FrameSize, VideoLimits, sample

    # multiple=1 is the video's own size, like the rivals; the product's default is at most 786 432 pixels.
    size = FrameSize(max_side=side) if side else FrameSize(multiple=1)
    options: dict[str, Any] = {"precision": precision, "limits": VideoLimits(seconds=TIMEOUT)}

    def work(path: str) -> Taken:
        pool = sample(path, num_frames=FRAMES, size=size, **options)
        return pool.pixels, list(pool.times)

    return work


def plain() -> Work:
    """The way most people write it: seek to each target, decode forward, keep the frame."""
    import av

    def work(path: str) -> Taken:
        kept, times = [], []
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            assert stream.duration and stream.time_base and stream.average_rate
            duration = float(stream.duration * stream.time_base)
            for i in range(FRAMES):
                moment = (i + 0.5) * duration / FRAMES
                container.seek(int(moment / stream.time_base), stream=stream)
                for frame in container.decode(stream):
                    if (frame.time or 0.0) + 1 / float(stream.average_rate) > moment:
                        kept.append(frame.to_ndarray(format="rgb24"))
                        times.append(frame.time)
                        break
        return kept, times

    return work


def indices(count: int) -> list[int]:
    return [int((i + 0.5) * count / FRAMES) for i in range(FRAMES)]


def opencv() -> Work:
    import cv2

    def work(path: str) -> Taken:
        kept, times = [], []
        capture = cv2.VideoCapture(path)
        for index in indices(int(capture.get(cv2.CAP_PROP_FRAME_COUNT))):
            capture.set(cv2.CAP_PROP_POS_FRAMES, index)
            good, pixels = capture.read()
            if good:
                kept.append(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
                times.append(capture.get(cv2.CAP_PROP_POS_MSEC) / 1000)
        capture.release()
        return kept, times

    return work


def decord() -> Work:
    import decord

    def work(path: str) -> Taken:
        reader = decord.VideoReader(path, num_threads=CORES)
        chosen = indices(len(reader))
        pixels = reader.get_batch(chosen).asnumpy()
        return pixels, [float(start) for start, _ in reader.get_frame_timestamp(chosen)]

    return work


def torchcodec(mode: str) -> Work:
    from torchcodec.decoders import VideoDecoder

    def work(path: str) -> Taken:
        decoder = VideoDecoder(path, seek_mode=mode, num_ffmpeg_threads=CORES, dimension_order="NHWC")
        batch = decoder.get_frames_at(indices(decoder.metadata.num_frames))
        return batch.data.numpy(), batch.pts_seconds.tolist()

    return work


class Limit:
    """Decode what must be decoded, on one thread. Where that is, is worked out before the clock starts."""

    def __init__(self) -> None:
        import av

        self.open, self.decoded = av.open, 0
        self.groups: dict[int, dict[int, int]] = {}
        """By key frame: the targets that need it and their places in the file."""

    def prepare(self, path: str) -> None:
        with self.open(path) as container:
            demuxed = container.demux(container.streams.video[0])
            packets = [(packet.pts, packet.is_keyframe) for packet in demuxed if packet.pts is not None]
        shown = sorted(pts for pts, _ in packets)
        place = {pts: n for n, (pts, _) in enumerate(packets)}
        keys = [n for n, (_, key) in enumerate(packets) if key]
        for target in (shown[index] for index in indices(len(shown))):
            at = bisect.bisect_right(keys, place[target]) - 1
            while packets[keys[at]][0] > target:  # shown before the key frame it follows in the file
                at -= 1
            self.groups.setdefault(packets[keys[at]][0], {})[target] = place[target]

    def __call__(self, path: str) -> Taken:
        kept, times = [], []
        with self.open(path) as container:
            stream = container.streams.video[0]
            context = stream.codec_context
            assert stream.time_base
            context.thread_type = "NONE"
            for key, targets in self.groups.items():
                last = max(targets, key=targets.__getitem__)  # in the file, not on display
                for packet in from_key(container, stream, key):
                    context.skip_frame = "DEFAULT" if packet.pts in targets else "NONREF"
                    found = context.decode(packet) + (context.decode(None) if packet.pts == last else [])
                    self.decoded += len(found)
                    for frame in found:
                        if frame.pts in targets:
                            kept.append(frame.to_ndarray(format="rgb24"))
                            times.append(float(frame.pts * stream.time_base))  # a flushed frame has no time base
                    if packet.pts == last:
                        break
                context.flush_buffers()
        return kept, times


def from_key(container: Any, stream: Any, key: int) -> Iterator[Any]:
    """Packets from the key frame with this time stamp on."""
    back = 0
    while True:
        container.seek(key - back, stream=stream)
        started = False
        for packet in container.demux(stream):
            started = started or packet.pts == key
            if started:
                yield packet
            elif packet.pts is not None and packet.is_keyframe and packet.pts > key:
                break
        back = max(1, back * 2)


@dataclass(frozen=True)
class Contender:
    title: str
    prepare: Callable[[], Work]
    packages: tuple[str, ...] = ()
    rival: bool = True
    elsewhere: bool = False
    """Runs in the rivals' environment."""


def ours(precision: str, side: int | None) -> Contender:
    title = f"**gridprobe {precision}, {f'{side} px' if side else 'full size'}**"
    return Contender(title, lambda: gridprobe(precision, side), ("gridprobe", "av", "numpy"), rival=False)


def elsewhere(title: str, prepare: Callable[[], Work], *packages: str) -> Contender:
    return Contender(title, prepare, packages, elsewhere=True)


CONTENDERS = {
    **{f"{p}-{side}": ours(p, side) for p in ("exact", "auto", "keyframe") for side in (None, 224)},
    "pyav": Contender("PyAV, seek and decode", plain),
    "opencv": elsewhere("OpenCV, CAP_PROP_POS_FRAMES", opencv, "opencv-python-headless"),
    "decord": elsewhere(f"decord get_batch, {CORES} threads", decord, "decord"),
    **{
        f"torchcodec-{mode}": elsewhere(
            f"torchcodec get_frames_at, {mode}, {CORES} threads",
            partial(torchcodec, mode),
            "torchcodec",
            "torch",
        )
        for mode in ("approximate", "exact")
    },
    "limit": Contender(f"the limit: needed frames only, CPU of one thread ÷ {CORES}", Limit, rival=False),
}
