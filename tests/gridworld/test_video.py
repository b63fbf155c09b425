"""A script as a file: what is decoded is what was drawn, when it was drawn."""

from pathlib import Path

import numpy as np
import pytest

from gridprobe.errors import UsageError
from gridprobe.video import FramePool, FrameSize, probe, sample
from gridprobe_world.render import FPS, positions, render_frame, write_script
from gridprobe_world.world import COLOURS, SHAPES, Worlds, generate

SECONDS, SIZE = 60.0, 224
PALETTE = np.array(list(COLOURS.values())) * 255


@pytest.fixture(scope="module")
def world() -> Worlds:
    return generate(np.random.default_rng(2), 1)


@pytest.fixture(scope="module")
def path(world: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("gridworld") / "minute.mp4"
    write_script(world, target, duration=SECONDS, size=SIZE)
    return target


@pytest.fixture(scope="module")
def pool(path: Path) -> FramePool:
    return sample(path, num_frames=144, size=FrameSize(max_pixels=SIZE * SIZE))


def shown_at(pool: FramePool) -> np.ndarray:
    """The moment of the script each frame shows: the middle of its time on display."""
    return (np.array(pool.times) + 0.5 / FPS) / SECONDS


def test_the_file_is_as_long_and_as_large_as_asked(path: Path) -> None:
    info = probe(path)

    assert (info.width, info.height, info.codec) == (SIZE, SIZE, "h264")
    assert info.fps == FPS
    assert info.duration == pytest.approx(SECONDS, abs=0.01)
    assert path.stat().st_size < 1_000_000


def test_a_moment_of_the_file_is_that_moment_of_the_script(pool: FramePool) -> None:
    wanted = (np.arange(144) + 0.5) / 144

    assert len(pool) == 144
    assert np.abs(shown_at(pool) - wanted).max() <= 0.5 / FPS / SECONDS + 1e-9


def test_decoded_frames_are_the_drawn_ones(world: Worlds, pool: FramePool) -> None:
    drawn = np.array([render_frame(world, float(moment), SIZE) for moment in shown_at(pool)])

    assert np.abs(pool.pixels.astype(int) - drawn).mean(axis=(1, 2, 3)).max() < 4.0


def test_a_frame_of_another_moment_is_not_the_drawn_one(world: Worlds, pool: FramePool) -> None:
    late = np.array([render_frame(world, float(moment), SIZE) for moment in (shown_at(pool) + 0.1) % 1])

    assert np.abs(pool.pixels.astype(int) - late).mean(axis=(1, 2, 3)).max() > 8.0


def test_colours_can_be_read_back(world: Worlds, pool: FramePool) -> None:
    moments = shown_at(pool).astype(np.float32)[None]
    shown, place = world.visible(moments)[0], positions(world, moments)[0]
    read = set()
    for frame, j in np.argwhere(shown):
        # On the band of a ring, and beside a digit: 0.8 radii to the left; for the other shapes that is too far out.
        inside = 0.8 if SHAPES[world.shape[0, j]] == "ring" else 0.45 if world.digit[0, j] else 0.0
        x, y = ((place[frame, j] - [inside * world.radius[0, j], 0]) * SIZE).astype(int)
        nearest = np.abs(PALETTE - pool.pixels[frame, y, x]).sum(axis=1).argmin()
        assert nearest == world.colour[0, j], (frame, j)
        read.add(int(j))
    assert read == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [({"duration": 0.01}, "at least one frame"), ({"duration": 5.0, "size": 65}, "even")],
)
def test_what_cannot_be_encoded_is_refused(
    world: Worlds, tmp_path: Path, change: dict[str, float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_script(world, tmp_path / "x.mp4", **change)  # type: ignore[arg-type]


def test_one_file_shows_one_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one script, got 2"):
        write_script(generate(np.random.default_rng(0), 2), tmp_path / "x.mp4", duration=5.0)


@pytest.mark.slow
def test_an_hour_is_less_than_a_hundred_megabytes(world: Worlds, tmp_path: Path) -> None:
    write_script(world, tmp_path / "hour.mp4", duration=3600.0)

    assert (tmp_path / "hour.mp4").stat().st_size < 100e6
    assert probe(tmp_path / "hour.mp4").duration == pytest.approx(3600, abs=0.01)
