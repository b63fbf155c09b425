import json
from pathlib import Path

import pytest

from gridprobe.errors import DataError
from gridprobe.subtitles import Segment, read_subtitles

SRT = """1
00:00:01,500 --> 00:00:03,000
<font color="#fff">Hello</font>
there

2
00:01:00,000 --> 00:01:02,250
{\\an8}It&apos;s late
"""

VTT = """WEBVTT

NOTE a comment

intro
00:01.500 --> 00:03.000 align:start
<v Ann>Hello <c.loud>there</c>

01:00:00.000 --> 01:00:02.250
It's late
"""


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "subtitles"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_subrip(tmp_path: Path) -> None:
    subtitles = read_subtitles(write(tmp_path, SRT))

    assert subtitles.segments == (Segment(1.5, 3.0, "Hello there"), Segment(60.0, 62.25, "It's late"))
    assert subtitles.text == "Hello there It's late"


def test_webvtt_with_cue_settings_and_hour_less_times(tmp_path: Path) -> None:
    assert read_subtitles(write(tmp_path, VTT)).segments == (
        Segment(1.5, 3.0, "Hello there"),
        Segment(3600.0, 3602.25, "It's late"),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [{"start": "00:00:01.500", "end": "00:00:03.000", "line": "Hi"}],
        [{"timestamp": [1.5, 3.0], "text": "Hi"}],
        [{"start_time": 1.5, "end_time": 3.0, "text": "Hi"}],
    ],
)
def test_the_three_json_shapes(tmp_path: Path, rows: list[dict]) -> None:
    assert read_subtitles(write(tmp_path, json.dumps(rows))).segments == (Segment(1.5, 3.0, "Hi"),)
    lines = "\n".join(map(json.dumps, rows))
    assert read_subtitles(write(tmp_path, lines)).segments == (Segment(1.5, 3.0, "Hi"),)


def test_an_open_end_is_the_start_and_entries_are_put_in_time_order(tmp_path: Path) -> None:
    rows = [{"timestamp": [9.0, None], "text": "b"}, {"timestamp": [2.0, 1.0], "text": "a"}]

    assert read_subtitles(write(tmp_path, json.dumps(rows))).segments == (
        Segment(2.0, 2.0, "a"),
        Segment(9.0, 9.0, "b"),
    )


def test_unreadable_entries_are_counted_not_dropped_in_silence(tmp_path: Path) -> None:
    rows = [{"start": "x", "end": "y", "line": "?"}, 5, {"start": 1, "end": 2, "line": "ok"}, {"start": 1, "end": 2}]

    subtitles = read_subtitles(write(tmp_path, json.dumps(rows)))

    assert (len(subtitles.segments), subtitles.skipped) == (1, 3)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    assert read_subtitles(write(tmp_path, SRT.encode(encoding))).segments[0].text == "Hello there"


def test_bad_bytes_and_windows_line_ends_do_not_stop_it(tmp_path: Path) -> None:
    content = SRT.replace("\n", "\r\n").encode() + b"\r\n3\r\n00:02:00,000 --> 00:02:01,000\r\n\xff\xfe caf\xe9\r\n"

    assert len(read_subtitles(write(tmp_path, content)).segments) == 3


def test_an_empty_file_has_no_subtitles(tmp_path: Path) -> None:
    assert read_subtitles(write(tmp_path, "")).text == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [("just words", "holds no subtitle line"), ("[{", "not valid JSON"), ("[" * 100_000, "not valid JSON")],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_subtitles(write(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.srt: No such file"):
        read_subtitles(tmp_path / "nothing.srt")


def test_a_huge_file_is_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "huge.srt"
    with path.open("wb") as stream:
        stream.truncate(17 * 2**20)

    with pytest.raises(DataError, match="larger than 16 MiB"):
        read_subtitles(path)
