"""Figures are saved as valid files, the same bytes every time, and lines are broken by their true width."""

import io
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from canvas import add_note, new_figure, save, styled, text_width, wrap
from gridprobe.errors import UsageError


def drawn(words: str = "a note") -> Any:
    with styled():
        figure = new_figure(80, 40)
        figure.subplots().plot([1, 2], [3, 4])
        add_note(figure, words, width=80)
    return figure


def test_svg_is_valid_and_of_the_given_size(tmp_path: Path) -> None:
    assert save(drawn(), tmp_path / "f.svg") == []

    root = ElementTree.parse(tmp_path / "f.svg").getroot()
    assert root.tag.endswith("svg") and root.get("width") == f"{80 / 25.4 * 72:.6f}pt"
    assert "<dc:date>" not in (tmp_path / "f.svg").read_text()


def test_png_is_valid_and_of_the_given_size(tmp_path: Path) -> None:
    save(drawn(), tmp_path / "f.PNG")
    picture = Image.open(tmp_path / "f.PNG", formats=["PNG"])
    picture.load()

    assert picture.size == (1259, 629) and "Software" not in picture.info


@pytest.mark.parametrize("name", ["f.svg", "f.png"])
def test_the_same_figure_is_the_same_bytes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(drawn(), tmp_path / name)
    first = (tmp_path / name).read_bytes()
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30)  # as a user's matplotlibrc may say
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    save(drawn(), tmp_path / name)

    assert (tmp_path / name).read_bytes() == first


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"saved as \.svg or \.png, got 'f\.pdf'"):
        save(drawn(), tmp_path / "f.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(UsageError, match=r"run: pip install 'gridprobe\[figures\]'"), styled():
        pass


def test_characters_without_a_glyph_are_reported(tmp_path: Path) -> None:
    assert save(drawn("谁在 那里"), tmp_path / "f.png") == [
        "4 characters are not in the figure's font and are drawn as boxes"
    ]


def test_lines_are_as_wide_as_matplotlib_draws_them() -> None:
    from matplotlib.textpath import TextPath

    for words in ("The quick brown fox", "WWWWWW", "iiiiii"):
        box = TextPath((0, 0), words, size=7).get_extents()
        assert text_width(words, 7.0) == pytest.approx(box.width / 72 * 25.4, abs=0.4)
    assert text_width("clock", 7.0, weight="bold") > text_width("clock", 7.0)


def test_wrapping_keeps_every_word_and_no_line_is_too_wide() -> None:
    text = "The quick  brown fox\njumps over " + "Donaudampfschifffahrt" * 3 + " the dog"
    lines = wrap(text, 20, size=6.0).split("\n")

    assert all(text_width(line, 6.0) <= 20 for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())


def test_a_text_with_too_many_lines_ends_with_a_dot_for_each_missing_one() -> None:
    lines = wrap("one two three four five six seven", 10, size=6.0, most=2).split("\n")

    assert len(lines) == 2 and lines[1].endswith("…") and all(text_width(line, 6.0) <= 10 for line in lines)
    assert wrap("one", 10, size=6.0, most=2) == "one"


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    figure = drawn()
    save(figure, tmp_path / "f.png")
    content = io.BytesIO((tmp_path / "f.png").read_bytes())

    assert Image.open(content, formats=["PNG"]).format == "PNG" and [p.name for p in tmp_path.iterdir()] == ["f.png"]
