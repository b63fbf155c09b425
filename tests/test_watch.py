"""`gridprobe watch`: contact sheets within what an agent sees, true times, shots, subtitles, and what is printed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gridprobe.errors import GridProbeError, UsageError, VideoError
from gridprobe.video import write_video
from gridprobe_watch.command import watch
from gridprobe_watch.sheets import LABEL, LONGEST_SIDE, MOST_TOKENS, SheetLayout, frame_at, look, tokens_of
from gridprobe_watch.subtitles import subtitle_files, timed_lines
from videos import numbered_video, read_number

SRT = "1\n00:00:00,200 --> 00:00:01,000\n<b>First</b>\nwords\n\n2\n00:00:03,500 --> 00:00:03,900\nlater\u202e words\n"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight seconds; every frame shows its own number."""
    path = numbered_video(tmp_path_factory.mktemp("watch") / "talk.mp4", 200)
    path.with_suffix(".en.srt").write_text(SRT)
    return path


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty seconds in three shots, with noise that is no cut."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("cuts") / "cuts.mp4"
    levels = [60] * 28 + [200] * 24 + [100] * 28
    frames = [np.clip(level + rng.normal(0, 8, (64, 64, 3)), 0, 255).astype(np.uint8) for level in levels]
    write_video(path, frames, fps=4, size=(64, 64), count=len(frames))
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(watch, [*map(str, arguments)], catch_exceptions=False)


# Layouts.


@given(st.integers(1, 144), st.floats(0.05, 20), st.integers(16, 512))
def test_a_sheet_is_seen_whole_and_holds_all_cells(count: int, aspect: float, widest: int) -> None:
    layout = SheetLayout.of(count, aspect, widest=widest)

    assert layout.columns * layout.rows >= count and max(layout.cell) <= widest
    assert max(layout.size) <= LONGEST_SIDE and tokens_of(*layout.size) <= MOST_TOKENS


@pytest.mark.parametrize("aspect", [9 / 16, 1.0, 16 / 9])
def test_times_are_legible_on_the_fullest_sheet(aspect: float) -> None:
    layout = SheetLayout.of(144, aspect)

    assert min(layout.cell[0], 60) >= 56, "as wide as 1:02:05 is"
    assert layout.corner(layout.columns)[1] - layout.corner(0)[1] - layout.cell[1] >= LABEL


# Sheets.


def test_frames_are_those_of_their_times_and_as_large_as_their_cells(clip: Path) -> None:
    seen = look(clip, frames=20)

    assert [read_number(frame) for frame in look(clip, frames=20, widest=256).frames.pixels] == [
        round(time * 25) for time in seen.frames.times
    ]
    assert max(seen.frames.pixels.shape[1:3]) == max(seen.layout.cell)


@pytest.mark.parametrize(("frames", "sheets"), [(None, [16]), (72, [72]), (80, [40, 40]), (150, [50, 50, 50])])
def test_frames_are_shared_evenly_among_sheets(clip: Path, frames: int | None, sheets: list[int]) -> None:
    assert [len(each.frames) for each in look(clip, frames=frames).sheets] == sheets


def test_the_picture_is_what_was_said_beforehand(clip: Path) -> None:
    (sheet,) = look(clip, window=(2.0, 6.0)).sheets
    picture = sheet.draw()

    assert picture.size == sheet.layout.size and sheet.to_dict()["tokens"] == tokens_of(*picture.size)
    x, y = sheet.layout.corner(5)
    width, height = sheet.layout.cell
    shown = np.asarray(picture.crop((x, y, x + width, y + height)))
    assert np.abs(shown[: sheet.frames.height].astype(int) - sheet.frames.pixels[5]).max() == 0
    label = np.asarray(picture.crop((x, y + height, x + width, y + height + LABEL)))
    assert label.max() > 200, "its time is written below"


def test_another_time_is_another_label(clip: Path) -> None:
    def labels(start: float) -> np.ndarray:
        (sheet,) = look(clip, frames=4, window=(start, start + 1)).sheets
        top = sheet.layout.corner(0)[1] + sheet.layout.cell[1]
        return np.asarray(sheet.draw())[top : top + LABEL]

    assert not np.array_equal(labels(1.0), labels(5.0)) and np.array_equal(labels(1.0), labels(1.0))


def test_shots_begin_at_cuts_and_nowhere_else(cuts: Path) -> None:
    seen = look(cuts)

    assert len(seen.frames) == 20
    assert [round(time) for time in seen.shots] == [8, 14] or [int(time) for time in seen.shots] == [7, 13]
    assert seen.closer[0] in range(6, 9), "the larger change"


def test_a_video_without_cuts_has_no_new_shot(tmp_path: Path) -> None:
    frames = [np.full((64, 64, 3), 90, np.uint8)] * 40
    write_video(tmp_path / "still.mp4", frames, fps=4, size=(64, 64), count=40)

    assert look(tmp_path / "still.mp4").shots == ()


def test_a_single_frame_is_a_sheet_too(tmp_path: Path) -> None:
    write_video(tmp_path / "one.mp4", [np.zeros((64, 64, 3), np.uint8)], fps=4, size=(64, 64), count=1)

    seen = look(tmp_path / "one.mp4")

    assert len(seen.frames) == 1 and seen.sheets[0].draw().size == seen.sheets[0].layout.size


@pytest.mark.parametrize("size", [(512, 16), (16, 512)])
def test_an_extreme_shape_is_shown_whole(tmp_path: Path, size: tuple[int, int]) -> None:
    frames = [np.full((size[1], size[0], 3), 20 * number, np.uint8) for number in range(8)]
    write_video(tmp_path / "flat.mp4", frames, fps=4, size=size, count=8)

    seen = look(tmp_path / "flat.mp4")

    assert max(seen.frames.pixels.shape[1:3]) == max(seen.layout.cell) and seen.sheets[0].draw()


@pytest.mark.parametrize(("time", "number"), [(2.0, 50), (-5.0, 0), (100.0, 199)])
def test_one_frame_at_a_time(clip: Path, time: float, number: int) -> None:
    pool = frame_at(clip, time, side=256)

    assert read_number(pool.pixels[0]) == number and pool.times == (number / 25,)


# Subtitles.


def test_subtitles_next_to_a_video_are_found_by_its_name(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.srt", "a.en.vtt", "a.b.en.srt", "ab.srt", "a.txt", "a[1].mp4", "a[1].srt"):
        (tmp_path / name).write_text("")

    assert [each.name for each in subtitle_files(tmp_path / "a.mp4")] == ["a.srt", "a.en.vtt"]
    assert [each.name for each in subtitle_files(tmp_path / "a[1].mp4")] == ["a[1].srt"]
    assert subtitle_files(tmp_path) == [] and timed_lines([]) == []


# The command.


def test_people_get_sheets_a_page_and_the_next_command(clip: Path, tmp_path: Path) -> None:
    result = run(clip, "--out", tmp_path / "out")

    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "0h00m00s-0h00m08s.jpg",
        "index.html",
        "subtitles.txt",
    ]
    assert (
        tmp_path / "out" / "subtitles.txt"
    ).read_text() == "[0:00-0:01] First words\n[0:03-0:03] later\\u202e words\n"
    assert "0:08, 256×64, h264" in result.stdout and "16 frames, one every 0.5 s, on 1 contact sheet" in result.stdout
    assert f"gridprobe watch {clip} --from " in result.stdout
    page = (tmp_path / "out" / "index.html").read_text()
    assert "data:image/jpeg;base64," in page and "First words" in page and "http" not in page.replace("http-equiv", "")


def test_a_closer_look_is_added_to_the_folder(clip: Path, tmp_path: Path) -> None:
    for more in ((), ("--from", "0:02", "--to", "4")):
        run(clip, "--out", tmp_path, *more)

    assert {each.name for each in tmp_path.glob("*.jpg")} == {"0h00m00s-0h00m08s.jpg", "0h00m02s-0h00m04s.jpg"}


def test_programs_get_one_json_object(clip: Path, tmp_path: Path) -> None:
    found = json.loads(run(clip, "--out", tmp_path, "--json", "--from", "1", "--to", "5").stdout)

    assert found["schema"] == "gridprobe.watch/1" and found["span"] == [1.0, 5.0]
    (sheet,) = found["sheets"]
    with Image.open(sheet["file"], formats=("JPEG",)) as picture:
        assert picture.size == (sheet["width"], sheet["height"])
    assert found["tokens"] == sheet["tokens"] <= MOST_TOKENS and len(sheet["times"]) == found["frames"] == 16
    assert found["subtitles"]["lines"] == [[3.5, 3.9, "later\\u202e words"]]
    assert found["next"].startswith(f"gridprobe watch {clip} --from ")


def test_subtitles_that_cannot_be_read_are_named_and_the_rest_is_there(clip: Path, tmp_path: Path) -> None:
    video = tmp_path / "b.mp4"
    video.write_bytes(clip.read_bytes())
    video.with_suffix(".srt").write_text("no times here")

    result = run(video, "--out", tmp_path / "out")

    assert result.exit_code == 0 and "b.srt holds no subtitle line" in result.stderr
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["--from", "20"], UsageError, "is outside of the video, which is 8.0 s long"),
        (["--from", "5", "--to", "3"], UsageError, "is empty"),
        (["--frames", "0"], UsageError, "frames must be a whole number from 1 to 4096, got 0"),
        (["--frames", "5000"], UsageError, "frames must be"),
    ],
)
def test_mistakes_are_one_sentence(
    clip: Path, tmp_path: Path, arguments: list[str], kind: type[GridProbeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run(clip, "--out", tmp_path, *arguments)


def test_a_folder_that_cannot_be_made_and_a_video_that_is_none(clip: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a video")
    with pytest.raises(UsageError, match="name another one with --out"):
        run(clip, "--out", tmp_path / "file" / "out")
    with pytest.raises(VideoError):
        run(tmp_path / "file", "--out", tmp_path / "out")


def test_no_model_and_no_torch_are_loaded(clip: Path, tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys; from gridprobe_watch.command import watch; watch.main(sys.argv[1:], standalone_mode=False); "
        "print(*sorted({'torch', 'transformers', 'av', 'httpx', 'fastapi'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(clip), "--out", str(tmp_path), "-q"], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
    assert done.stdout.strip().endswith("0h00m00s-0h00m08s.jpg")
