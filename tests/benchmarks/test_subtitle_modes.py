"""Subtitles of benchmark items: the clip's own, the paper's cut, and between frames."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe.errors import DataError, UsageError
from gridprobe.question import Question
from gridprobe_eval.benchmarks import SUBTITLE_MODES, Item, has_subtitles, with_subtitles
from videos import numbered_video

TRACK = [
    {"start": "00:00:01.000", "end": "00:00:03.000", "line": "Long before."},
    {"start": "00:03:54.000", "end": "00:03:57.000", "line": "In the clip."},
    {"start": "00:04:01.000", "end": "00:04:03.000", "line": "Still in it."},
    {"start": "00:09:00.000", "end": "00:09:02.000", "line": "Long after."},
]


def item(folder: Path, rows: list[Any] | None = TRACK, **changes: Any) -> Item:
    path = folder / "track.json"
    if rows is not None:
        path.write_text(json.dumps(rows))
    question = Question("Which?", ["x", "y"], id="q", template=changes.pop("template", "default"))
    return replace(Item("q", question, folder / "v.mp4", "v", subtitles=path, offset=233.0, duration=15.0), **changes)


def test_none_is_none(tmp_path: Path) -> None:
    assert with_subtitles(item(tmp_path), "none") == item(tmp_path).question


def test_concat_is_what_is_said_in_the_clip(tmp_path: Path) -> None:
    assert with_subtitles(item(tmp_path), "concat").subtitles == "In the clip. Still in it."


def test_paper_takes_the_start_of_the_source_whatever_the_clip_is(tmp_path: Path) -> None:
    long = [{"start": second, "end": second + 1, "line": f"word{second:04d}"} for second in range(1000)]

    assert with_subtitles(item(tmp_path), "paper").subtitles == "Long before. In the clip. Still in it. Long after."
    cut = with_subtitles(item(tmp_path, long), "paper").subtitles
    assert len(cut) == 3000 and cut.startswith("word0000 word0001") and cut.endswith("word0332 wor")


def test_interleaved_goes_between_the_frames(tmp_path: Path) -> None:
    assert with_subtitles(item(tmp_path), "interleaved").between([0.0, 3.0, 9.0, 14.0]) == (
        "",
        "In the clip.",  # its middle is at 2.5 s
        "",
        "Still in it.",  # at 9 s, after the frame shown then
        "",
    )
    assert with_subtitles(item(tmp_path), "interleaved").prompt == item(tmp_path).question.prompt


def test_video_mme_v2_joins_words_and_tells_the_model(tmp_path: Path) -> None:
    words = [("We", 1.0, 1.4), ("left.", 1.4, 2.0), ("Rome", 2.3, 3.0)]
    rows = [{"text": text, "start_time": start, "end_time": end} for text, start, end in words]
    asked = item(tmp_path, rows, offset=0.0, duration=None, template="video-mme-v2")

    shown = with_subtitles(asked, "interleaved")
    assert shown.between([0.0, 2.5]) == (
        "",
        "[Subtitle 1.00s - 2.00s]: We left.\n[Subtitle 2.30s - 3.00s]: Rome",
        "[Subtitle 2.30s - 3.00s]: Rome",
    )
    known = with_subtitles(replace(asked, duration=2.1), "interleaved")
    assert known.between([0.0, 1.5])[2] == "[Subtitle 1.00s - 2.00s]: We left."
    assert "subtitles shown between frames" in shown.prompt
    assert "listed below:\nWe left. Rome\nQuestion" in with_subtitles(asked, "concat").prompt


def v2(folder: Path, *words: tuple[str, float, float], **changes: Any) -> Item:
    rows = [{"text": text, "start_time": start, "end_time": end} for text, start, end in words]
    return item(folder, rows, **{"offset": 0.0, "duration": None, "template": "video-mme-v2", **changes})


def test_video_mme_v2_keeps_the_words_as_they_are(tmp_path: Path) -> None:
    asked = v2(tmp_path, (" We", 1.0, 1.4), ("left. ", 1.4, 2.0), (" a < b > c", 2.2, 3.0))

    assert with_subtitles(asked, "concat").subtitles == " We left.   a < b > c"
    assert with_subtitles(asked, "interleaved").between([0.0])[1] == (
        "[Subtitle 1.00s - 2.00s]:  We left. \n[Subtitle 2.20s - 3.00s]:  a < b > c"
    )


def test_video_mme_v2_leaves_out_words_after_the_end_of_the_video(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "v.mp4", 50)  # two seconds
    asked = v2(tmp_path, ("In", 0.5, 0.9), ("it.", 0.9, 1.5), ("After", 2.5, 3.0), video=video)

    assert with_subtitles(asked, "interleaved").between([0.0, 1.0]) == (
        "",
        "[Subtitle 0.50s - 1.50s]: In it.",
        "[Subtitle 0.50s - 1.50s]: In it.",
    )
    assert with_subtitles(asked, "concat").subtitles == "In it. After"


@pytest.mark.parametrize("changes", [{}, {"subtitles": None}])
def test_video_mme_v2_announces_subtitles_also_for_a_silent_video(tmp_path: Path, changes: dict[str, Any]) -> None:
    asked = v2(tmp_path, **changes)

    assert "subtitles are listed below:\n\nQuestion: Which?" in with_subtitles(asked, "concat").prompt
    shown = with_subtitles(asked, "interleaved")
    assert "subtitles shown between frames" in shown.prompt and shown.between([1.0]) == ()


def test_video_mme_shows_the_lines_of_the_frames_and_no_others(tmp_path: Path) -> None:
    rows = [
        {"start": 1.0, "end": 4.0, "line": "<i>First</i> line."},
        {"start": 5.0, "end": 6.0, "line": "Between frames."},
        {"start": 7.0, "end": 9.0, "line": "Third line."},
    ]
    asked = item(tmp_path, rows, offset=0.0, duration=None, template="video-mme")

    shown = with_subtitles(asked, "concat")

    heading = "This video's subtitles are listed below:"
    assert shown.between([2.0, 3.0, 8.0, 20.0]) == ("",) * 4 + (f"{heading}\nFirst line.\nFirst line.\nThird line.",)
    assert shown.between([8.0, 2.0])[2] == f"{heading}\nFirst line.\nThird line."  # frames by importance
    assert shown.between([0.5, 6.5]) == ("", "", "")
    assert shown.prompt == asked.question.prompt


def test_longvideobench_interleaves_as_its_own_loader(tmp_path: Path) -> None:
    """An end that is a whole number, or none, is the clip's length less the offset: 15 - 10 = 5 seconds here."""
    rows = [
        {"timestamp": [12.0, 13], "text": " A whole  end."},  # 2 to 5 s, not 2 to 3 s
        {"timestamp": [20.0, None], "text": "No end."},  # 10 to 5 s, so half a second around 7.5 s
        {"timestamp": [13.0, 15.0], "text": "Earlier, but later in the file."},
    ]
    asked = item(tmp_path, rows, offset=10.0, duration=15.0, template="longvideobench")

    assert with_subtitles(asked, "interleaved").between([0.0, 3.0, 4.5, 7.6, 12.0]) == (
        "",
        "",
        " A whole  end.",
        "No end.\nEarlier, but later in the file.",
        "",
        "",
    )


@pytest.mark.parametrize("mode", SUBTITLE_MODES)
@pytest.mark.parametrize("changes", [{"subtitles": None}, {"rows": None}, {"rows": []}])
def test_a_video_without_subtitles_is_asked_without(tmp_path: Path, mode: str, changes: dict[str, Any]) -> None:
    asked = item(tmp_path, **changes)

    assert with_subtitles(asked, mode) == asked.question
    assert with_subtitles(asked, mode).between([1.0, 2.0]) == ()
    assert has_subtitles(asked) == ("rows" in changes and changes["rows"] is not None)


def test_a_file_that_is_broken_is_an_error_and_no_silence(tmp_path: Path) -> None:
    asked = item(tmp_path)
    (tmp_path / "track.json").write_text("[{")

    with pytest.raises(DataError, match="not valid JSON"):
        with_subtitles(asked, "concat")


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown subtitle mode 'all'; choose one of none, concat, paper, interleaved"):
        with_subtitles(item(tmp_path), "all")
