"""The picture of a map: sizes, marks, odd grids and odd texts, and files that cannot be written."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gridprobe import Answer, Question, UsageError
from gridprobe.report import save_map
from gridprobe.report.colours import MARK, ramp
from gridprobe.report.png.layout import GAP, Layout
from gridprobe.report.png.lettering import face, fitted, wrapped
from gridprobe.report.png.picture import EMPTY, GROUND, draw_map
from report.answers import balloon, handmade, without_map


def layout_of(answer: Answer, image: Image.Image) -> Layout:
    """The layout of the drawn picture; what the title took is read from its height."""
    bare = Layout.of(answer)
    return replace(bare, title=image.height - bare.size[1])


def ring_colours(answer: Answer, image: Image.Image, inset: int) -> list[tuple[int, ...]]:
    """The colour of every cell's ring at this depth, at its upper left corner."""
    layout = layout_of(answer, image)
    cells = range(len(answer.pool))
    return [image.getpixel(layout.box(i, inset)[:2]) for i in cells]  # type: ignore[misc]


def test_marks_stand_exactly_at_the_kept_cells() -> None:
    answer = handmade(kept=(1, 4, 5))
    image = draw_map(answer)

    colours = ring_colours(answer, image, GAP)
    assert [i for i, colour in enumerate(colours) if colour == MARK] == [1, 4, 5]
    assert {colours[i] for i in (0, 2, 3, 6, 7, 8)} == {GROUND}


def test_inner_ring_has_the_colour_of_importance() -> None:
    answer = handmade()
    image = draw_map(answer)

    colours = ring_colours(answer, image, GAP + Layout.of(answer).mark)
    assert colours[4] == ramp(1.0)
    assert colours[0] == ramp(0.0)
    assert len(set(colours)) == 9


def test_kept_frames_are_bright_and_others_dimmed() -> None:
    white = np.full((9, 36, 64, 3), 255, np.uint8)
    answer = handmade(pixels=white, kept=(0,))
    image = draw_map(answer)
    layout = layout_of(answer, image)

    def middle(index: int) -> int:
        left, top, right, bottom = layout.box(index)
        return sum(image.getpixel(((left + right) // 2, (top + bottom) // 2)))  # type: ignore[arg-type]

    assert middle(0) == 3 * 255
    assert max(middle(i) for i in range(1, 9)) < 3 * 230


def test_frames_keep_their_aspect_ratio() -> None:
    layout = Layout.of(handmade())
    tall = Layout.of(handmade(pixels=np.zeros((9, 160, 90, 3), np.uint8)))

    assert layout.picture[0] / layout.picture[1] == pytest.approx(64 / 36, rel=0.02)
    assert tall.picture[0] / tall.picture[1] == pytest.approx(90 / 160, rel=0.02)


def test_a_very_wide_frame_gets_bands_and_is_not_stretched() -> None:
    pixels = np.full((9, 8, 400, 3), 255, np.uint8)
    answer = handmade(pixels=pixels, kept=tuple(range(9)))
    image = draw_map(answer)
    left, top, right, bottom = layout_of(answer, image).box(4, Layout.of(answer).inset)

    column = [image.getpixel(((left + right) // 2, y)) for y in range(top, bottom)]
    white = column.count((255, 255, 255))
    assert white == pytest.approx((right - left) * 8 / 400, abs=1.5)


def test_cells_without_a_frame_are_empty() -> None:
    answer = handmade(cells=7, kept=(6,))
    image = draw_map(answer)
    layout = layout_of(answer, image)

    assert image.getpixel(layout.box(7, layout.inset)[:2]) == EMPTY
    assert image.getpixel(layout.box(8, GAP)[:2]) == GROUND
    assert image.getpixel(layout.box(6, GAP)[:2]) == MARK


def test_selection_without_a_map_marks_its_frames() -> None:
    answer = without_map(handmade(), (0, 4, 8))
    colours = ring_colours(answer, draw_map(answer), GAP)

    assert [i for i, colour in enumerate(colours) if colour == MARK] == [0, 4, 8]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_any_pool_size_without_a_map(count: int) -> None:
    answer = without_map(handmade(), (0,))
    pool = answer.pool.take(list(range(count)) if count < 9 else [*range(9), 8])

    assert draw_map(handmade_with(answer, pool)).width >= 700


def handmade_with(answer: Answer, pool: object) -> Answer:
    size = len(pool)  # type: ignore[arg-type]
    return replace(answer, pool=pool, selection=replace(answer.selection, pool=size))  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 2, 12, 32, 64])
@pytest.mark.parametrize("shape", [(18, 32), (32, 18), (4, 800), (800, 4)])
def test_size_is_bounded(k: int, shape: tuple[int, int]) -> None:
    pixels = np.broadcast_to(np.uint8(0), (k * k, *shape, 3))
    width, height = Layout.of(handmade((0.5,) * k, (0.5,) * k, kept=(0,), pixels=pixels)).size

    assert 700 <= width <= 2400
    assert 300 <= height <= 2400


@pytest.mark.parametrize("k", [1, 32])
def test_smallest_and_large_grids_are_drawn(k: int) -> None:
    answer = handmade(
        (0.5,) * k, tuple(i / 40 for i in range(k)), kept=(0,), pixels=np.zeros((k * k, 9, 16, 3), np.uint8)
    )

    assert ring_colours(answer, draw_map(answer), GAP).count(MARK) == 1


def test_noise_stays_below_four_megabytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (144, 144, 144, 3), dtype=np.uint8)
    answer = handmade((0.5,) * 12, (0.5,) * 12, kept=tuple(range(144)), pixels=noise)
    save_map([answer], tmp_path / "noise.png")

    assert (tmp_path / "noise.png").stat().st_size < 4_000_000


def test_a_whole_run_is_saved_as_a_png_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "map.png"
    path.write_bytes(b"old")
    balloon(k=4, wide=64, high=36).save_map(path)

    with Image.open(path) as image:
        assert image.format == "PNG"
        image.load()
    assert os.listdir(tmp_path) == ["map.png"]


def test_odd_texts_are_drawn() -> None:
    question = Question("漢字 🎈 \u202e עברית \x07 Zürich ﷽ " * 60, options=["é" * 500, "\u200d\ufe0f×–σ"])

    assert (
        draw_map(handmade(question=question, models=("\udc80", "模型"))).size
        == draw_map(handmade(question=question)).size
    )


def test_a_long_question_takes_two_lines_and_a_megabyte_no_more() -> None:
    one, two = (draw_map(handmade(question=Question(text, options=["a", "b"]))) for text in ("a", "why " * 250_000))

    assert two.height - one.height == 34


@pytest.mark.parametrize("text", ["short", "word " * 80, "x" * 900, "漢" * 300, ""])
def test_lettering_fits(text: str) -> None:
    font = face(text, 20)

    assert font.getlength(fitted(text, font, 300)) <= 300
    lines = wrapped(text, font, 300, 3)
    assert len(lines) <= 3 and all(font.getlength(line) <= 300 for line in lines)
    assert fitted("short", font, 300) == "short"


def test_wrapping_breaks_at_spaces_and_loses_nothing_that_fits() -> None:
    text = "the quick brown fox jumps over the lazy dog"

    assert " ".join(wrapped(text, face(text, 20), 200, 9)) == text


@pytest.mark.parametrize("count", [0, 2])
def test_a_map_of_several_answers_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError, match=f"exactly one answer, got {count}; save a report"):
        save_map([handmade()] * count, tmp_path / "map.png")


@pytest.mark.parametrize("name", ["missing/map.png", ".", "file/map.png"])
def test_unwritable_path_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"^cannot write [^\n]*; name a file[^\n]*$"):
        save_map([handmade()], tmp_path / name)

    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_device_is_never_replaced() -> None:
    with pytest.raises(UsageError, match="not a regular file"):
        save_map([handmade()], Path("/dev/null"))

    assert Path("/dev/null").is_char_device()


def test_a_failed_rename_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map.png"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UsageError, match="No space left on device"):
        save_map([handmade()], path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["map.png"]


def test_a_link_keeps_pointing_at_its_file(tmp_path: Path) -> None:
    (tmp_path / "real.png").write_bytes(b"old")
    (tmp_path / "link.png").symlink_to(tmp_path / "real.png")
    save_map([handmade()], tmp_path / "link.png")

    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")
