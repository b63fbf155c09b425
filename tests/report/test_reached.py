"""How an answer was reached: one sentence, the stages, the bill and the kind of map, in every view."""

import re
from dataclasses import replace
from typing import Any, get_args

import pytest

from gridprobe import Answer, MockModel
from gridprobe.answer import AnswerCost, Seconds
from gridprobe.early_exit import EarlyExit
from gridprobe.importance import MapKind
from gridprobe.models.base import Cost
from gridprobe.options import Options
from gridprobe.report import answer_view
from gridprobe.report.answer_page import render
from gridprobe.report.format import MAP_WORDS, score_words, share_words
from gridprobe.report.terminal import short_view
from gridprobe.report.view import AnswerView
from gridprobe.selectors import AllSmall, Selection
from report.answers import by_frame, handmade, posterior, reached, without_map

DEFAULT = EarlyExit()
CALIBRATED = EarlyExit(0.93, "calibrated", 0.05, 0.1, 400)
SURE, UNSURE = posterior(B=0.998), posterior(C=0.43, B=0.3)
TOTAL = ("total", "30%", 2.5)
KINDS: tuple[MapKind, ...] = get_args(MapKind)


def view(answer: Answer, *, width: int = 100, unicode: bool = True, **more: bool) -> str:
    return answer_view(answer, width=width, color=False, unicode=unicode, **more).plain


def wide(answer: Answer) -> Answer:
    """The same with the map of one number per frame, as after an overview."""
    evidence = by_frame((0.01,) * 8 + (0.3,)).selection.evidence
    return replace(answer, selection=replace(answer.selection, evidence=evidence))


# The sentence.


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"by": "overview", "overview": SURE, "exit": DEFAULT},
            "Answered from the overview of all 9 frames; it was sure (99.8%, the limit is 99%).",
        ),
        (
            {"by": "overview", "overview": UNSURE},
            "Answered from the overview of all 9 frames; it was 43.0% sure.",
        ),
        (
            {"by": "focus", "overview": UNSURE, "exit": DEFAULT},
            "Answered from 3 frames at full size among all others small; the overview was not sure (C, 43.0%, "
            "the limit is 99%).",
        ),
        (
            {"by": "overview", "overview": posterior(B=0.936), "exit": EarlyExit(0.935, "given")},
            "Answered from the overview of all 9 frames; it was sure (93.6%, the limit is 93.5%).",
        ),
        (
            {"by": "focus", "overview": SURE},
            "Answered from 3 frames at full size among all others small; the overview was 99.8% sure of B.",
        ),
        (
            {"by": "focus", "overview": posterior(B=0.92996), "exit": CALIBRATED},
            "Answered from 3 frames at full size among all others small; the overview was not sure (B, 92.996%, "
            "the limit is 93%).",
        ),
        (
            {"by": "refined", "overview": UNSURE, "exit": DEFAULT, "stretches": ((130.0, 160.0), (300.0, 310.0))},
            "Answered from segments sampled again, since the overview was not sure: 2:10–2:40, "
            "5:00–5:10; read from 3 frames at full size among all others small.",
        ),
        (
            {
                "by": "refined",
                "overview": SURE,
                "exit": DEFAULT,
                "focus": None,
                "stretches": tuple((60.0 * i, 60.0 * i + 30) for i in range(6)),
            },
            "Answered from segments sampled again, since the overview was not sure: 0:00–0:30, "
            "1:00–1:30, 2:00–2:30, 3:00–3:30 and 2 more; read from their overview.",
        ),
    ],
)
def test_one_sentence_for_each_way(changes: dict[str, Any], sentence: str) -> None:
    answer = reached(handmade(), changes.pop("by"), **changes)

    assert AnswerView(answer).reached == sentence


def test_without_an_overview_the_frames_are_counted() -> None:
    assert AnswerView(handmade()).reached == "Answered from 3 of 9 frames at full size."
    assert AnswerView(without_map(handmade(), tuple(range(9)))).reached == "Answered from all 9 frames at full size."
    collage = replace(handmade(), settings={**handmade().settings, "show": "collage"})
    assert AnswerView(collage).reached == "Answered from 3 of 9 frames in one picture."


@pytest.mark.parametrize("model", ["embedded", MockModel(lambda _: {})], ids=["named", "loaded"])
def test_all_frames_small_are_not_called_native(model: str | MockModel) -> None:
    settings = Options.from_preset("gridworld")
    setup = settings.resolve(model=model, selector=AllSmall(settings.small_view))
    answer = replace(without_map(handmade(), tuple(range(9))), settings=setup.describe())

    assert AnswerView(answer).reached == "Answered from all 9 frames, small."


EXIT = reached(handmade(), "overview", overview=SURE, exit=DEFAULT)
FOCUS = reached(handmade(), "focus", overview=UNSURE, exit=DEFAULT)


@pytest.mark.parametrize("answer", [EXIT, FOCUS, handmade()], ids=["exit", "focus", "published"])
def test_terminal_and_page_have_the_sentence(answer: Answer) -> None:
    sentence = AnswerView(answer).reached

    assert sentence in re.sub(r"\s+", " ", view(answer))
    assert sentence in render([answer])


@pytest.mark.parametrize("answer", [EXIT, FOCUS], ids=["exit", "focus"])
def test_a_calibration_of_149_questions_is_not_advertised_under_an_answer(answer: Answer) -> None:
    assert "calibrate" not in view(answer) + short_view(answer, width=80, color=False, unicode=True).plain
    assert "calibrate" not in render([answer])


def test_one_frame_is_not_called_all_1_frames() -> None:
    answer = handmade()
    one = replace(answer, pool=answer.pool.take([4]), frames=answer.pool.take([4]))
    one = replace(one, selection=Selection.of("all", one.pool, (0,)), settings={**answer.settings, "context": None})
    overview = reached(one, "overview", overview=SURE, exit=DEFAULT)

    assert AnswerView(one).reached == "Answered from the only frame at full size."
    assert AnswerView(overview).reached.startswith("Answered from the overview of the only frame; it was sure")
    assert "of showing the only frame at full size" in AnswerView(one).compute
    assert "all 1 frames" not in view(one) + view(overview) + render([one, overview])


def test_no_size_is_said_that_a_warning_contradicts() -> None:
    """An engine that shows smaller frames than the settings say, because memory is short, says so itself."""
    note = "frames were shown at 128×96 pixels, because larger ones do not fit memory"
    answer = reached(handmade(), "overview", overview=replace(SURE, notes=(note,)), exit=DEFAULT)
    answer = replace(answer, warnings=(f"in the overview {note}",))

    assert "128×96" in view(answer) and " px" not in view(answer) + render([answer])


def test_both_stages_are_shown_where_there_are_two() -> None:
    stages = ["overview: Lima, in a football ground 43.0%", "focus: Rome, beside the river 75.0%"]

    assert AnswerView(FOCUS).stages == stages
    assert f"{'; '.join(stages)}." in view(FOCUS) and f"{'; '.join(stages)}." in render([FOCUS])
    assert AnswerView(EXIT).stages == [] and "focus: " not in view(EXIT)


def test_an_answer_from_the_overview_keeps_nothing() -> None:
    page, text = render([EXIT]), view(EXIT)

    assert "kept" not in re.sub("<style>.*?</style>|class=.kept.", "", page, flags=re.S)
    assert "most important" in page and "most important" in text and "kept" not in text
    bare = without_map(EXIT, tuple(range(9)))
    assert "No frame was preferred." in render([bare]) and "most important" not in view(bare)


# The bill.


def test_stages_are_shares_of_all_frames_with_their_seconds() -> None:
    cost = AnswerCost(Cost(2, 5, 4, 1e12), Cost(1, 3, 2, 3e12), Cost(1, 9, 8, 20e12), Cost(1, 7, 6, 2e12))
    answer = replace(FOCUS, cost=cost, seconds=Seconds(1.0, 0.25, 0.5, 0.75))

    stages = [(stage.name, share_words(stage.share), stage.seconds) for stage in AnswerView(answer).bill]
    assert stages == [("overview", "10%", 0.75), ("probes", "5.0%", 0.25), ("focus", "15%", 0.5), TOTAL]
    assert "overview      10%     0.8 s" in view(answer)
    row = r"overview</th><td>10%</td><td>0.75</td><td>2.00</td>"
    assert row in render([answer])


def test_a_stage_that_was_not_taken_is_not_on_the_bill() -> None:
    cost = AnswerCost(Cost(), Cost(), Cost(1, 9, 8, 20e12), Cost(1, 7, 6, 2e12))

    assert [stage.name for stage in AnswerView(replace(without_map(EXIT), cost=cost)).bill] == ["overview", "total"]
    assert [stage.name for stage in AnswerView(handmade()).bill] == ["probes", "focus", "total"]


def test_without_prices_there_is_no_share() -> None:
    answer = replace(EXIT, cost=AnswerCost(Cost(), Cost(), Cost()))

    assert {stage.share for stage in AnswerView(answer).bill} == {None}
    assert "nan" not in view(answer) and " - " in view(answer, unicode=False)


# Maps.


@pytest.mark.parametrize("kind", KINDS)
def test_the_details_say_what_the_map_shows(kind: MapKind) -> None:
    answer = by_frame((0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.1), kind=kind)

    assert len(set(MAP_WORDS.values())) == len(KINDS)
    assert AnswerView(answer).details["map"] == f"{MAP_WORDS[kind]}; from 0.100 to 0.900"
    assert MAP_WORDS[kind] in view(answer, all_details=True) and MAP_WORDS[kind] not in view(answer)
    page = render([answer])
    assert MAP_WORDS[kind].replace(chr(39), "&#39;") in page[page.index("<details>") :]


def test_rows_and_columns_are_details_of_a_map_that_is_made_of_them() -> None:
    product, plain = AnswerView(handmade()).details, AnswerView(by_frame((0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.1))).details

    assert (product["rows"], product["columns"]) == ("0.40 0.90 0.50", "0.30 0.80 0.60")
    assert not {"rows", "columns"} & set(plain)
    assert "σ 0.85, skew" in product["shape"]


def test_mathematics_is_folded_away() -> None:
    page, text = render([handmade()]), view(handmade())
    folded = page[page.index("<details>") :]

    for words in ("σ 0.85", "scripted:a", "TFLOPs", "0.40 0.90 0.50"):
        assert words in folded and words not in page.replace(folded, "") and words not in text
        assert words in view(handmade(), all_details=True)


def test_a_map_by_frame_is_drawn_in_rows() -> None:
    answer = by_frame((0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.1))
    lines = [line.rstrip() for line in view(answer).split("\n")]
    start = lines.index("   0:00  ░  ░  ░")

    assert lines[start + 1 : start + 4] == ["  30:00  ▒ [█] ░", "1:00:00  ░", "Time runs left to right, row by row."]


@pytest.mark.parametrize("width", [40, 57, 80])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_too_wide_and_ascii_stays_ascii(width: int, unicode: bool) -> None:
    refined = reached(handmade(), "refined", overview=UNSURE, exit=DEFAULT, stretches=((1.0, 2.0),) * 9)
    for answer in (wide(EXIT), wide(FOCUS), refined, by_frame(tuple(i / 400 for i in range(400)), kind="attention")):
        text = view(answer, width=width, unicode=unicode)
        assert max(map(len, text.split("\n"))) <= width
        assert unicode or text.isascii()


def test_small_scores_keep_their_digits() -> None:
    assert [score_words(value) for value in (0.0, 0.0069444, 0.72, 1.0)] == ["0.00", "0.0069", "0.72", "1.00"]
    assert score_words(0.0069444, 3) == "0.00694"
