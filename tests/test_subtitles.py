import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import DataError, UsageError
from gridprobe.video.subtitles import Segment, clip_time, in_clip, interleave, read_subtitles, sentences

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


# Q12 of tests/reliability.md
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
def test_the_three_json_shapes(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    assert read_subtitles(write(tmp_path, json.dumps(rows))).segments == (Segment(1.5, 3.0, "Hi"),)
    lines = "\n".join(map(json.dumps, rows))
    assert read_subtitles(write(tmp_path, lines)).segments == (Segment(1.5, 3.0, "Hi"),)


def test_an_open_end_stays_open_and_entries_are_put_in_time_order(tmp_path: Path) -> None:
    rows = [{"timestamp": [9.0, None], "text": "b"}, {"timestamp": [2.0, 1.0], "text": "a"}]

    assert read_subtitles(write(tmp_path, json.dumps(rows))).segments == (
        Segment(2.0, 2.0, "a"),
        Segment(9.0, math.inf, "b"),
    )


# Q12 of tests/reliability.md
def test_unreadable_entries_are_counted_not_dropped_in_silence(tmp_path: Path) -> None:
    rows = [{"start": "x", "end": "y", "line": "?"}, 5, {"start": 1, "end": 2, "line": "ok"}, {"start": 1, "end": 2}]

    subtitles = read_subtitles(write(tmp_path, json.dumps(rows)))

    assert (len(subtitles.segments), subtitles.skipped) == (1, 3)


# Q12 of tests/reliability.md
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    assert read_subtitles(write(tmp_path, SRT.encode(encoding))).segments[0].text == "Hello there"


# Q12 of tests/reliability.md
def test_bad_bytes_and_windows_line_ends_do_not_stop_it(tmp_path: Path) -> None:
    content = SRT.replace("\n", "\r\n").encode() + b"\r\n3\r\n00:02:00,000 --> 00:02:01,000\r\n\xff\xfe caf\xe9\r\n"

    assert len(read_subtitles(write(tmp_path, content)).segments) == 3


# Q12 of tests/reliability.md
@pytest.mark.parametrize("content", ["", " \n", "[]", "WEBVTT\n\nNOTE nobody speaks\n"])
def test_an_empty_track_has_no_subtitles(tmp_path: Path, content: str) -> None:
    assert read_subtitles(write(tmp_path, content)).segments == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[5]", "holds no subtitle line"),
        ("just words", "holds no subtitle line"),
        ("[{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_subtitles(write(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.srt: No such file"):
        read_subtitles(tmp_path / "nothing.srt")


# Q12 of tests/reliability.md
def test_a_huge_file_is_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "huge.srt"
    with path.open("wb") as stream:
        stream.truncate(17 * 2**20)

    with pytest.raises(DataError, match="larger than 16 MiB"):
        read_subtitles(path)


def test_q12_lines_that_overlap_or_have_negative_times_are_kept_at_their_times(tmp_path: Path) -> None:
    times = ["-00:00:05,500 --> -00:00:01,000", "-00:01 --> 00:02", "00:01 --> 00:09", "00:05 --> 00:04"]
    path = write(tmp_path, "\n\n".join(f"{time}\nline {number}" for number, time in enumerate(times)))

    track = read_subtitles(path)

    assert [(line.start, line.end) for line in track.segments] == [(-5.5, -1), (-1, 2), (1, 9), (5, 5)]
    assert track.skipped == 0 and [line.text for line in in_clip(track.segments)] == ["line 1", "line 2", "line 3"]


# Clips: the track is that of the source, the video is a part of it.


def test_clip_time_is_source_time_less_the_offset() -> None:
    track = [Segment(230.0, 234.0, "a"), Segment(240.0, 241.0, "b")]

    assert in_clip(track, offset=233.0, duration=15.0) == (Segment(-3.0, 1.0, "a"), Segment(7.0, 8.0, "b"))


# Q12 of tests/reliability.md
def test_lines_outside_the_clip_are_left_out() -> None:
    track = [Segment(1.0, 2.0, "before"), Segment(10.0, 11.0, "in"), Segment(90.0, 91.0, "after")]

    assert [line.text for line in in_clip(track, offset=9.0, duration=60.0)] == ["in"]
    assert [line.text for line in in_clip(track, offset=9.0)] == ["in", "after"]
    assert in_clip(track) == tuple(track)


def test_clip_time_keeps_what_lies_outside_because_a_short_line_there_may_reach_a_frame() -> None:
    track = [Segment(9.6, 9.8, "just before")]

    assert in_clip(track, offset=10.0, duration=15.0) == ()
    assert interleave([0.1], clip_time(track, offset=10.0, duration=15.0)) == ("just before", "")


def test_an_open_end_becomes_the_duration_of_the_clip(tmp_path: Path) -> None:
    track = read_subtitles(write(tmp_path, json.dumps([{"timestamp": [12.0, None], "text": "a"}]))).segments

    assert in_clip(track, offset=2.0, duration=15.0) == (Segment(10.0, 15.0, "a"),)
    assert in_clip(track, offset=2.0) == (Segment(10.0, 10.0, "a"),)


# Words, by the rule of Video-MME-v2.


def words(*entries: tuple[float, float, str]) -> list[Segment]:
    return [Segment(*entry) for entry in entries]


@pytest.mark.parametrize(
    ("gap", "first", "lines"),
    [
        (0.5, "so", 1),
        (0.51, "so", 2),
        (0.09, "so.", 1),
        (0.11, "so.", 2),
        (0.11, "so!", 2),
        (0.11, "so?", 2),
        (0.11, "so,", 1),
    ],
)
def test_words_break_at_silence_and_sooner_after_a_sentence(gap: float, first: str, lines: int) -> None:
    assert len(sentences(words((0.0, 1.0, first), (1.0 + gap, 2.0, "next")))) == lines


def test_joined_words_span_from_the_first_to_the_last() -> None:
    spoken = words((0.0, 0.4, "We"), (0.4, 0.9, "left."), (1.1, 1.5, "Rome"), (1.5, 2.0, "was"), (9.0, 9.5, "next"))

    assert sentences(spoken) == (
        Segment(0.0, 0.9, "We left."),
        Segment(1.1, 2.0, "Rome was"),
        Segment(9.0, 9.5, "next"),
    )
    assert sentences([]) == ()


# Between frames.


def test_longvideobench_puts_a_line_after_the_frames_up_to_its_middle() -> None:
    lines = words((0.0, 4.0, "a"), (4.0, 12.0, "b"), (18.0, 22.0, "c"))

    # Middles 2, 8 and 20; frames at 0, 5, 10 and 20, the last one shown while c is spoken.
    assert interleave([0.0, 5.0, 10.0, 20.0], lines) == ("", "", "b", "", "c")


def test_longvideobench_leaves_out_a_line_that_no_frame_shows_and_widens_short_ones() -> None:
    assert interleave([10.0], words((1.0, 2.5, "unseen"))) == ("", "")
    assert interleave([10.0], words((10.1, 10.2, "short"))) == ("", "short")
    assert interleave([10.0], words((10.6, 10.7, "too far"))) == ("", "")
    assert interleave([10.0], words((10.0, 12.0, "starts with the frame"))) == ("", "")  # strictly between


def test_longvideobench_may_put_a_line_before_the_first_frame() -> None:
    assert interleave([5.0, 9.0], words((1.0, 6.0, "a"))) == ("a", "", "")


def test_lines_at_one_place_are_joined_by_line_breaks() -> None:
    assert interleave([5.0, 9.0], words((1.0, 6.0, "a"), (2.0, 6.0, "b"))) == ("a\nb", "", "")


def official_order(times: list[float], lines: list[Segment]) -> list[str]:
    """LongVideoBench's rule, written down as its text has it: a list of frames and texts."""
    out: list[str] = []
    frames = list(enumerate(times))
    for line in lines:
        middle = (line.start + line.end) / 2
        while frames and frames[0][1] <= middle:
            out.append(f"frame {frames.pop(0)[0]}")
        start, end = line.start, line.end
        if end - start < 1:
            start, end = middle - 0.5, middle + 0.5
        if [time for time in times if start < time < end]:
            out.append(line.text)
    return out + [f"frame {number}" for number, _ in frames]


moments = st.floats(0, 60, allow_nan=False).map(lambda x: round(x, 2))


@given(
    times=st.lists(moments, unique=True, max_size=12).map(sorted),
    spans=st.lists(st.tuples(moments, st.floats(0, 5)), max_size=12).map(sorted),
)
def test_longvideobench_agrees_with_the_rule_written_as_a_list(
    times: list[float], spans: list[tuple[float, float]]
) -> None:
    lines = [Segment(start, start + length, f"line {number}") for number, (start, length) in enumerate(spans)]

    texts = interleave(times, lines)

    assert len(texts) == len(times) + 1
    woven = [part for i, text in enumerate(texts) for part in (*text.splitlines(), f"frame {i}")][:-1]
    assert woven == official_order(times, lines)


def test_video_mme_v2_repeats_a_line_after_every_frame_it_overlaps() -> None:
    lines = words((1.0, 12.0, "long"), (12.0, 13.0, "late"), (40.0, 41.0, "after the end"))

    texts = interleave([0.0, 5.0, 10.0], lines, rule="video-mme-v2", duration=30.0)

    long, late = "[Subtitle 1.00s - 12.00s]: long", "[Subtitle 12.00s - 13.00s]: late"
    assert texts == ("", long, long, f"{long}\n{late}")


def test_video_mme_v2_counts_an_end_at_the_frame_but_not_a_start_at_the_next() -> None:
    texts = interleave([5.0, 10.0], words((4.0, 5.0, "a"), (10.0, 11.0, "b")), rule="video-mme-v2", duration=20.0)

    assert texts == ("", "[Subtitle 4.00s - 5.00s]: a", "[Subtitle 10.00s - 11.00s]: b")


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown rule 'paper'"):
        interleave([1.0], [], rule="paper")  # type: ignore[arg-type]


def test_no_frames_leave_one_empty_place() -> None:
    for rule in ("longvideobench", "video-mme-v2"):
        assert interleave([], words((0.0, 1.0, "a")), rule=rule) == ("",)


def test_times_that_are_no_numbers_and_halves_of_characters_are_no_lines(tmp_path: Path) -> None:
    rows = '[{"start": NaN, "end": 2, "line": "x"}, {"start": 1e999, "end": 2, "line": "x"}, {"start": 1, "end": 2, "line": "a\\ud800"}]'  # noqa: E501

    subtitles = read_subtitles(write(tmp_path, rows))

    assert (subtitles.text, subtitles.skipped) == ("a?", 2)


# Q12 of tests/reliability.md
def test_less_than_signs_are_text_and_only_markup_is_removed(tmp_path: Path) -> None:
    texts = ["a < b > c", "x <y> z", "1<2 and 3>2", "<I>Hi</I> <font color=red>you</font>", "<00:00:01.500><c>so</c>"]
    path = write(tmp_path, json.dumps([{"start": i, "end": i + 1, "line": text} for i, text in enumerate(texts)]))

    found = [segment.text for segment in read_subtitles(path).segments]

    assert found == ["a < b > c", "x <y> z", "1<2 and 3>2", "Hi you", "so"]


def test_a_line_separator_inside_a_word_does_not_end_its_entry(tmp_path: Path) -> None:
    word = json.dumps({"text": "one\u2028two", "start_time": 0.0, "end_time": 1.0}, ensure_ascii=False)

    assert read_subtitles(write(tmp_path, word + "\n" + word)).text == "one two one two"
