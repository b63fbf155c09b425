"""Filling the index: which videos are new, changed or gone; their frames, shots, vectors and spoken lines."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gridprobe._util import report
from gridprobe.errors import DataError, UsageError, VideoError
from gridprobe.selectors.base import Encoder
from gridprobe.video import FramePool, FrameSize, Precision, Video, VideoLimits
from gridprobe.video.files import check_file
from gridprobe.video.frames import Pixels
from gridprobe.video.subtitles import Segment, read_subtitles
from gridprobe_find.index import IndexedVideo, IndexMeta, LibraryIndex, NewRows, Vectors, new_key

WINDOW = 256
"""Frames that are decoded and encoded together, so that memory does not grow with the video."""
SIDECARS = (".srt", ".vtt")
"""Endings of a file of spoken lines next to its video."""
NEW_SHOT = 28.0
"""Neighbours whose 8 × 8 thumbnails differ by more than this on average, of 255, are different shots."""
TIDY_EVERY = 100
"""Videos between two clean-ups of the index."""


@dataclass(frozen=True)
class IndexReport:
    """What a run of the indexer did."""

    new: int = 0
    same: int = 0
    dropped: int = 0
    frames: int = 0
    seconds: float = 0.0
    """Of video that was read."""
    problems: tuple[str, ...] = ()
    """A sentence for each video that could not be read, and for lines that could not."""


def meta_of(name: str, encoder: Encoder) -> IndexMeta:
    """What an index with this encoder says about itself."""
    return IndexMeta(name, encoder.identity, encoder.texts(["frame"]).shape[1])


def build(
    index: LibraryIndex, videos: Sequence[Path], encoder: Encoder, *, every: float = 2.0, roots: Sequence[Path] = ()
) -> IndexReport:
    """Index what is new among these videos; forget what is gone from the folders `roots`."""
    if not 0.04 <= every <= 3600:
        raise UsageError(f"a frame every {every:g} s cannot be sampled; choose 0.04 to 3600 seconds")
    index.recover()
    before = {video.path: video for video in index.videos()}
    done = drop_gone(index, before, roots)
    for count, path in enumerate(videos, start=1):
        name = os.path.abspath(path)
        try:
            done = _add(index, before, name, encoder, every=every, done=done)
        except (VideoError, DataError) as error:
            if isinstance(error, DataError) and str(index.folder) in str(error):
                raise  # it is the index that cannot be used
            done = replace(done, problems=(*done.problems, str(error) if name in str(error) else f"{name}: {error}"))
        report("videos", count, len(videos))
        if done.new and done.new % TIDY_EVERY == 0:
            index.tidy()
    if done.new or done.dropped:
        index.tidy()
    return done


def drop_gone(index: LibraryIndex, before: dict[str, IndexedVideo], roots: Sequence[Path]) -> IndexReport:
    """Forget the videos of these folders that do not exist any more; a folder that is gone itself keeps its videos."""
    folders = [os.path.join(os.path.abspath(root), "") for root in roots if root.is_dir()]
    gone = [path for path in before if path.startswith(tuple(folders)) and not os.path.exists(path)]
    if gone:
        index.drop(gone)
    for path in gone:
        del before[path]
    return IndexReport(dropped=len(gone))


def _add(
    index: LibraryIndex,
    before: dict[str, IndexedVideo],
    path: str,
    encoder: Encoder,
    *,
    every: float,
    done: IndexReport,
) -> IndexReport:
    identity, sidecar = identity_of(path, every)
    if path in before and before[path].identity == identity:
        return replace(done, same=done.same + 1)
    twin = next((video for video in before.values() if video.identity == identity), None)
    if twin is not None:
        before[path] = replace(twin, path=path)
        index.alias(before[path])
        return replace(done, same=done.same + 1)
    lines = read_subtitles(sidecar).segments if sidecar else ()
    info, rows = read_rows(path, encoder, every=every)
    if identity_of(path, every)[0] != identity:
        raise VideoError(f"{path}: the file changed while it was indexed; try again when it is complete")
    video = IndexedVideo(
        path=path,
        key=new_key(),
        identity=identity,
        duration=info[0],
        fps=info[1],
        frames=len(rows.times),
        lines=len(lines),
        every=every,
    )
    index.add(video, replace(rows, lines=tuple(_closed(line, info[0]) for line in lines)))
    before[path] = video
    return replace(done, new=done.new + 1, frames=done.frames + video.frames, seconds=done.seconds + video.duration)


def identity_of(path: str, every: float) -> tuple[str, Path | None]:
    """What decides the rows of a video, and the file of its lines, if there is one."""
    file = check_file(path)
    sidecar = next((side for end in SIDECARS if (side := Path(path).with_suffix(end)).is_file()), None)
    lines = check_file(sidecar).fingerprint if sidecar and sidecar.stat().st_size else ""
    return f"{file.fingerprint}:{every:g}:{lines}", sidecar if lines else None


def read_rows(path: str, encoder: Encoder, *, every: float) -> tuple[tuple[float, float], NewRows]:
    """Duration and frame rate of a video, and the rows of its sampled frames."""
    info = Video(path, num_frames=1, decode_in="child").info
    duration = info.duration or 0.0
    if duration <= 0:
        raise VideoError(f"{path}: the file does not say how long it is; convert it to another container")
    count = max(1, round(duration / every))
    parts: list[tuple[list[float], Vectors, Pixels]] = []
    for first in range(0, count, WINDOW):
        size = min(WINDOW, count - first)
        inside = (first * duration / count, (first + size) * duration / count)
        parts.append(_window(path, encoder, inside, size))
        report("frames indexed", first + size, count)
    times = np.array([time for part in parts for time in part[0]], np.float32)
    new = np.concatenate([[True], np.diff(times) > 0])  # windows may share a frame at their border
    vectors = np.concatenate([part[1] for part in parts])[new]
    shots = shots_of(np.concatenate([part[2] for part in parts])[new])
    return (duration, info.fps or 25.0), NewRows(times[new], shots, vectors)


def _window(
    path: str, encoder: Encoder, inside: tuple[float, float], count: int
) -> tuple[list[float], Vectors, Pixels]:
    """Times, vectors and thumbnails of that many frames between two moments."""
    pool = sampled(path, (inside,), count, encoder.image_size, precision="auto")
    return list(pool.times), encoder.images(pool), thumbnails_of(pool.pixels)


def sampled(
    path: str,
    segments: tuple[tuple[float, float], ...],
    count: int,
    size: FrameSize,
    *,
    precision: Precision = "exact",
) -> FramePool:
    """Frames of some segments of a video, decoded in a child process; no cache is read or written."""
    limits = VideoLimits(cache=0)
    video = Video(path, num_frames=count, segments=segments, precision=precision, limits=limits, decode_in="child")
    return video.pool(size)


def thumbnails_of(pixels: Pixels) -> Pixels:
    """Every frame as 8 × 8 mean colours."""
    frames, height, width, _ = pixels.shape
    rows, columns = max(1, height // 8), max(1, width // 8)
    whole = (
        pixels[:, : rows * 8, : columns * 8] if height >= 8 and width >= 8 else np.zeros((frames, 8, 8, 3), np.uint8)
    )
    rows, columns = whole.shape[1] // 8, whole.shape[2] // 8
    means: Pixels = whole.reshape(frames, 8, rows, 8, columns, 3).mean(axis=(2, 4)).astype(np.uint8)
    return means


def shots_of(thumbnails: Pixels) -> npt.NDArray[np.int32]:
    """The number of the shot that each frame belongs to."""
    change = np.abs(np.diff(thumbnails.astype(np.float32), axis=0)).mean(axis=(1, 2, 3))
    return np.concatenate([[0], np.cumsum(change > NEW_SHOT)]).astype(np.int32)


def _closed(line: Segment, duration: float) -> Segment:
    """A line with an end."""
    return replace(line, end=min(line.end, max(duration, line.start)))
