"""The picture of an answer: its parts, true colours, odd grids and odd texts, and files that cannot be written."""

import base64
import html
import io
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gridprobe import Answer, Question, UsageError
from gridprobe.report import picture, save_map
from gridprobe.report.format import MARK
from gridprobe.report.picture import (
    BAR,
    DARKEST,
    GAP,
    GROUND,
    INSIDE,
    MARGIN,
    RAIL,
    WIDTH,
    Sheet,
    _best_font,
    _font_files,
    _footer,
    _large,
    _options,
    _timeline,
    _title,
    draw_answer,
    draw_sheet,
    fit_line,
    fit_lines,
    font_for,
    missing_letters,
)
from gridprobe.report.view import DIM, DIMMEST, AnswerView
from report.answers import balloon, by_frame, handmade, posterior, reached, without_map


def sheet_of(answer: Answer) -> tuple[Sheet, Image.Image]:
    view = AnswerView(answer)
    sheet = Sheet.of(view, width=1000, height=1000)
    return sheet, draw_sheet(view, sheet)


def middle(sheet: Sheet, image: Image.Image, index: int) -> Any:
    x, y = sheet.corner(index)
    return image.getpixel((x + sheet.tile[0] // 2, y + sheet.tile[1] // 2))


def columns_of(image: Image.Image, colour: tuple[int, int, int], y: int) -> list[int]:
    """Where a line of the picture has exactly this colour."""
    return [x for x in range(image.width) if image.getpixel((x, y)) == colour]


# The contact sheet.


def test_kept_frames_are_framed_and_no_others() -> None:
    sheet, image = sheet_of(handmade(kept=(1, 4, 5)))

    framed = [i for i in range(9) if image.getpixel(tuple(part - 1 for part in sheet.corner(i))) == MARK]  # type: ignore[arg-type]
    assert framed == [1, 4, 5]


def test_kept_frames_have_their_own_colours_and_others_are_darker_by_importance_in_the_same_hue() -> None:
    orange = np.full((9, 36, 64, 3), (200, 100, 40), np.uint8)
    sheet, image = sheet_of(handmade(pixels=orange, kept=(4,)))

    assert middle(sheet, image, 4) == (200, 100, 40)
    assert middle(sheet, image, 0) == pytest.approx([DIMMEST * part for part in (200, 100, 40)], abs=1)
    others = [middle(sheet, image, i) for i in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert len({colour[0] for colour in others}) == 8 and max(colour[0] for colour in others) <= DIM * 200
    for red, green, blue in others:
        assert (green / red, blue / red) == pytest.approx((0.5, 0.2), abs=0.02)


def test_a_sheet_on_which_nothing_was_preferred_is_not_dimmed() -> None:
    white = np.full((9, 36, 64, 3), 255, np.uint8)
    for answer in (
        without_map(handmade(pixels=white), tuple(range(9))),
        without_map(reached(handmade(pixels=white), "overview", overview=posterior(B=0.9)), tuple(range(9))),
    ):
        sheet, image = sheet_of(answer)
        assert {middle(sheet, image, i) for i in range(9)} == {(255, 255, 255)}


def test_frames_keep_their_aspect_ratio() -> None:
    tall = Sheet.of(AnswerView(handmade(pixels=np.zeros((9, 160, 90, 3), np.uint8))), width=900, height=900)
    wide = Sheet.of(AnswerView(handmade()), width=900, height=900)

    assert wide.tile[0] / wide.tile[1] == pytest.approx(64 / 36, rel=0.02)
    assert tall.tile[0] / tall.tile[1] == pytest.approx(90 / 160, rel=0.02)


def test_a_very_wide_frame_gets_bars_and_is_not_stretched() -> None:
    answer = handmade(pixels=np.full((9, 8, 400, 3), 255, np.uint8), kept=(4,))
    sheet, image = sheet_of(answer)
    x, y = sheet.corner(4)

    column = [image.getpixel((x + sheet.tile[0] // 2, y + down)) for down in range(sheet.tile[1])]
    assert column.count((255, 255, 255)) == pytest.approx(sheet.tile[0] * 8 / 400, abs=1.5)


def test_cells_without_a_frame_are_empty() -> None:
    sheet, image = sheet_of(handmade(cells=7, kept=(6,)))

    assert middle(sheet, image, 7) == middle(sheet, image, 8) == GROUND
    assert middle(sheet, image, 6) != GROUND


# The other parts.


def test_the_timeline_has_a_bright_mark_at_each_kept_frame() -> None:
    image = _timeline(AnswerView(without_map(handmade(), (0, 4, 8))))
    marks = columns_of(image, MARK, 40)

    assert {round(x / (INSIDE - 1) * 8) for x in marks} == {0, 4, 8} and len(marks) < 30
    assert columns_of(_timeline(AnswerView(without_map(handmade(), tuple(range(9))))), MARK, 40) == []


def test_columns_of_the_timeline_show_importance() -> None:
    image = _timeline(AnswerView(by_frame((0.1, 0.1, 0.9, 0.1, 0.5, 0.1, 0.1, 0.1, 0.1), kept=(2,))))
    x = round(4 / 8 * INSIDE)
    heights = [y for y in range(34, 80) if image.getpixel((x, y)) != RAIL]

    assert len(heights) == pytest.approx(46 / 2, abs=2)


@pytest.mark.parametrize(("kept", "large"), [(1, 1), (3, 3), (8, 8), (30, 8)])
def test_kept_frames_are_large_and_at_most_eight(kept: int, large: int) -> None:
    white = np.full((36, 36, 64, 3), 255, np.uint8)
    answer = without_map(handmade((0.5,) * 6, (0.5,) * 6, pixels=white, kept=(0,)), tuple(range(kept)))
    (image,) = _large(AnswerView(answer))
    wide = min(4, large)
    size = min(INSIDE / wide - 14, 430 * 64 / 36)

    row = columns_of(image, (255, 255, 255), 40)
    assert len(row) == pytest.approx(wide * size, rel=0.02)
    assert image.height == pytest.approx(-(-large // wide) * (size * 36 / 64 + 46), abs=46)


def test_an_overview_without_a_map_has_no_large_frames() -> None:
    answer = without_map(reached(handmade(), "overview", overview=posterior(B=0.9)), tuple(range(9)))

    assert _large(AnswerView(answer)) == []
    assert draw_answer(answer).width == WIDTH


def test_unlikely_options_share_a_line() -> None:
    sure = handmade(posterior=posterior(B=0.9999))
    unsure = handmade()

    assert _options(AnswerView(unsure)).height - _options(AnswerView(sure)).height > 60


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_any_pool_size_without_a_map(count: int) -> None:
    answer = without_map(handmade(), (0,))
    pool = answer.pool.take(list(range(count)) if count < 9 else [*range(9), 8])
    few = replace(answer, pool=pool, selection=replace(answer.selection, pool=count))

    assert draw_answer(few).width == WIDTH


@pytest.mark.parametrize("k", [1, 2, 12, 32, 64])
@pytest.mark.parametrize("shape", [(18, 32), (32, 18), (4, 800), (800, 4)])
def test_size_is_bounded(k: int, shape: tuple[int, int]) -> None:
    pixels = np.broadcast_to(np.uint8(0), (k * k, *shape, 3))
    sheet = Sheet.of(AnswerView(handmade((0.5,) * k, (0.5,) * k, kept=(0,), pixels=pixels)), width=1100, height=1000)

    assert sheet.size[0] <= 1100 and sheet.size[1] <= 1010
    assert max(sheet.size) >= 240


@pytest.mark.parametrize("k", [1, 32])
def test_smallest_and_large_grids_are_drawn(k: int) -> None:
    pixels = np.zeros((k * k, 9, 16, 3), np.uint8)
    image = draw_answer(handmade((0.5,) * k, tuple(i / 40 for i in range(k)), kept=(0,), pixels=pixels))

    assert image.width == WIDTH and image.height < 3000


# Files.


@pytest.mark.parametrize("name", ["map.png", "map.jpg", "map.JPEG"])
def test_colours_are_true_in_every_format(tmp_path: Path, name: str) -> None:
    orange = np.full((9, 36, 64, 3), (200, 100, 40), np.uint8)
    answer = without_map(handmade(pixels=orange), (0, 1, 2))
    save_map([answer], tmp_path / name)

    with Image.open(tmp_path / name) as image:
        assert (image.format, image.mode) == ("PNG" if name.endswith("png") else "JPEG", "RGB")
        top = MARGIN + _title(AnswerView(answer)).height + GAP + _timeline(AnswerView(answer)).height + GAP
        found = image.getpixel((MARGIN + 150, top + 60))
    assert found == pytest.approx((200, 100, 40), abs=3)


def test_noise_is_not_reduced_to_a_palette(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (144, 144, 144, 3), dtype=np.uint8)
    answer = handmade((0.5,) * 12, (0.5,) * 12, kept=tuple(range(144)), pixels=noise)
    for name, most in (("noise.png", 9_000_000), ("noise.jpg", 3_000_000)):
        save_map([answer], tmp_path / name)
        assert (tmp_path / name).stat().st_size < most
        with Image.open(tmp_path / name) as image:
            assert image.mode == "RGB"


@pytest.mark.parametrize("name", ["map.gif", "map", "map.html"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"its name must end in \.png, \.jpg, \.jpeg$"):
        save_map([handmade()], tmp_path / name)
    assert os.listdir(tmp_path) == []


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

    assert draw_answer(handmade(question=question)).width == WIDTH


def test_a_long_question_is_wrapped_and_a_megabyte_takes_six_lines() -> None:
    texts = ("a", "where does the balloon land " * 6, "why " * 250_000)
    heights = [draw_answer(handmade(question=Question(text, options=["a", "b"]))).height for text in texts]

    assert [height - heights[0] for height in heights] == [0, round(27 * 1.35), 5 * round(27 * 1.35)]


def bars(image: Image.Image) -> set[int]:
    """Where the bars of the options begin: those of the chosen one are MARK, of others BAR."""
    return {x for y in range(image.height) for colour in (MARK, BAR) for x in columns_of(image, colour, y)[:1]}


def test_bars_begin_where_the_longest_option_ends() -> None:
    short, long = (handmade(question=Question("?", options=["a", text])) for text in ("bb", "b" * 30))
    starts = [min(bars(_options(AnswerView(answer)))) for answer in (short, long)]

    assert starts[0] < 250 < starts[1] < 0.53 * INSIDE
    wide = handmade(question=Question("?", options=["a", "a word " * 40]))
    assert _options(AnswerView(wide)).height > _options(AnswerView(long)).height


def test_dark_footage_is_not_dimmed_to_black() -> None:
    night = np.full((9, 36, 64, 3), 20, np.uint8)
    dusk = np.full((9, 36, 64, 3), 64, np.uint8)

    assert middle(*sheet_of(handmade(pixels=night, kept=(4,))), 0) == (20, 20, 20)
    assert middle(*sheet_of(handmade(pixels=dusk, kept=(4,))), 0) == (DARKEST,) * 3


def test_characters_that_no_font_has_are_counted_in_the_picture() -> None:
    known = handmade(question=Question("Zürich?", options=["a", "b"]))
    unknown = handmade(question=Question("\U0010fffd\ufe0f\U0010fffe?", options=["a", "b"]))

    assert missing_letters(["Zürich – ‘é’"]) == set()
    assert missing_letters([unknown.question.text]) == {"\U0010fffd", "\U0010fffe"}
    assert _footer(AnswerView(unknown)).height > _footer(AnswerView(known)).height


def test_an_installed_font_is_found_by_its_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = next((Path(path) for path in _font_files() if path.endswith("DejaVuSans.ttf")), None)
    if source is None:
        pytest.skip("no DejaVu Sans on this machine")
    folder = tmp_path / "fonts" / "deep"
    folder.mkdir(parents=True)
    (folder / "a-broken.ttf").write_bytes(b"no font")
    (folder / "some-greek.ttf").write_bytes(source.read_bytes())
    monkeypatch.setattr(picture, "OTHER_FONTS", ())
    caches = (_font_files, _best_font)
    for folders, missing in (((tmp_path / "none",), 4), ((tmp_path / "none", tmp_path), 0)):
        monkeypatch.setattr(picture, "FONT_FOLDERS", tuple(map(str, folders)))
        for cache in caches:
            cache.cache_clear()
        assert len(missing_letters(["Ελλδα"])) == missing
    for cache in caches:
        cache.cache_clear()


def test_a_dash_does_not_change_the_font_of_a_line() -> None:
    assert font_for("seen at 2:40–2:44", 20) is font_for("seen at 2:40", 20)


@pytest.mark.parametrize("text", ["short", "word " * 80, "x" * 900, "漢" * 300, ""])
def test_lettering_fits(text: str) -> None:
    font = font_for(text, 20)

    assert font.getlength(fit_line(text, font, 300)) <= 300
    lines = fit_lines(text, font, 300, 3)
    assert len(lines) <= 3 and all(font.getlength(line) <= 300 for line in lines)
    assert fit_line("short", font, 300) == "short"


def test_wrapping_breaks_at_spaces_and_loses_nothing_that_fits() -> None:
    text = "the quick brown fox jumps over the lazy dog"

    assert " ".join(fit_lines(text, font_for(text, 20), 200, 9)) == text


@pytest.mark.parametrize("count", [0, 2])
def test_a_map_of_several_answers_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError, match=f"exactly one answer, got {count}; save a report"):
        save_map([handmade()] * count, tmp_path / "map.png")


@pytest.mark.parametrize("name", ["missing/map.png", "folder.png", "file/map.png"])
def test_unwritable_path_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match=r"^cannot write [^\n]*; name a file[^\n]*$"):
        save_map([handmade()], tmp_path / name)

    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "null.png").symlink_to("/dev/null")
    with pytest.raises(UsageError, match="not a regular file"):
        save_map([handmade()], tmp_path / "null.png")

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


def test_in_a_notebook_an_answer_shows_itself() -> None:
    """As a picture, with text in its place that no question can turn into markup."""
    question = Question('<script>"x"</script>?', ["one", '"<b>two</b>"', "three", "four"], answer="B")
    answer = replace(handmade(), question=question)

    shown = answer._repr_html_()

    match = re.fullmatch(r'<img alt="([^"<>]*)" src="data:image/jpeg;base64,([\w+/=]+)" style="[^"<>]*">', shown)
    assert match and html.unescape(match[1]) == repr(answer)
    with Image.open(io.BytesIO(base64.b64decode(match[2])), formats=["JPEG"]) as picture:
        assert picture.width == 1280
