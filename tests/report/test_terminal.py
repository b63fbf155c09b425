"""The terminal view: exact lines for a small map, marks, widths and what is left without colour or Unicode."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style

from gridprobe import Answer, Question
from gridprobe.report import answer_view
from gridprobe.report.colours import hex_colour, ramp
from report.answers import balloon, handmade, without_map

UNICODE = """\
In which city does the balloon land after it has crossed the
mountains?
B. Rome, beside the river 75.0%

  A Oslo, on the market squ… ██▉                      12.5%
▸ B Rome, beside the river   █████████████████▎       75.0%
  C Lima, in a football gro… █▌                        6.2%
  D Not shown                █▌                        6.2%

Answered from 3 of 7 frames at native size.

0:00:00  ░ [▒] ░  0.40 ▂
0:30:00  ▒ [█][▓] 0.90 █
1:00:00  ░        0.50 ▃
         ▁  ▇  ▄
map: how sure the model is from each row and column
importance 0.12 ░░▒▒▓▓██ 0.72   [█] kept   σ 0.81

kept     3 of 7 frames: 0:10:00.0, 0:40:00.0, 0:50:00.0
compute  5.00 TFLOPs instead of 20.0 for all 7 frames at
         native size, 4.0× less
         7.00 TFLOPs instead of 28.0, 4.0× less by the
         published convention
bill     decode                1.0 s
         probes     10.0 %     2.2 s
         focus      15.0 %     0.5 s
         total      25.0 %     3.8 s
tokens   9,000, 7,500 of them visual, in 7 passes
model    scripted:a

warning: the file ends early"""

ASCII_MAP = """\
0:00:00  . [=] :  0.40
0:30:00  - [@][#] 0.90
1:00:00  .        0.50
         3  8  6
map: how sure the model is from each row and column
importance 0.12 .:-=*#%@ 0.72   [@] kept   sigma 0.81"""


def lines(answer: Answer, *, width: int = 60, color: bool = False, unicode: bool = True) -> list[str]:
    return answer_view(answer, width=width, color=color, unicode=unicode).plain.split("\n")


def seven(**changes: Any) -> Answer:
    return handmade(cells=7, warnings=("the file ends early",), **changes)


def test_unicode_view_line_by_line() -> None:
    assert "\n".join(line.rstrip() for line in lines(seven())) == UNICODE


def test_ascii_view_has_the_same_map_in_ascii() -> None:
    text = "\n".join(line.rstrip() for line in lines(seven(), unicode=False))

    assert ASCII_MAP in text
    assert text.isascii()


@pytest.mark.parametrize("kept", [(0,), (2, 3), (0, 4, 8), tuple(range(9))])
@pytest.mark.parametrize("unicode", [True, False])
def test_marks_stand_exactly_at_the_kept_cells(kept: tuple[int, ...], unicode: bool) -> None:
    rows = [line for line in lines(handmade(kept=kept), unicode=unicode) if line[1:3] in (":0", ":3")]

    cells = [row[8 + 3 * c : 11 + 3 * c] for row in rows for c in range(3)]
    assert [i for i, cell in enumerate(cells) if cell[0] == "[" and cell[2] == "]"] == list(kept)


def test_colours_are_those_of_the_ramp_and_dots_mark_kept_cells() -> None:
    view = answer_view(handmade(kept=(4,)), width=60, color=True, unicode=True)
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="truecolor")
    rows = [
        line for line in console.render_lines(view, pad=False) if line and line[0].text.startswith(("0:00", "0:30"))
    ]

    grounds = [[segment for segment in row if segment.style and segment.style.bgcolor] for row in rows]
    assert [segment.text for segment in grounds[1]] == ["   ", " ● ", "   "]
    assert [segment.text for segment in grounds[0]] == ["   "] * 3
    assert grounds[1][1].style is not None
    assert grounds[1][1].style.bgcolor == Style.parse(f"on {hex_colour(ramp(1.0))}").bgcolor
    assert grounds[0][0].style is not None
    assert grounds[0][0].style.bgcolor == Style.parse(f"on {hex_colour(ramp(0.0))}").bgcolor


def test_no_style_without_colour() -> None:
    view = answer_view(seven(), width=60, color=False, unicode=True)

    assert not view.style and not any(str(span.style) for span in view.spans)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-5])
def test_flat_map_looks_flat(noise: float) -> None:
    rows = tuple(0.5 + noise * (i % 2) for i in range(4))
    answer = handmade(rows, (0.5, 0.5, 0.5 + noise, 0.5), kept=(0,))
    cells = "".join(line[8:20] for line in lines(answer) if line.endswith("0.50 ▄"))

    assert len(cells) == 48
    assert set(cells) - set("[ ]") == {"▒"}


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


def test_a_wide_map_first_gives_up_cell_width_then_confidences_then_times_then_the_map() -> None:
    answer = handmade((0.5,) * 30, (0.5,) * 30, kept=(31,))
    views = {width: lines(answer, width=width) for width in (107, 77, 47, 40, 30, 29)}
    row = {
        width: next(line for line in view if "[▒]" in line or "[▒" in line or "●" in line)
        for width, view in views.items()
    }

    assert row[107] == "  5:00:00  ▒ [▒]" + " ▒ " * 28 + " 0.50 ▄"
    assert row[77] == "  5:00:00 ▒▒[▒" + "▒▒" * 28 + " 0.50 ▄"
    assert row[47] == "  5:00:00 ▒●" + "▒" * 28 + " 0.50 ▄"
    assert row[40] == "  5:00:00 ▒●" + "▒" * 28
    assert row[30] == "▒●" + "▒" * 28
    assert row[29].count("●") == 1 and "left out" in " ".join(views[29])


def test_selection_without_a_map_shows_a_timeline() -> None:
    text = lines(without_map(handmade(), (0, 4, 8)))

    assert "█···█···█" in text
    assert "uniform: █ kept, · left out" in text
    assert "#...#...#" in lines(without_map(handmade(), (0, 4, 8)), unicode=False)
    assert not any("importance" in line for line in text)


def test_many_kept_times_are_counted() -> None:
    answer = handmade((0.5,) * 8, (0.5,) * 8, kept=tuple(range(0, 64, 2)))

    assert "and 20 more" in " ".join(lines(answer, width=100))


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

    assert "instead of" not in spent and "0.00 TFLOPs" in spent


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
