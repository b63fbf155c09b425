"""Maps and reports show the frames the answer was read from, and decode nothing."""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gridprobe as gp
from gridprobe.report.answer_page import render
from gridprobe.report.picture import BLANK, Sheet, draw_sheet
from gridprobe.report.view import AnswerView
from gridprobe.video.decoder_pool import ChildDecoder
from report.answers import PUBLISHED, handmade
from videos import numbered_video, read_number
from videos_of_arrays import gray_pool, levels

QUESTION = gp.Question("When does it happen?", ["early", "late"])
FPS = 25


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds; every frame shows its own number."""
    return numbered_video(tmp_path_factory.mktemp("pixels") / "numbered.mp4", 250, fps=FPS)


def surer_of_late() -> gp.MockModel:
    """Surer of B the later the last frame it is shown."""
    return gp.MockModel(lambda request: {"A": 1.0, "B": 1.0 + max(request.frames.times)})


@pytest.mark.parametrize("selector", ["uniform", "random", "all", "gridprobe"])
@pytest.mark.parametrize("changes", [{}, {"show": "importance"}, {"show": "collage"}])
def test_saving_decodes_nothing(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selector: str, changes: dict[str, Any]
) -> None:
    frames: Any = "auto" if selector == "all" else 4
    answer = gp.ask(
        numbered, QUESTION, model=surer_of_late(), selector=selector, k=3, **{**PUBLISHED, "frames": frames, **changes}
    )
    reads: list[Sequence[object]] = []
    monkeypatch.setattr(ChildDecoder, "read", lambda *arguments, **_: reads.append(arguments))

    answer.save_map(tmp_path / "map.png")
    answer.save_report(tmp_path / "report.html")

    assert reads == []
    pictures = AnswerView(answer).pixels
    assert len(pictures) == (4 if selector in ("uniform", "random") else 9)
    shown = {index: read_number(pixels) for index, pixels in pictures.items() if index in answer.selection.indices}
    assert shown == {index: round(answer.pool.times[index] * FPS) for index in answer.selection.indices}


def test_kept_frames_are_those_the_answer_was_read_from_whatever_their_order() -> None:
    model = gp.MockModel(lambda request: {"A": 1.0 + max(levels(request.frames)), "B": 1.0})
    answer = gp.ask(gray_pool(16), QUESTION, model=model, k=4, frames=5, show="importance")
    brighter = replace(answer, frames=replace(answer.frames, data=answer.frames.pixels + np.uint8(100)))

    pictures = AnswerView(brighter).pixels

    assert list(answer.frames.times) != sorted(answer.frames.times)
    assert {
        index: int(pixels[0, 0, 0]) - int(answer.pool.pixels[index, 0, 0, 0]) for index, pixels in pictures.items()
    } == {index: 100 if index in answer.selection.indices else 0 for index in range(16)}


def test_a_frame_that_was_not_decoded_is_a_blank_tile(numbered: Path) -> None:
    answer = gp.ask(numbered, QUESTION, model=surer_of_late(), selector="uniform", k=3, frames=2)

    view = AnswerView(answer)
    sheet = Sheet.of(view, width=600, height=600)
    image = draw_sheet(view, sheet)

    dim = tuple(int(part * min(view.brightness)) for part in BLANK)
    corners = [image.getpixel(sheet.corner(index)) for index in range(9)]
    assert [index for index, colour in enumerate(corners) if colour != dim] == list(answer.selection.indices)


def test_the_page_shows_kept_frames_at_the_size_they_were_answered_from() -> None:
    answer = handmade(kept=(1, 4))
    large = replace(answer, frames=replace(answer.frames, data=np.full((2, 90, 160, 3), 200, np.uint8)))

    jpegs = re.findall(r"data:image/jpeg;base64,([^\"]+)\" alt=\"frame", render([large]))

    assert [Image.open(io.BytesIO(base64.b64decode(jpeg))).size for jpeg in jpegs] == [(160, 90)] * 2


def test_a_squashed_pool_is_drawn_in_the_shape_of_the_kept_frames() -> None:
    answer = handmade(pixels=np.full((9, 64, 64, 3), 255, np.uint8), kept=(0,))
    wide = replace(answer, frames=replace(answer.frames, data=np.full((1, 32, 64, 3), 255, np.uint8)))

    sheet = Sheet.of(AnswerView(wide), width=900, height=900)

    assert sheet.tile[0] / sheet.tile[1] == pytest.approx(2, rel=0.03)
