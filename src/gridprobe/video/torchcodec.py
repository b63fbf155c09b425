"""torchcodec as a second decoder for the same plan, used only if `decoder="torchcodec"` is given.

Moments, times and sizes are the same. Pixels differ a little, because colours are converted before scaling, not with
it: on the files of speed/decode.py by 1.2 of 255 levels on average and 24 at most (the tests allow 1.5 and 32).
Every frame is checked against the packets' timestamps, as torchcodec is off by a group of pictures in MPEG-TS. It does
not detect damage, opens a file without our list of formats (PyAV has opened it with that list before), and cannot be
interrupted during a call. It is not faster on a CPU: for 144 frames of those files it takes 1.6 to 2.8 times the
processor time of PyAV here. It was never tried with NVDEC.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gridprobe.cores import usable_cores
from gridprobe.errors import UsageError, VideoError
from gridprobe.progress import report
from gridprobe.video.decode_plan import DecodePlan
from gridprobe.video.info import VideoInfo
from gridprobe.video.packets import expected_ticks
from gridprobe.video.parallel import SWSCALE, Opener
from gridprobe.video.rows import Found, Rows
from gridprobe.video.sampling import Decoder
from gridprobe.video.source import Source
from gridprobe.video.timeline import Clock

if TYPE_CHECKING:
    from av import VideoFrame

__all__ = ["other_decoder", "read_plan_with_torchcodec", "torchcodec_state"]

OLDEST = (0, 13)
"""The first version tried; it rotates frames upright by itself."""
BATCH = 16
"""Frames decoded in one call, at full size: 50 MB for 1080p."""


def torchcodec_state() -> tuple[str | None, str]:
    """The version of torchcodec and "", or None and the reason it cannot be used."""
    import importlib.metadata

    try:
        version = importlib.metadata.version("torchcodec")
    except importlib.metadata.PackageNotFoundError:
        return None, "torchcodec is not installed"
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < OLDEST:
        return None, f"torchcodec {version} is older than {OLDEST[0]}.{OLDEST[1]}"
    try:
        import torchcodec.decoders  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None, f"torchcodec {version} is installed but does not load: {first[:200]}"
    return version, ""


def other_decoder(decoder: Decoder) -> str | None:
    """The decoder used instead of PyAV, with its version; None for PyAV, UsageError if it cannot be used."""
    if decoder == "pyav":
        return None
    version, reason = torchcodec_state()
    if version is None:
        raise UsageError(f'decoder "torchcodec" cannot be used: {reason}; use decoder="pyav"')
    return f"torchcodec {version}"


def read_plan_with_torchcodec(
    open_source: Opener,
    clock: Clock,
    plan: DecodePlan,
    rows: Rows,
    *,
    info: VideoInfo,
    reach: int,
    keep: Collection[int] | None = None,
) -> Found:
    """As `parallel.read_plan`, but torchcodec does the rotation, and no frame is ever substituted."""
    from av.video.reformatter import VideoReformatter

    scaler = VideoReformatter()
    with open_source() as source:
        wanted = [tick for tick in _wanted(source, clock, plan) if keep is None or tick in keep]
        report("decode", 0, len(plan))
        decoder = _decoder(source)
        for first in range(0, len(wanted), BATCH):
            source.deadline.check()
            ticks = wanted[first : first + BATCH]
            for row, data in enumerate(_frames(decoder, source, clock, ticks), start=first):
                frame = scaler.reformat(data, rows.width, rows.height, "rgb24", interpolation=SWSCALE)
                rows.put_plane(row, frame.planes[0])
            report("decode", min(first + BATCH, len(wanted)) + len(plan) - len(wanted), len(plan))
    return Found(tuple(wanted))


def _wanted(source: Source, clock: Clock, plan: DecodePlan) -> list[int]:
    ticks = None if clock.counted else expected_ticks(source, clock, plan)
    if ticks is None:
        raise VideoError(f'{source.file.name}: the video has no timestamps, which torchcodec needs; use decoder="pyav"')
    return ticks


def _frames(decoder: Any, source: Source, clock: Clock, ticks: list[int]) -> Iterator["VideoFrame"]:
    """Torchcodec's frames for these ticks, with their timestamps checked."""
    import av
    import numpy as np

    # Half a tick later, so that rounding to float seconds cannot select the frame before.
    with _plain_errors(source):
        batch = decoder.get_frames_played_at([float((tick + Fraction(1, 2)) * clock.tick) for tick in ticks])
        pixels, times = batch.data.cpu().numpy(), batch.pts_seconds.tolist()
    for tick, data, time in zip(ticks, pixels, times, strict=True):
        if round(time / clock.tick) != tick:
            raise VideoError(
                f"{source.file.name}: torchcodec returned the frame at {time:.3f} s instead of the one at "
                f'{float(tick * clock.tick):.3f} s; use decoder="pyav"'
            )
        yield av.VideoFrame.from_ndarray(np.ascontiguousarray(data), format="rgb24")


def _decoder(source: Source) -> Any:
    from torchcodec.decoders import VideoDecoder

    with _plain_errors(source):
        return VideoDecoder(
            source.file.path,
            stream_index=source.stream.index,
            num_ffmpeg_threads=usable_cores(),
            dimension_order="NHWC",
        )


@contextmanager
def _plain_errors(source: Source) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, IndexError) as error:
        words = " ".join(str(error).split())[-160:] or type(error).__name__
        raise VideoError(f"{source.file.name}: torchcodec failed ({words})") from None
