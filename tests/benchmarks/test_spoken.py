"""Subtitles of benchmark items: the clip's own, the paper's cut, and between frames."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe.benchmarks import SUBTITLE_MODES, Item, has_subtitles, interleaved, with_subtitles
from gridprobe.errors import DataError, UsageError
from gridprobe.question import Question

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
    assert interleaved("longvideobench", item(tmp_path), [0.0, 3.0, 9.0, 14.0]) == (
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

    assert interleaved("video-mme-v2", asked, [0.0, 2.5]) == (
        "",
        "[Subtitle 1.00s - 2.00s]: We left.\n[Subtitle 2.30s - 3.00s]: Rome",
        "[Subtitle 2.30s - 3.00s]: Rome",
    )
    assert interleaved("video-mme-v2", asked, [0.0, 1.5], duration=2.1)[2] == "[Subtitle 1.00s - 2.00s]: We left."
    assert "subtitles shown between frames" in with_subtitles(asked, "interleaved").prompt
    assert "listed below:\nWe left. Rome\nQuestion" in with_subtitles(asked, "concat").prompt


@pytest.mark.parametrize("mode", SUBTITLE_MODES)
@pytest.mark.parametrize("changes", [{"subtitles": None}, {"rows": None}, {"rows": []}])
def test_a_video_without_subtitles_is_asked_without(tmp_path: Path, mode: str, changes: dict[str, Any]) -> None:
    asked = item(tmp_path, **changes)

    assert with_subtitles(asked, mode) == asked.question
    assert interleaved("longvideobench", asked, [1.0, 2.0]) == ("", "", "")
    assert has_subtitles(asked) == ("rows" in changes and changes["rows"] is not None)


def test_a_file_that_is_broken_is_an_error_and_no_silence(tmp_path: Path) -> None:
    asked = item(tmp_path)
    (tmp_path / "track.json").write_text("[{")

    with pytest.raises(DataError, match="not valid JSON"):
        with_subtitles(asked, "concat")


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown subtitle mode 'all'; choose one of none, concat, paper, interleaved"):
        with_subtitles(item(tmp_path), "all")
