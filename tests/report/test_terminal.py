"""The terminal view: exact lines for a small map, marks, widths and what is left without colour or Unicode."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from gridprobe import Answer, Question
from gridprobe.report import answer_view
from gridprobe.report.format import MARK
from gridprobe.report.terminal import DARK, short_view, shows_colour
from report.answers import balloon, handmade, without_map

UNICODE = """\
In which city does the balloon land after it has crossed the
mountains?
Rome, beside the river 75.0%, right
read from 3 of 7 frames, mainly at 40:00–50:00

                                        40:00–50:00
▁         █         ▂         ▂         █         █        ▁
0:00                                                 1:00:00

kept: 10:00, 40:00–50:00 (2)

   0:00  ░ [▒] ░
  30:00  ▒ [█][▓]
1:00:00  ░
Time runs left to right, row by row.
importance ░░▒▒▓▓██   [█] kept

▸ B Rome, beside the river █████████████████▎        75.0%
  A Oslo, on the market s… ██▉                       12.5%
  C Lima, in a football g… █▌                         6.2%
  D Not shown              █▌                         6.2%

Answered from 3 of 7 frames at full size.
25% of the compute of showing all 7 frames at full size
decode                1.0 s
probes        10%     2.2 s
focus         15%     0.5 s
total         25%     3.8 s

warning: the file ends early"""

ASCII_MAP = """\
                                        40:00-50:00
.         #         _         _         #         #        .
0:00                                                 1:00:00

kept: 10:00, 40:00-50:00 (2)

   0:00  . [-] :
  30:00  - [@][*]
1:00:00  .
Time runs left to right, row by row.
importance .:-=+*%@   [@] kept"""

DETAILS = """\
selector  gridprobe
map       how sure the model is from each row and column;
          from 0.120 to 0.720
shape     σ 0.81, skew 0.81, excess kurtosis -0.68
rows      0.40 0.90 0.50
columns   0.30 0.80 0.60
compute   5.00 TFLOPs instead of 20.0
published 7.00 TFLOPs instead of 28.0, by the published
          convention
tokens    9,000, 7,500 of them visual, in 7 passes
model     scripted:a"""


def lines(
    answer: Answer, *, width: int = 60, color: bool = False, unicode: bool = True, all_details: bool = False
) -> list[str]:
    view = answer_view(answer, width=width, color=color, unicode=unicode, all_details=all_details)
    return view.plain.split("\n")


def seven(**changes: Any) -> Answer:
    return handmade(cells=7, warnings=("the file ends early",), **changes)


def test_unicode_view_line_by_line() -> None:
    assert "\n".join(line.rstrip() for line in lines(seven())) == UNICODE


def test_details_are_shown_when_asked_for() -> None:
    text = "\n".join(line.rstrip() for line in lines(seven(), all_details=True))

    assert DETAILS in text and DETAILS not in UNICODE


def test_ascii_view_has_the_same_map_in_ascii() -> None:
    text = "\n".join(line.rstrip() for line in lines(seven(), unicode=False))

    assert ASCII_MAP in text
    assert text.isascii()


ROW_STARTS = ("   0:00 ", "  30:00 ", "1:00:00 ")


@pytest.mark.parametrize("kept", [(0,), (2, 3), (0, 4, 8), tuple(range(8))])
@pytest.mark.parametrize("unicode", [True, False])
def test_marks_stand_exactly_at_the_kept_cells(kept: tuple[int, ...], unicode: bool) -> None:
    rows = [line for line in lines(handmade(kept=kept), unicode=unicode) if line[:8] in ROW_STARTS]

    cells = [row[8 + 3 * c : 11 + 3 * c] for row in rows for c in range(3)]
    assert [i for i, cell in enumerate(cells) if cell[0] == "[" and cell[2] == "]"] == list(kept)


def test_brightness_shows_importance_and_kept_cells_are_marked() -> None:
    view = answer_view(handmade(kept=(4,)), width=60, color=True, unicode=True)
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="truecolor")
    rendered = [line for line in console.render_lines(view, pad=False) if line]
    rows = [line for line in rendered if line[0].text in ROW_STARTS]

    grounds = [[segment for segment in row if segment.style and segment.style.bgcolor] for row in rows]
    assert [segment.text for segment in grounds[1]] == ["   ", " ● ", "   "]
    assert [segment.text for segment in grounds[0]] == ["   "] * 3
    colours = [[segment.style.bgcolor.triplet for segment in row if segment.style.bgcolor] for row in grounds]  # type: ignore[union-attr]
    assert colours[1][1] == MARK and colours[0][0] == DARK
    light = [[sum(colour) for colour in row if colour] for row in colours]
    assert light[0][0] < light[0][2] < light[0][1] < light[1][2]


def test_kept_frames_are_pictures_in_colour() -> None:
    red = np.zeros((9, 36, 64, 3), np.uint8)
    red[4] = (250, 10, 20)
    view = answer_view(handmade(kept=(4,), pixels=red), width=60, color=True, unicode=True)
    blocks = [span for span in view.spans if "#fa0a14 on #fa0a14" in str(span.style)]

    assert len(blocks) == 24 * 7 and view.plain.count("▀") == 24 * 7
    assert "40:00.0" in view.plain
    for color, unicode in ((False, True), (True, False)):
        assert "▀" not in answer_view(handmade(kept=(4,)), width=60, color=color, unicode=unicode).plain


def test_no_style_without_colour() -> None:
    view = answer_view(seven(), width=60, color=False, unicode=True)

    assert not view.style and not any(str(span.style) for span in view.spans)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-5])
def test_flat_map_looks_flat(noise: float) -> None:
    rows = tuple(0.5 + noise * (i % 2) for i in range(4))
    answer = handmade(rows, (0.5, 0.5, 0.5 + noise, 0.5), kept=(0,))
    shown = lines(answer)
    start = next(place for place, line in enumerate(shown) if line.startswith("   0:00 "))
    cells = "".join(line[8:20] for line in shown[start : start + 4])

    assert len(cells) == 48
    assert set(cells) - set("[ ]") == {"▒"}
    assert "no moment stands out" in " ".join(shown)


@pytest.mark.parametrize("width", [40, 41, 57, 80, 120])
@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_asked(width: int, color: bool, unicode: bool) -> None:
    chinese = Question("气球在哪里降落？" * 30, options=["市场" * 20, "ü" * 70, "a b " * 40], answer=None)
    k32 = handmade((0.5,) * 32, tuple(i / 32 for i in range(32)), kept=tuple(range(0, 1024, 5)))
    k64 = handmade((0.5,) * 64, tuple(i / 64 for i in range(64)), kept=(7,), models=("m" * 99, "n" * 99))
    for answer in (handmade(), handmade(question=chinese), k32, k64, without_map(k64), without_map(handmade())):
        for line in lines(answer, width=width, color=color, unicode=unicode):
            assert cell_len(line) <= width, line


def test_a_wide_map_first_gives_up_cell_width_then_times_then_the_map() -> None:
    answer = handmade((0.5,) * 30, (0.5,) * 30, kept=(31,))
    views = {width: lines(answer, width=width) for width in (100, 70, 40, 30, 29)}
    marked = {width: [line for line in view if "[" in line or "●" in line] for width, view in views.items()}
    row = {width: next(iter(lines), "") for width, lines in marked.items()}

    assert row[100] == "  5:00:00  ▒ [▒]" + " ▒ " * 28
    assert row[70] == "  5:00:00 ▒▒●▒" + "▒▒" * 28
    assert row[40] == "  5:00:00 ▒●" + "▒" * 28
    assert row[30] == "▒●" + "▒" * 28
    assert [marked[width][-1].split("   ")[1] for width in (100, 70, 40)] == ["[█] kept", "●█ kept", "● kept"]
    assert row[29] == "" and not any("row by row" in line for line in views[29])


def test_selection_without_a_map_shows_a_timeline() -> None:
    text = lines(without_map(handmade(), (0, 4, 8)), width=36)
    start = text.index("0:00            40:00        1:20:00")

    assert text[start + 1 : start + 3] == ["█   ·    ·   ·    █   ·    ·   ·   █", "0:00" + "1:20:00".rjust(32)]
    assert "#   .    .   .    #   .    .   .   #" in lines(without_map(handmade()), width=36, unicode=False)
    assert not any("importance" in line for line in text)


def test_many_kept_times_are_counted() -> None:
    answer = handmade((0.5,) * 8, (0.5,) * 8, kept=tuple(range(0, 64, 2)))

    assert "and 20 more" in " ".join(lines(answer, width=100))
    assert sum("kept: " in line for line in lines(answer, width=100)) == 1


def test_texts_cannot_steer_the_terminal() -> None:
    question = Question("\x1b[2Jwhat\u202e?", options=["[bold]x[/bold]", "\x1b]0;title\x07y"])
    answer = handmade(question=question, warnings=("a\x1b[31mb\r\n\x9bc",), models=("m\x1b", "m\x1b"))
    strange = replace(without_map(answer), selection=replace(without_map(answer).selection, selector="漢\x1b" * 60))
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    for shown in (answer, strange):
        console.print(answer_view(shown, width=80, color=False, unicode=True))
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert not set(text) & set("\x1b\x07\r\x9b\u202e")
    assert "[bold]x[/bold]" in text
    assert max(map(cell_len, text.split("\n"))) <= 80


def test_unpriced_answer_claims_no_saving() -> None:
    answer = balloon(k=2, wide=32, high=32)
    spent = " ".join(lines(handmade(cost=type(answer.cost)(*[type(answer.cost.probe)()] * 3))))

    assert "% of the compute" not in spent and " – " in spent


def test_a_megabyte_of_question_is_cut_quickly() -> None:
    answer = handmade(question=Question("why " * 250_000, options=["a", "b"]))

    assert len(lines(answer)) < 30


def test_view_prints_on_an_ascii_stream() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print(
        answer_view(seven(question=Question("Zürich?", options=["ja", "né"])), width=60, color=False, unicode=False),
        file=stream,
    )

    stream.flush()
    assert b"Z\\xfcrich?" in stream.buffer.getvalue()


@pytest.mark.parametrize(("term", "colour"), [("xterm-256color", True), ("dumb", False)])
def test_a_dumb_terminal_gets_shades_instead_of_solid_bands(term: str, colour: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": term})

    assert shows_colour(console) is colour


def test_a_short_answer_has_at_most_twelve_lines() -> None:
    answer = replace(balloon(4), warnings=tuple(f"warning {number} " * 20 for number in range(9)))
    view = short_view(answer, width=40, color=False, unicode=True).plain.splitlines()

    assert len(view) == 12 and view[-1].endswith("more lines; -v shows them")
