"""FrameSize: a rule for the size of frames. FramePool: frames with identity, decoded or still to be decoded."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gridprobe.errors import UsageError

if TYPE_CHECKING:
    from gridprobe.video.source import VideoInfo

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class FrameSize:
    """A rule for the size a frame is shown at. Both sides become multiples of `multiple`.

    With `square` the frame is squashed. Otherwise its aspect ratio is kept, up to that rounding, within the bounds.
    """

    max_pixels: float | None = None
    max_side: int | None = None
    square: int | None = None
    multiple: int = 1
    """What a model needs the sides to be multiples of; each model knows its own, see `rounded_to`."""
    twice: bool = False
    """Round to multiples of twice `multiple` first, and fit the result, as qwen_vl_utils does with a list of frames:
    with multiples of 32, 720p becomes 1184×640 instead of 1152×640."""
    min_pixels: int | None = None
    """Smaller frames are enlarged to it."""
    total_pixels: int | None = None
    """What the pictures of one pass share: with many of them each is smaller, though not below `min_pixels`; see
    `shared`."""

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """The (width, height) a frame of the given size is shown at.

        With multiples of 32, 1920×1080 becomes (1152, 640) by max_pixels=786_432 and (224, 128) by max_side=224.
        """
        multiple = self.multiple
        if self.square:
            side = max(multiple, round(self.square / multiple) * multiple)
            return side, side
        if self.twice:
            width, height = FrameSize(multiple=2 * multiple, min_pixels=16 * multiple**2).fit(width, height)
        scale = min(1.0, self.max_side / max(width, height)) if self.max_side else 1.0
        w, h = (max(multiple, round(side * scale / multiple) * multiple) for side in (width, height))
        if self.max_pixels and w * h > self.max_pixels:
            excess = math.sqrt(width * height / self.max_pixels)  # dividing in this order is what Qwen's rule does
            w, h = (max(multiple, math.floor(side / excess / multiple) * multiple) for side in (width, height))
        elif self.min_pixels and w * h < self.min_pixels:
            lack = math.sqrt(self.min_pixels / (width * height))
            w, h = (math.ceil(side * lack / multiple) * multiple for side in (width, height))
        return w, h

    def shared(self, pictures: int) -> "FrameSize":
        """The same rule for that many pictures in one pass, each with its share of `total_pixels`."""
        if not self.total_pixels:
            return self
        share = self.total_pixels / pictures
        least = int(self.min_pixels * 1.05) if self.min_pixels else 1  # a little room above the smallest size
        most = max(least, min(share, self.max_pixels or share))
        return replace(self, max_pixels=most, total_pixels=None)

    def scaled(self, share: float) -> "FrameSize":
        """The same rule with every side multiplied by a share below 1."""
        area = share * share
        return replace(
            self,
            max_side=self.max_side and max(1, round(share * self.max_side)),
            square=self.square and max(1, round(share * self.square)),
            max_pixels=self.max_pixels and max(1.0, area * self.max_pixels),
            min_pixels=self.min_pixels and max(1, int(area * self.min_pixels)),
            total_pixels=self.total_pixels and max(1, int(area * self.total_pixels)),
        )

    def describe(self) -> dict[str, Any]:
        """Plain values, for records; the multiple is the model's."""
        return {name: value for name, value in asdict(self).items() if name != "multiple"}

    def rounded_to(self, multiple: int) -> "FrameSize":
        """The same rule for a model whose frames have sides that are multiples of `multiple`."""
        return replace(self, multiple=multiple)


NATIVE = FrameSize(max_pixels=786_432)
"""The size frames are decoded at by default."""


@dataclass(frozen=True, eq=False)
class Pending:
    """Pixels that are decoded when they are first read. Their shape is known before."""

    decode: Callable[[Sequence[int]], Pixels]
    """The frames in these rows."""
    shape: tuple[int, int, int, int]
    """Frames × height × width × 3."""
    keeps: bool = True
    """Whether decoded frames stay here; otherwise they are decoded at every look, unless `decode` has kept them."""
    whole: bool = True
    """Whether all frames are decoded when some are looked at, if they are kept."""

    @property
    def pixels(self) -> Pixels:
        """The decoded frames."""
        return self._pixels if self.keeps else self.decode(range(self.shape[0]))

    @cached_property
    def _pixels(self) -> Pixels:
        return self.decode(range(self.shape[0]))

    @property
    def decoded(self) -> bool:
        """Whether the pixels were read already, and kept."""
        return "_pixels" in vars(self)

    def take(self, rows: Sequence[int]) -> "Pending":
        """Some of the frames, still to be decoded."""

        def decode(some: Sequence[int]) -> Pixels:
            own_rows = [rows[row] for row in some]
            return self._pixels[own_rows] if self.decoded or (self.keeps and self.whole) else self.decode(own_rows)

        return replace(self, decode=decode, shape=(len(rows), *self.shape[1:]), whole=False)


@dataclass(frozen=True, eq=False)
class FramePool:
    """Upright 8-bit RGB frames that know which video they came from and when they are shown."""

    data: Pixels | Pending
    """Frames × height × width × 3, decoded or not."""
    times: tuple[float, ...]
    """True presentation time of each frame, in seconds from the start of the video."""
    source: str
    """Fingerprint of the video; with a time and a size it identifies a frame."""
    info: "VideoInfo | None" = None
    warnings: tuple[str, ...] = ()
    substituted: int = 0
    """How many of the wanted frames were damaged, so that a neighbour stands in."""

    def __post_init__(self) -> None:
        shape, dtype = self.data.shape, np.dtype(np.uint8) if isinstance(self.data, Pending) else self.data.dtype
        if len(shape) != 4 or shape[3] != 3 or dtype != np.uint8:
            raise UsageError(f"frames must be uint8 of shape (n, h, w, 3), got {dtype} {shape}")
        if shape[0] != len(self.times) or not self.times:
            raise UsageError(f"a pool needs one time for each frame, got {shape[0]} frames and {len(self.times)} times")
        if not all(map(math.isfinite, self.times)):
            raise UsageError("frame times must be finite")

    @classmethod
    def from_arrays(cls, frames: Any, times: Sequence[float] | None = None, *, fps: float = 1.0) -> "FramePool":
        """A pool of frames you already have, as a copy, with an identity made from their content.

        Args:
            frames: uint8 RGB, an array or torch tensor of shape (n, h, w, 3) or (n, 3, h, w); or a list of PIL
                pictures or arrays of one size.
            times: the second at which each frame is shown, rising; without it frame i is shown at i / fps.
            fps: frames per second, where no times are given.
        """
        pixels = _as_pixels(frames)
        if not (isinstance(fps, int | float) and 0 < fps < math.inf):
            raise UsageError(f"fps must be a number above 0, got {fps!r}")
        shown = tuple(i / fps for i in range(len(pixels))) if times is None else tuple(map(float, times))
        if any(b <= a for a, b in pairwise(shown)):
            raise UsageError("the times must rise from frame to frame")
        digest = hashlib.sha256(f"{pixels.shape} {shown}\n".encode())
        digest.update(pixels.data)
        return cls(pixels, shown, source=digest.hexdigest())

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        span = f"{self.times[0]:.1f}–{self.times[-1]:.1f} s"
        return f"FramePool({len(self)} frames of {self.width}×{self.height}, {span}, source={self.source[:12]})"

    @property
    def pixels(self) -> Pixels:
        """Frames × height × width × 3; decoded now if they were not yet."""
        return self.data.pixels if isinstance(self.data, Pending) else self.data

    @property
    def width(self) -> int:
        """Width of every frame."""
        return int(self.data.shape[2])

    @property
    def height(self) -> int:
        """Height of every frame."""
        return int(self.data.shape[1])

    @cached_property
    def keys(self) -> tuple[tuple[str, float, int, int], ...]:
        """The identity of every frame: source, time and size. Equal keys mean equal pixels.

        What was read from a file is known by the file's fingerprint. Frames that a caller put together are known by
        their content too, because nothing keeps two clips from being given the same name.
        """
        names = [self.source] * len(self)
        if self.info is None:
            names = [f"{self.source}:{_digest(frame)}" for frame in self.pixels]
        return tuple((name, time, self.width, self.height) for name, time in zip(names, self.times, strict=True))

    @cached_property
    def identity(self) -> str:
        """Of all frames together; equal identities mean equal keys."""
        return hashlib.blake2b(repr(self.keys).encode(), digest_size=16).hexdigest()

    def take(self, indices: Sequence[int]) -> "FramePool":
        """The frames at these positions, in the order given; what is not decoded stays so."""
        rows = list(indices)
        data = self.data.take(rows) if isinstance(self.data, Pending) else self.data[rows]
        return replace(self, data=data, times=tuple(self.times[i] for i in rows))

    def cut(self, places: range) -> "FramePool":
        """Adjacent frames, which are not copied and cannot be changed."""
        if isinstance(self.data, Pending):
            return self.take(places)
        view = self.data[places.start : places.stop]
        view.flags.writeable = False
        return replace(self, data=view, times=self.times[places.start : places.stop])


def _digest(frame: Pixels) -> str:
    return hashlib.blake2b(np.ascontiguousarray(frame).data, digest_size=16).hexdigest()


def _as_pixels(frames: Any) -> npt.NDArray[np.uint8]:
    """Frames × height × width × 3 of the caller's frames, safe from what the caller does with them later."""
    array: npt.NDArray[Any]
    if isinstance(frames, list | tuple):
        arrays = [_as_array(frame) for frame in frames]
        if len({each.shape for each in arrays}) > 1:
            sizes = " and ".join(sorted({"×".join(map(str, each.shape[1::-1])) for each in arrays})[:2])
            raise UsageError(f"all frames must have one size, got {sizes}; resize them to the same")
        array = np.stack(arrays) if arrays else np.empty(0, np.uint8)
    else:
        array = _as_array(frames)
    if array.dtype == object:
        raise UsageError(f"a video is a path, or {FRAMES}; got {_kind(frames)}")
    if array.dtype != np.uint8:
        raise UsageError(f"frames must be uint8 from 0 to 255, got {array.dtype}; scale, round and convert them first")
    if array.ndim == 4 and array.shape[1] == 3 and array.shape[3] != 3:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] != 3 or not array.size:
        way = "; make a list of the one picture" if array.ndim == 3 and array.shape[2] == 3 else ""
        raise UsageError(f"frames must have the shape (n, h, w, 3) or (n, 3, h, w), got {array.shape}{way}")
    pixels = np.array(array, order="C")
    pixels.flags.writeable = False
    return pixels


FRAMES = "frames as a uint8 array or torch tensor of shape (n, h, w, 3), or a list of PIL pictures"


def _as_array(frames: Any) -> npt.NDArray[Any]:
    """A tensor, a picture or an array as an array; anything else as an object."""
    if isinstance(frames, Image.Image):
        frames = frames.convert("RGB")
    elif hasattr(frames, "detach"):  # a tensor; torch is not imported to find out
        frames = frames.detach().cpu().numpy()
    is_array = hasattr(frames, "__array__") or hasattr(frames, "__array_interface__")
    return np.asarray(frames if is_array else None)


def _kind(frames: Any) -> str:
    """What the caller gave in place of frames, in words."""
    if isinstance(frames, list | tuple) and frames:
        return f"a list of {type(frames[0]).__name__}"
    return type(frames).__name__


# Contact sheets: several frames in one picture, in reading order.


def contact_sheet(frames: Pixels, side: int) -> Pixels:
    """One picture of side × side frames, each as it is; places without a frame are black."""
    count, height, width, channels = frames.shape
    places = np.zeros((side * side, height, width, channels), np.uint8)
    places[:count] = frames
    rows: Pixels = places.reshape(side, side, height, width, channels).swapaxes(1, 2)
    return rows.reshape(side * height, side * width, channels)


# Frames as one picture: the paper's cheapest variant, with the tokens of one image for any number of them.

CANVAS = 2048


def collage(frames: FramePool) -> FramePool:
    """One 2048×2048 frame of ceil(√n)² tiles in reading order; frames keep their aspect, empty tiles stay black."""
    side = math.isqrt(len(frames) - 1) + 1
    tile = CANVAS // side
    canvas = Image.new("RGB", (CANVAS, CANVAS))
    scale = tile / max(frames.width, frames.height)
    size = (max(1, round(frames.width * scale)), max(1, round(frames.height * scale)))
    for position, pixels in enumerate(frames.pixels):
        row, column = divmod(position, side)
        corner = (column * tile + (tile - size[0]) // 2, row * tile + (tile - size[1]) // 2)
        canvas.paste(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC), corner)
    source = hashlib.sha256(repr(frames.keys).encode()).hexdigest()  # another set of frames is another picture
    return replace(frames, data=np.array(canvas)[None], times=frames.times[:1], source=source)
