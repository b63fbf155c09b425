"""Scripts -> frames. The same shape functions work with numpy (frame by frame, cheap) and torch (batches, any device).

Shapes are signed distances in units of their radius, negative inside, so edges can be softened over one pixel at any
size and a small frame looks like a large one scaled down.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError
from gridprobe.video import write_video
from gridprobe_world.world import BACKGROUNDS, COLOURS, Worlds

Array = Any
"""A numpy array or a torch tensor; the functions below use only what both support."""

DIGIT_HALF_HEIGHT = 0.36
DIGIT_HALF_WIDTH = 0.20
STROKE = 0.085
"""Digits are drawn as seven-segment figures on their object; sizes in units of the object's radius."""

SEGMENTS = {1: "bc", 2: "abged", 3: "abgcd", 4: "fgbc", 5: "afgcd", 6: "afgedc", 7: "abc", 8: "abcdefg", 9: "abcdfg"}
WAVES = 30.4
"""Lines across the whole frame, of a pattern of scale 1. One of `parts.SMALL` has 80: 2.8 pixels apart at 224, and
too fine for 64 or 96 pixels."""
NATIVE = 224
"""The size at which patterns and small digits are drawn in full; smaller frames look like this one scaled down."""
PATCH, FADE = 0.6, 0.3
"""Half the side of the square that a pattern covers, in radii, and how far from its border it begins to fade: a sharp
border would cut lines, which is visible even where lines are not."""
DRIFT = 0.045
CYCLES = 3.0


def _circle(x: Array, y: Array, xp: ModuleType) -> Array:
    return xp.sqrt(x * x + y * y) - 1.0


def _square(x: Array, y: Array, xp: ModuleType) -> Array:
    return xp.maximum(abs(x), abs(y)) - 0.85


def _triangle(x: Array, y: Array, xp: ModuleType) -> Array:
    return xp.maximum(y - 0.8, (1.9 * abs(x) - y - 0.9) / 2.15)


def _diamond(x: Array, y: Array, xp: ModuleType) -> Array:
    return (abs(x) + abs(y) - 1.1) / 1.414


def _cross(x: Array, y: Array, xp: ModuleType) -> Array:
    wide = xp.maximum(abs(x) - 1.0, abs(y) - 0.3)
    return xp.minimum(wide, xp.maximum(abs(y) - 1.0, abs(x) - 0.3))


def _ring(x: Array, y: Array, xp: ModuleType) -> Array:
    return abs(xp.sqrt(x * x + y * y) - 0.8) - 0.2


def _bar(x: Array, y: Array, xp: ModuleType) -> Array:
    return xp.maximum(abs(x) - 1.0, abs(y) - 0.3)


DISTANCES: tuple[Callable[[Array, Array, ModuleType], Array], ...] = (
    _circle,
    _square,
    _triangle,
    _diamond,
    _cross,
    _ring,
    _bar,
)
"""In the order of `words.SHAPES`."""


def digit_distance(x: Array, y: Array, lit: Callable[[str], Array], xp: ModuleType) -> Array:
    """Distance to a seven-segment digit; `lit(segment)` is added to each: 0 where it is on, large where it is off."""
    h, w, s = DIGIT_HALF_HEIGHT, DIGIT_HALF_WIDTH, STROKE
    upright = {"b": (w, -h / 2), "c": (w, h / 2), "e": (-w, h / 2), "f": (-w, -h / 2)}
    level = {"a": -h, "g": 0.0, "d": h}
    best = None
    for name, (cx, cy) in upright.items():
        distance = xp.maximum(abs(x - cx) - s, abs(y - cy) - h / 2 - s) + lit(name)
        best = distance if best is None else xp.minimum(best, distance)
    for name, cy in level.items():
        best = xp.minimum(best, xp.maximum(abs(x) - w - s, abs(y - cy) - s) + lit(name))
    return best


def pattern_ink(x: Array, y: Array, pattern: Array, clear: Array, xp: ModuleType) -> Array:
    """How dark a pattern is, from 0 to 1, at places in wavelengths.

    Every pattern is 0.5 on average, so a blurred pattern does not show which one it was.

    Args:
        x: place across, from the middle of the object.
        y: place down.
        pattern: 1 to 5, as in `words.PATTERNS`.
        clear: the contrast that waves along one axis keep at this frame size; see `contrast`.
        xp: numpy or torch.
    """
    across, down = 2 * np.pi * x, 2 * np.pi * y
    # A wave along both axes is a product: sin(a + b) = sin a cos b + cos a sin b, and for a difference the sign turns.
    both = clear**2
    level, upright = clear * xp.sin(down + 0 * across), clear * xp.sin(across + 0 * down)
    mixed, other = both * xp.sin(across) * xp.cos(down), both * xp.cos(across) * xp.sin(down)
    checks = both * xp.sin(across) * xp.sin(down)
    waves = (level, upright, mixed + other, mixed - other, checks)
    return 0.5 + 0.5 * sum((pattern == number) * each for number, each in enumerate(waves, start=1))


def contrast(waves: npt.ArrayLike, size: int) -> npt.NDArray[np.float32]:
    """The contrast that waves along one axis keep when a frame of 224 pixels is scaled to this size (bicubic)."""
    if size >= NATIVE:
        return np.ones(np.shape(waves), dtype=np.float32)
    return np.interp(np.asarray(waves) / size, *_response()).astype(np.float32)


@lru_cache
def _response() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The contrast that waves keep under the bicubic kernel, by their number per pixel."""
    t = (np.arange(-2_000, 2_000) + 0.5) / 1_000
    near, far = 1.5 * abs(t) ** 3 - 2.5 * t**2 + 1, -0.5 * abs(t) ** 3 + 2.5 * t**2 - 4 * abs(t) + 2
    frequency = np.linspace(0, 2, 401)
    return frequency, np.cos(2 * np.pi * frequency[:, None] * t) @ np.where(abs(t) < 1, near, far) / 1_000


def positions(worlds: Worlds, time: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Where the objects are, as they drift about their places: B × n × objects × 2."""
    angle = 2 * np.pi * (CYCLES * time[:, :, None, None] + worlds.phase[:, None])
    place: npt.NDArray[np.float32] = (worlds.centre[:, None] + DRIFT * np.sin(angle)).astype(np.float32)
    return place


def _palette() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    colours = np.array(list(COLOURS.values()), dtype=np.float32)
    ink = np.where(colours @ np.array([0.3, 0.59, 0.11]) > 0.45, 0.02, 0.98).astype(np.float32)
    return np.array(list(BACKGROUNDS.values()), dtype=np.float32), colours, ink


GROUND_RGB, COLOUR_RGB, INK = _palette()


def render_frame(worlds: Worlds, time: float, size: int) -> npt.NDArray[np.uint8]:
    """One frame of the first script, size × size, RGB."""
    return Renderer(worlds, size).frame(time)


class Renderer:
    """Frames of one script at one size. Backgrounds are painted once, and each frame only where objects are."""

    def __init__(self, worlds: Worlds, size: int) -> None:
        self._worlds, self._size = worlds, size
        self._axis = (np.arange(size, dtype=np.float32) + 0.5) / size
        self._pattern = _texture(self._axis[None, :], self._axis[:, None], worlds.texture[0], np)[..., None]
        self._grounds: dict[int, tuple[Array, npt.NDArray[np.uint8]]] = {}

    def frame(self, time: float) -> npt.NDArray[np.uint8]:
        """The frame at a moment from 0 to 1."""
        worlds, moment = self._worlds, np.full((1, 1), time, dtype=np.float32)
        ground, rounded = self._ground(int(worlds.scene(moment)[0, 0]))
        picture: Array = ground.copy()
        frame: npt.NDArray[np.uint8] = rounded.copy()
        place = positions(worlds, moment)[0, 0]
        shown = np.flatnonzero(worlds.visible(moment)[0, 0])
        order = sorted(shown, key=lambda j: worlds.shape[0, j])  # in case two of them touch
        boxes = [self._draw(picture, int(j), place[j]) for j in order]
        for box in boxes:
            frame[box] = _rounded(picture[box])
        return frame

    def _ground(self, scene: int) -> tuple[Array, npt.NDArray[np.uint8]]:
        if scene not in self._grounds:
            picture = GROUND_RGB[scene] + self._pattern
            self._grounds[scene] = picture, _rounded(picture)
        return self._grounds[scene]

    def _draw(self, picture: Array, j: int, place: Array) -> tuple[slice, slice]:
        """Paint one object into the part of the picture it covers, and return that part."""
        worlds, axis, size = self._worlds, self._axis, self._size
        radius = float(worlds.radius[0, j])
        low, high = (np.clip(((place + sign * 1.2 * radius) * size).astype(int), 0, size) for sign in (-1, 1))
        columns, rows = slice(low[0], high[0] + 1), slice(low[1], high[1] + 1)
        x, y = (axis[None, columns] - place[0]) / radius, (axis[rows, None] - place[1]) / radius
        soft = radius * size
        shape = DISTANCES[worlds.shape[0, j]](x, y, np)
        paint = np.clip(0.5 - shape * soft, 0, 1)[..., None]
        colour = worlds.colour[0, j]
        region = picture[rows, columns]
        region += paint * (COLOUR_RGB[colour] - region)
        pattern, digit, scale = int(worlds.pattern[0, j]), int(worlds.digit[0, j]), float(worlds.scale[0, j])
        if pattern:
            waves = WAVES / scale
            lines = pattern_ink(x * radius * waves, y * radius * waves, pattern, contrast(waves, size), np)
            lines = lines * _faded(x, y, shape, np)
            region += lines[..., None] * (INK[colour] - region)
        if digit:
            stroke = digit_distance(x / scale, y / scale, lambda name: 0.0 if name in SEGMENTS[digit] else 9.0, np)
            strong = _strength(scale, radius, size)
            region += strong * np.clip(0.5 - stroke * (soft * scale), 0, 1)[..., None] * (INK[colour] - region)
        return rows, columns


def _strength(scale: Array, radius: Array, size: int) -> Array:
    """How dark a stroke thinner than a pixel is; those of usual digits are thick enough at all sizes."""
    return np.where(np.asarray(scale) < 1, np.clip(2 * STROKE * scale * radius * size, 0, 1), 1.0).astype(np.float32)


def _rounded(picture: Array) -> npt.NDArray[np.uint8]:
    rounded: npt.NDArray[np.uint8] = (picture.clip(0, 1) * 255 + 0.5).astype(np.uint8)
    return rounded


def _texture(x: Array, y: Array, phase: Array, xp: ModuleType) -> Array:
    """A faint pattern, constant over the video, so that backgrounds are not uniform."""
    return 0.03 * xp.sin(6.2832 * (3.0 * x + phase[0])) * xp.sin(6.2832 * (2.0 * y + phase[1])) + 0.02 * xp.sin(
        6.2832 * (5.0 * (x + y) + phase[2])
    )


def render_frames(worlds: Worlds, time: npt.NDArray[np.float32], size: int, device: Any = "cpu") -> Any:
    """Frames of all scripts at their own times, as float tensors in 0…1: B × n × 3 × size × size, on a device.

    The torch version of `render_frame`. Most objects are out of sight most of the time, so only visible ones are
    painted, one shape after the other: the objects of a frame have different shapes.
    """
    import torch

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

    count, length = time.shape
    axis = (torch.arange(size, device=device, dtype=torch.float32) + 0.5) / size
    phase = tensor(worlds.texture)[:, :, None, None]
    pattern = _texture(axis[None, None, :], axis[None, :, None], phase.unbind(1), torch)
    ground = tensor(GROUND_RGB[worlds.scene(time)])
    picture = (ground[..., None, None] + pattern[:, None, None]).flatten(0, 1)
    painter = _Painter(picture, axis, tensor)
    shown, place = worlds.visible(time), positions(worlds, time)
    row, frame, j = np.nonzero(shown)
    kind, colour, digit = worlds.shape[row, j], worlds.colour[row, j], worlds.digit[row, j]
    pattern, scale = worlds.pattern[row, j], worlds.scale[row, j]
    where, at, radius = row * length + frame, place[row, frame, j], worlds.radius[row, j]
    for number, distance in enumerate(DISTANCES):
        of = np.flatnonzero(kind == number)
        shape = partial(_in_torch, distance)
        painter.paint(where[of], at[of], radius[of], ink=COLOUR_RGB[colour[of]], distance=shape)
        of = of[pattern[of] > 0]
        ink = np.repeat(INK[colour[of], None], 3, axis=1)
        waves = WAVES / scale[of]
        marks = (pattern[of], waves * radius[of], contrast(waves, size))
        lines = partial(_patterned, shape, *(tensor(mark)[:, None, None] for mark in marks))
        painter.blend(where[of], at[of], radius[of], ink=ink, cover=lines)
    # Digits last, and the objects of a frame in turn: no object reaches the middle of its neighbour.
    for number in range(j.max(initial=-1) + 1):
        of = np.flatnonzero((j == number) & (digit > 0))
        stroke = partial(
            digit_distance, lit=partial(_segment, tensor(SEGMENT_OFF[digit[of]])[..., None, None]), xp=torch
        )
        ink = np.repeat(INK[colour[of], None], 3, axis=1)
        strong = _strength(scale[of], radius[of], size)
        painter.paint(where[of], at[of], radius[of] * scale[of], ink=ink, distance=stroke, strength=strong)
    return picture.clamp(0, 1).view(count, length, 3, size, size)


def _in_torch(distance: Callable[[Array, Array, ModuleType], Array], x: Any, y: Any) -> Any:
    import torch

    return distance(x, y, torch)


def _segment(off: Any, name: str) -> Any:
    return off[:, "abcdefg".index(name)]


@dataclass(frozen=True, eq=False)
class _Painter:
    """Paints objects of one shape, each into its own frame."""

    picture: Any
    axis: Any
    tensor: Callable[[Array], Any]

    def paint(
        self,
        frames: Array,
        place: Array,
        radius: Array,
        *,
        ink: Array,
        distance: Callable[[Any, Any], Any],
        strength: Array | None = None,
    ) -> None:
        """Paint `ink` where `distance` is negative, in the objects' own coordinates."""
        if not len(frames):
            return
        soft = self.tensor(radius)[:, None, None] * len(self.axis)
        full = 1.0 if strength is None else self.tensor(strength)[:, None, None]
        cover = partial(_covered, distance, soft, full)
        self.blend(frames, place, radius, ink=ink, cover=cover)

    def blend(
        self, frames: Array, place: Array, radius: Array, *, ink: Array, cover: Callable[[Any, Any], Any]
    ) -> None:
        """Paint `ink` with the opacity `cover`, in the objects' own coordinates."""
        if not len(frames):
            return
        where, size = self.tensor(frames), self.tensor(radius)[:, None, None]
        centre = self.tensor(place)
        x = (self.axis[None, None, :] - centre[:, 0, None, None]) / size
        y = (self.axis[None, :, None] - centre[:, 1, None, None]) / size
        paint = cover(x, y)[:, None]
        region = self.picture[where]
        self.picture[where] = region + paint * (self.tensor(ink)[..., None, None] - region)


def _covered(distance: Callable[[Any, Any], Any], soft: Any, full: Any, x: Any, y: Any) -> Any:
    return (0.5 - distance(x, y) * soft).clamp(0, 1) * full


def _patterned(shape: Callable[[Any, Any], Any], pattern: Any, waves: Any, clear: Any, x: Any, y: Any) -> Any:
    import torch

    return pattern_ink(x * waves, y * waves, pattern, clear, torch) * _faded(x, y, shape(x, y), torch)


def _faded(x: Array, y: Array, shape: Array, xp: ModuleType) -> Array:
    """How strong a pattern is: full in the middle of its square, fading towards the border of square and object."""
    depth = xp.minimum(PATCH - xp.maximum(abs(x), abs(y)), -shape)
    return (depth / FADE).clip(0, 1)


SEGMENT_OFF = np.array(
    [[0.0 if name in SEGMENTS.get(d, "") else 9.0 for name in "abcdefg"] for d in range(10)], dtype=np.float32
)


# A script as a video file.

FPS = 4


def write_script(worlds: Worlds, path: Path, *, duration: float, fps: int = FPS, size: int = 224) -> None:
    """Encode the one script as an H.264 file that lasts `duration` seconds.

    A frame shows the world at the middle of its display time, so the frame at s seconds shows the world at
    s / duration, to half a frame.

    Args:
        worlds: a single script.
        path: the file to write.
        duration: seconds, rounded to whole frames.
        fps: frames per second.
        size: side of the square frames in pixels, even.
    """
    if len(worlds) != 1:
        raise UsageError(f"a video shows one script, got {len(worlds)}")
    if size < 2 or size % 2:
        raise UsageError(f"the side of a frame must be even and at least 2 for H.264, got {size}")
    count = round(duration * fps)
    if count < 1:
        raise UsageError(f"a video needs at least one frame, got {duration} s at {fps} frames per second")
    write_video(path, _frames(worlds, count, size), fps=fps, size=(size, size), count=count)


def _frames(worlds: Worlds, count: int, size: int) -> Iterator[npt.NDArray[np.uint8]]:
    renderer = Renderer(worlds, size)
    for number in range(count):
        yield renderer.frame((number + 0.5) / count)
