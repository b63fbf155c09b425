"""A folder of pictures as a video: sorted by name, one second each unless `times.json` says otherwise.

`times.json` is a list of seconds, one for each picture in order, or an object that maps file names to seconds.
"""

import hashlib
import json
import os
import re
import struct
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image, ImageOps, UnidentifiedImageError

from gridprobe._util import report
from gridprobe.errors import VideoError
from gridprobe.video.files import Deadline, VideoLimits
from gridprobe.video.frames import Pixels
from gridprobe.video.sampling import FrameBuffer, FrameIndex, SampleSpec, linspace_numbers
from gridprobe.video.source import VideoInfo

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
"""What Pillow may open. It goes by content, whatever the suffix, and would hand PostScript to Ghostscript."""
TIMES = "times.json"
MAX_PICTURES = 1_000_000
MAX_TIME = 1e12
MAX_RESHAPED = 0.02
"""How much a picture's aspect ratio may differ from the first one's before it gets black bars."""
BICUBIC = Image.Resampling.BICUBIC


@dataclass(frozen=True, eq=False)
class FolderStream:
    """A folder whose pictures were listed; `read` opens the sampled ones. A pts is a picture's number."""

    folder: Path
    info: VideoInfo
    pictures: Sequence[Path]
    times: Sequence[float]
    sampled: list[int]
    """The numbers of the pictures on display at the sampled moments."""
    spec: SampleSpec
    used: float = 0.0
    """Seconds of `VideoLimits.seconds` spent on opening; each later pass has the rest."""

    @property
    def source(self) -> str:
        """Identifies the folder's content."""
        return self.info.fingerprint

    @property
    def most_frames(self) -> int:
        """How many pictures are sampled."""
        return len(self.sampled)

    def seconds(self, pts: int) -> float:
        """When a picture is shown, in seconds from the first one."""
        return self.times[pts] - self.times[0]

    def expected_pts(self) -> list[int]:
        """The numbers of the pictures on display at the sampled moments."""
        return self.sampled

    def read(
        self, size: tuple[int, int], pts_list: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[FrameIndex, Pixels]:
        """Open all sampled pictures, or these, scaled to (width, height)."""
        pixels = np.empty((len(self.sampled if pts_list is None else pts_list), size[1], size[0], 3), np.uint8)
        return self.fill(FrameBuffer.of(pixels), pts_list, whole=whole), pixels

    def fill(self, buffer: FrameBuffer, pts_list: Sequence[int] | None = None, *, whole: bool = False) -> FrameIndex:
        """Open all sampled pictures, or these, scaled to the size of the buffer's frames."""
        numbers = self.sampled if pts_list is None else list(pts_list)
        deadline = Deadline(self.info.path, self.spec.limits.seconds, time.monotonic() - self.used)
        reshaped = 0
        for place, number in enumerate(numbers):
            deadline.check()
            picture = _open(self.pictures[number], self.spec.limits)
            aspect = picture.width * self.info.height / (picture.height * self.info.width)
            reshaped += abs(aspect - 1) > MAX_RESHAPED
            buffer.put(place, _fitted(picture, (buffer.width, buffer.height), aspect).tobytes())
            report("decode", place + 1, len(numbers))
        if not self._is_unchanged():
            raise VideoError(f"{self.folder}: the pictures changed while they were in use; try again")
        return FrameIndex(tuple(numbers), reshaped=reshaped)

    def warnings(self, index: FrameIndex) -> tuple[str, ...]:
        """What to warn about in an answer based on these pictures."""
        count = len(index.pts)
        texts = list(self.spec.cut_words(self.info.duration or 0.0))
        if index.reshaped:
            texts.append(
                f"{index.reshaped} of the pictures have another aspect ratio than the first and got black bars"
            )
        if count < self.spec.num_frames:
            few = f"the folder shows only {count} distinct pictures at the {self.spec.num_frames} sampled times"
            texts.append(f"{few}; the grid has {count} cells")
        return tuple(texts)

    def _is_unchanged(self) -> bool:
        """Whether the files are the same as when the folder was opened."""
        try:
            return _fingerprint(self.pictures, self.times) == self.info.fingerprint
        except OSError:
            return False


def open_folder(folder: Path, spec: SampleSpec) -> FolderStream:
    """Find the pictures on display at the sampled moments."""
    if spec.stream is not None:
        raise VideoError(f"{folder}: a folder of pictures has no stream {spec.stream}; leave stream out")
    started = time.monotonic()
    info, pictures, times = _inspect(folder, spec.limits)
    if spec.sampling == "linspace":
        numbers = linspace_numbers(len(pictures), spec.num_frames)
    else:
        moments = times[0] + np.array(spec.moments(info.duration or 0.0))
        numbers = tuple(int(i) for i in np.searchsorted(times, moments, side="right") - 1)
    return FolderStream(folder, info, pictures, times, list(dict.fromkeys(numbers)), spec, time.monotonic() - started)


def describe_folder(folder: Path, limits: VideoLimits) -> VideoInfo:
    """The VideoInfo of a folder of pictures, with the size of the first picture."""
    return _inspect(folder, limits)[0]


def _inspect(folder: Path, limits: VideoLimits) -> tuple[VideoInfo, list[Path], list[float]]:
    pictures = _pictures(folder)
    times = _times(folder, pictures)
    # The last picture is shown for as long as the one before it.
    duration = times[-1] - times[0] + (times[-1] - times[-2] if len(times) > 1 else 1.0)
    if duration > limits.max_duration:
        raise VideoError(
            f"{folder}: {duration:.0f} s is longer than {limits.max_duration:.0f} s (VideoLimits.max_duration)"
        )
    first = _open(pictures[0], limits)
    info = VideoInfo(
        path=str(folder),
        container="folder",
        codec=pictures[0].suffix[1:].lower(),
        width=first.width,
        height=first.height,
        rotation=0,
        fps=len(times) / duration,
        duration_header=None,
        frames_header=None,
        duration_found=duration,
        frames_found=len(pictures),
        start_time=times[0],
        pixel_format="rgb24",
        hdr=False,
        decoder=f"Pillow {PIL.__version__}",
        fingerprint=_fingerprint(pictures, times),
    )
    return info, pictures, times


def _pictures(folder: Path) -> list[Path]:
    """Regular picture files in natural order: frame2 comes before frame10."""
    try:
        with os.scandir(folder) as entries:
            named = [entry for entry in entries if not entry.name.startswith(".")]  # "._x.png" is macOS's own
            pictures = [Path(e.path) for e in named if e.is_file() and Path(e.name).suffix.lower() in SUFFIXES]
    except OSError as error:
        raise VideoError(f"{folder}: cannot be read ({error.strerror})") from None
    if not pictures:
        raise VideoError(f"{folder}: no picture in this folder ({', '.join(sorted(SUFFIXES))}); name a video file")
    if len(pictures) > MAX_PICTURES:
        raise VideoError(f"{folder}: {len(pictures)} pictures are more than {MAX_PICTURES}")
    return sorted(pictures, key=_natural)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def _times(folder: Path, pictures: Sequence[Path]) -> list[float]:
    file = folder / TIMES
    if not file.is_file():
        return [float(number) for number in range(len(pictures))]
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VideoError(f"{file}: not valid JSON ({type(error).__name__})") from None
    values = [content.get(p.name) for p in pictures] if isinstance(content, dict) else content
    if not isinstance(values, list) or len(values) != len(pictures) or not all(map(_is_time, values)):
        raise VideoError(f"{file}: needs one number of seconds for each of the {len(pictures)} pictures")
    times = [float(value) for value in values]
    if (np.diff(times) <= 0).any():
        raise VideoError(f"{file}: the times must rise from picture to picture")
    return times


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_TIME < value < MAX_TIME


def _open(path: Path, limits: VideoLimits) -> Image.Image:
    """One picture, upright, in RGB; a decompression bomb is refused from its header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged EXIF data and the like
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as picture:
                if picture.width * picture.height > limits.max_pixels:
                    raise VideoError(
                        f"{path}: {picture.width}×{picture.height} has more than {limits.max_pixels} pixels"
                    )
                return _as_rgb(ImageOps.exif_transpose(picture))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise VideoError(f"{path}: the picture is too large") from None
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, struct.error) as error:
        kinds = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise VideoError(
            f"{path}: not a picture that can be read as {kinds} ({type(error).__name__}); convert or remove it"
        ) from None


def _as_rgb(picture: Image.Image) -> Image.Image:
    """Pillow cuts grey of more than 8 bits off at 255, which makes it white; 65535 is white here."""
    if not picture.mode.startswith(("I", "F")):
        return picture.convert("RGB")
    grey = np.clip(np.asarray(picture, np.float64) / 257, 0, 255).round().astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _fitted(picture: Image.Image, size: tuple[int, int], aspect: float) -> Image.Image:
    """The picture in this size; with black bars if its aspect ratio is `aspect` times that of the first one."""
    if abs(aspect - 1) <= MAX_RESHAPED:
        return picture.resize(size, BICUBIC)
    inner = max(1, round(size[0] * min(1, aspect))), max(1, round(size[1] * min(1, 1 / aspect)))
    framed = Image.new("RGB", size)
    framed.paste(picture.resize(inner, BICUBIC), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return framed


def _fingerprint(pictures: Sequence[Path], times: Sequence[float]) -> str:
    digest = hashlib.sha256()
    for path, second in zip(pictures, times, strict=True):
        status = path.stat()
        digest.update(
            f"{path.name}\n{status.st_size} {status.st_mtime_ns} {second}\n".encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()
