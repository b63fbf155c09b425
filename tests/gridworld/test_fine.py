"""What the fine part rests on: its marks can be read at 224 pixels, and not at 64 or 96 where they can still be found.

Patterns have 80 waves across the frame. 64 and 96 pixels hold 32 and 48 at most, and scaling (bicubic, antialiased)
leaves 1.2% of them or less; every pattern has the same mean, so nothing else gives it away. A digit keeps something at
any size; of its strokes, nearly three pixels wide at 224, less than one is left at 64.

A reader with templates stands for any reader: it knows place, size and colour exactly, and sees pixels with noise.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gridprobe.video import FrameSize, sample
from gridprobe_world.parts import SMALL, generate_part
from gridprobe_world.render import FPS, WAVES, contrast, positions, render_frame, render_frames, write_script
from gridprobe_world.world import Worlds

WORLDS = 12
CLASSES = {"pattern": 5, "digit": 9}


def native(world: Worlds, moment: float) -> torch.Tensor:
    return torch.from_numpy(render_frame(world, moment, 224)).permute(2, 0, 1)[None].float()


def scaled(picture: torch.Tensor, size: int) -> torch.Tensor:
    if size == picture.shape[-1]:
        return picture
    return F.interpolate(picture, size=(size, size), mode="bicubic", antialias=True).round().clamp(0, 255)


def marked(world: Worlds, kind: str, j: int, value: int) -> Worlds:
    marks = getattr(world, kind).copy()
    marks[0, j] = value
    return replace(world, **{kind: marks})


def read(picture: torch.Tensor, world: Worlds, kind: str, j: int, moment: float) -> int:
    """The mark whose template is nearest to the picture."""
    size = picture.shape[-1]
    values = range(1, CLASSES[kind] + 1)
    templates = torch.cat([scaled(native(marked(world, kind, j, value), moment), size) for value in values])
    return int(((templates - picture) ** 2).sum(dim=(1, 2, 3)).argmin()) + 1


def plates(kind: str) -> list[tuple[Worlds, int, float]]:
    worlds = generate_part(np.random.default_rng(8), WORLDS, "fine")
    return [
        (worlds.take([row]), int(j), float((worlds.start[row, j, 0] + worlds.end[row, j, 0]) / 2))
        for row in range(WORLDS)
        for j in np.flatnonzero(getattr(worlds, kind)[row])
    ]


def accuracy(kind: str, noise: float) -> dict[int, float]:
    """How often a noisy mark is read, by the size of the frame."""
    random = torch.Generator().manual_seed(1)
    right: dict[int, list[bool]] = {224: [], 96: [], 64: []}
    for world, j, moment in plates(kind):
        for size, found in right.items():
            picture = scaled(native(world, moment), size)
            noisy = picture + noise * torch.randn(picture.shape, generator=random)
            found.append(read(noisy, world, kind, j, moment) == getattr(world, kind)[0, j])
    return {size: float(np.mean(found)) for size, found in right.items()}


def test_patterns_are_read_at_native_size_only() -> None:
    found = accuracy("pattern", noise=30)

    assert found[224] >= 0.99
    assert found[96] <= 0.6, "at most half way between chance, 0.2, and always"
    assert found[64] <= 0.45


def test_small_digits_lose_most_where_they_are_small() -> None:
    found = accuracy("digit", noise=150)

    assert found[224] >= 0.99
    assert found[96] <= 0.8
    assert found[64] <= 0.5


@pytest.mark.parametrize(("size", "left"), [(64, 0.01), (96, 0.02)])
def test_little_is_left_of_waves_in_small_frames(size: int, left: float) -> None:
    wave = torch.sin(2 * torch.pi * 80 * (torch.arange(224) + 0.5) / 224).expand(1, 1, 8, 224)
    small = F.interpolate(wave, size=(8, size), mode="bicubic", antialias=True)[0, 0, 4, 4:-4]

    assert abs(contrast(80.0, size)) < left
    assert float(small.std() * 2**0.5) < left + 0.01
    assert contrast(80.0, 224) == contrast(80.0, 448) == 1.0 and pytest.approx(80) == WAVES / SMALL


@pytest.mark.parametrize("size", [64, 96, 160])
def test_frames_drawn_small_look_like_native_ones_scaled_down(size: int) -> None:
    """Training draws frames at the size it needs; the product scales native ones."""
    worst = []
    for world, _, moment in plates("pattern")[:8] + plates("digit")[:8]:
        drawn = torch.from_numpy(render_frame(world, moment, size)).permute(2, 0, 1)[None].float()
        worst.append(float((drawn - scaled(native(world, moment), size)).abs().mean()))
    assert max(worst) < 2.0


def test_plates_can_be_found_in_small_frames() -> None:
    for world, j, moment in plates("pattern"):
        time = np.array([[moment]], dtype=np.float32)
        x, y = positions(world, time)[0, 0, j]
        hidden = replace(world, start=world.start + 9 * (np.arange(6) == j)[None, :, None].astype(np.float32))
        difference = np.abs(render_frame(world, moment, 64).astype(int) - render_frame(hidden, moment, 64)).sum(axis=2)
        assert difference[int(y * 64) - 2 : int(y * 64) + 3, int(x * 64) - 2 : int(x * 64) + 3].min() > 20


@pytest.mark.parametrize("size", [96, 224])
def test_both_renderers_draw_the_same_marks(size: int) -> None:
    for kind in CLASSES:
        for world, _, moment in plates(kind)[:6]:
            frames = render_frames(world, np.array([[moment]], dtype=np.float32), size)[0, 0]
            drawn = (frames * 255 + 0.5).byte().permute(1, 2, 0).numpy().astype(int)
            assert np.abs(drawn - render_frame(world, moment, size)).max() <= 1


def test_marks_survive_a_video_file(tmp_path: Path) -> None:
    world = generate_part(np.random.default_rng(8), 1, "fine")
    write_script(world, tmp_path / "fine.mp4", duration=60.0)
    pool = sample(tmp_path / "fine.mp4", num_frames=144, size=FrameSize(max_pixels=224 * 224))
    shown = (np.array(pool.times) + 0.5 / FPS) / 60.0
    for j in range(2, 6):
        kind = "pattern" if world.pattern[0, j] else "digit"
        for frame in np.flatnonzero((shown >= world.start[0, j, 0]) & (shown < world.end[0, j, 0])):
            picture = torch.from_numpy(np.array(pool.pixels[frame])).permute(2, 0, 1)[None].float()
            assert read(picture, world, kind, j, float(shown[frame])) == getattr(world, kind)[0, j]
