"""One row per question: the map, the kept frames and the answers are those of the runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawn import cut_off, overlapping, texts, words
from evaluation_runs import item, large_run, record, selection, spec_of, staged, write_run
from gridprobe.errors import UsageError
from gridprobe.report.format import levels
from gridprobe.video import Video
from gridprobe_eval.reader import Run, read_runs
from regime import regime_figure, regimes
from videos import numbered_video

MAPS = {"a": ((0.5, 0.9, 0.5), (0.4, 0.5, 0.8)), "b": ((0.5,) * 3, (0.5,) * 3), "c": ((0.2, 0.9, 0.9), (0.9, 0.9, 0.2))}


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    names = [f"v1-{name}" for name in MAPS]
    items = [item(name, video="") for name in names]
    ours = [record(f"v1-{name}", "B", selection=selection(*confidences)) for name, confidences in MAPS.items()]
    theirs = [record("v1-a", "C"), record("v1-b", None), record("v1-c", "B")]
    return read_runs(
        [
            write_run(tmp_path / "ours", items, ours),
            write_run(tmp_path / "theirs", items, theirs, spec=spec_of("all")),
        ]
    )


def maps(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_images() and axes.get_lines()]


def test_maps_and_kept_frames_are_the_runs(runs: list[Run]) -> None:
    rows, notes = regimes(runs, ["v1-a", "v1-c"])
    figure = regime_figure(rows)

    assert notes == [] and [row.result.id for row in rows] == ["v1-a", "v1-c"]
    for axes, name in zip(maps(figure), "ac", strict=True):
        row_confidence, column_confidence = MAPS[name]
        importance = np.outer(row_confidence, column_confidence)
        np.testing.assert_allclose(
            axes.get_images()[0].get_array().reshape(-1), levels(importance.reshape(-1).tolist())
        )
        (dots,) = axes.get_lines()
        kept = [int(3 * y + x) for x, y in zip(dots.get_xdata(), dots.get_ydata(), strict=True)]
        assert kept == selection(row_confidence, column_confidence)["indices"]
    assert f"{len(kept)} of 9 kept" in words(figure)


def test_the_answers_stand_side_by_side_with_their_marks(runs: list[Run]) -> None:
    figure = regime_figure(regimes(runs, ["v1-a", "v1-b", "v1-c"])[0])
    shown = words(figure).replace("\n", " ")

    assert shown.count("Answer B: a car stops") == 3 and shown.count("✓ ours: B") == 3
    assert "✗ theirs: C" in shown and "it rains" in shown
    assert "✗ theirs: failed" in shown and "✓ theirs: B" in shown
    weights = {t.get_text(): t.get_weight() for t in texts(figure)}
    assert weights["✓ ours: B"] == "bold" and weights["✗ theirs: C"] == "normal"


def test_strokes_of_the_timeline_are_the_kept_times(runs: list[Run]) -> None:
    rows, _ = regimes(runs, ["v1-a"])
    (timeline,) = (axes for axes in regime_figure(rows).axes if axes.collections)

    drawn = [segment[0][0] for segment in timeline.collections[0].get_segments()]
    assert drawn == rows[0].chosen.selection["timestamps"] and timeline.get_xlim() == (0, 90.0)


def test_the_timeline_of_a_question_without_a_duration_ends_where_its_video_does(tmp_path: Path) -> None:
    chosen = record("v1-a", selection=selection(*MAPS["a"]), video={"duration": 240.0})
    (run,) = read_runs([write_run(tmp_path / "r", [item("v1-a", video="", duration=None)], [chosen])])
    (timeline,) = (axes for axes in regime_figure(regimes([run])[0]).axes if axes.collections)

    assert timeline.get_xlim() == (0, 240.0)


def test_the_questions_are_those_with_most_median_and_fewest_frames(tmp_path: Path) -> None:
    found = read_runs([large_run(tmp_path / name, count=80, selector=name) for name in ("gridprobe", "all")])
    rows, notes = regimes(found)

    asked = {r.id for r in found[1].results if r.outcome != "missing"}
    kept = sorted(r.answered.selection["kept"] for r in found[0].results if r.answered and r.id in asked)
    assert [row.chosen.selection["kept"] for row in rows] == [kept[-1], kept[len(kept) - 1 - len(kept) // 2], kept[0]]
    assert "no thumbnails" in notes[0] and all(row.mapped == "gridprobe" for row in rows)


def test_a_map_with_a_number_for_each_frame_is_drawn(tmp_path: Path) -> None:
    one = write_run(tmp_path / "r", [item("v1-a", video="")], [staged("v1-a", "B", "focus", overview="C", focus="B")])
    (axes,) = maps(regime_figure(regimes(read_runs([one]))[0]))

    np.testing.assert_allclose(axes.get_images()[0].get_array(), np.arange(9).reshape(3, 3) / 8)
    assert axes.get_lines()[0].get_xdata().tolist() == [1, 1] and axes.get_lines()[0].get_ydata().tolist() == [0, 1]


def test_a_withheld_answer_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    chosen = selection(*MAPS["a"])
    one = write_run(
        tmp_path / "r", [item("v1-a", video="", answer=None)], [record("v1-a", selection=chosen, right=None)]
    )
    shown = words(regime_figure(regimes(read_runs([one]))[0]))

    assert "? r: B" in shown and "Answer" not in shown and "not public" in shown and "✓" not in shown


def test_kept_frames_are_pictures_of_the_video(tmp_path: Path) -> None:
    numbered_video(tmp_path / "clip.mp4", 90)
    times = Video(tmp_path / "clip.mp4", num_frames=9).lazy().times
    kept = {"indices": [1, 4], "timestamps": [times[1], times[4]]}
    one = write_run(
        tmp_path / "r",
        [item("v1-a", video=str(tmp_path / "clip.mp4"))],
        [record("v1-a", selection=selection(*MAPS["a"]) | kept)],
        spec=spec_of(k=3),
    )
    rows, notes = regimes(read_runs([one]))
    figure = regime_figure(rows)

    pictures = [axes.get_images()[0].get_array() for axes in figure.axes if axes.get_images() and not axes.get_lines()]
    expected = Video(tmp_path / "clip.mp4", num_frames=9).frames([1, 4]).pixels
    assert notes == [] and len(pictures) == 2
    for shown, real in zip(pictures, expected, strict=True):
        assert abs(float(np.mean(shown)) - float(real.mean())) < 4  # JPEG, and smaller


LONG = "Which of the persons who cross the square, one after another, says $x^2$ about the clock_tower? "


@pytest.mark.parametrize("width", [60.0, *(pytest.param(each, marks=pytest.mark.release) for each in (80.0, 170.0))])
def test_no_text_is_cut_off_or_covered(tmp_path: Path, width: float) -> None:
    items = [
        item("v1-a", question=LONG * 20, options=[LONG, "x" * 300, "$\\frac{", "é" * 40], video="", answer="B"),
        item("v2-a", question="Short?", video=""),
    ]
    paths = []
    for number, choice in enumerate("ABCD"):
        records = [record("v1-a", choice, selection=selection(*MAPS["a"])), record("v2-a", "A", selection=selection())]
        paths.append(write_run(tmp_path / f"a-run-with-a-{'very-' * 12}long-name-{number}", items, records))
    figure = regime_figure(regimes(read_runs(paths), ["v1-a"])[0], width=width)

    assert cut_off(figure) == [] and overlapping(figure) == []
    assert "…" in words(figure)


def test_what_cannot_be_drawn_is_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'v9' has no map, or was not asked"):
        regimes(runs, ["v9"])
    with pytest.raises(UsageError, match="room for 12 questions, got 13"):
        regimes(runs, ["v1-a"] * 13)
    with pytest.raises(UsageError, match="no question has a map"):
        regimes(runs[1:])
    other = write_run(tmp_path / "b", [item("v1-a")], [record("v1-a")], benchmark_version="toy-10-def")
    with pytest.raises(UsageError, match="different benchmark versions"):
        regimes([*runs, *read_runs([other])])
