"""A window of time: which moments it means, what is refused, and that all of an answer keeps to it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gridprobe.ask import Session, ask
from gridprobe.cli.ask import ask as ask_command
from gridprobe.errors import UsageError
from gridprobe.models import LazyModel
from gridprobe.models.base import Request
from gridprobe.models.mock import MockModel
from gridprobe.options import Options
from gridprobe.video import FramePool, SampleSpec, Video, VideoLimits, Window
from gridprobe.video.cache import plan_key
from gridprobe.video.files import check_file
from gridprobe.video.subtitles import Segment, Subtitles
from gridprobe_eval.cli.plan import plan as plan_command
from gridprobe_serve.schemas import SettingsBody
from videos import numbered_video, read_number

FPS, SECONDS = 25, 12


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("window") / "clip.mp4", SECONDS * FPS)


@pytest.mark.parametrize(
    ("window", "span"),
    [
        ((2.0, 6.0), (2.0, 6.0)),
        ((2.0, None), (2.0, 12.0)),
        ((-3.0, None), (9.0, 12.0)),
        ((-3.0, -1.0), (9.0, 11.0)),
        ((0.0, -2.0), (0.0, 10.0)),
        ((11.0, 90.0), (11.0, 12.0)),
        ((-90.0, 5.0), (0.0, 5.0)),
    ],
)
def test_window_by_hand(window: Window, span: tuple[float, float]) -> None:
    spec = SampleSpec(4, window=window)
    start, end = span

    assert spec.span(12.0) == span
    assert spec.moments(12.0) == pytest.approx([start + (end - start) * (2 * i + 1) / 8 for i in range(4)])
    assert spec.cell(12.0) == pytest.approx((end - start) / 4)


def test_segments_are_cut_to_the_window() -> None:
    spec = SampleSpec(4, segments=((1.0, 4.0), (8.0, 9.0)), window=(3.0, 8.5))

    assert spec.moments(12.0) == pytest.approx([3.1875, 3.5625, 3.9375, 8.3125])


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((5.0, 5.0), "is empty; its end must be later"),
        ((5.0, 2.0), "is empty"),
        ((-2.0, -5.0), "is empty"),
        ((3.0, 0.0), "is empty"),
        ((float("nan"), None), "a start and an end in seconds"),
        ((0.0, float("inf")), "a start and an end in seconds"),
    ],
)
def test_an_empty_window_is_refused_before_a_video_is_opened(window: Window, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Options.from_preset("default", window=window)


@pytest.mark.parametrize("value", ["1:20", (80,), (80, "300"), (True, None), {"start": 80}, (None, 5)])
def test_what_is_no_window_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="window must be a start and an end in seconds"):
        Options.from_preset("default", window=value)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_published_presets_know_no_window(preset: str) -> None:
    with pytest.raises(UsageError, match="use preset=default"):
        Options.from_preset(preset, window=(1.0, 2.0))


@pytest.mark.parametrize("window", [(12.5, None), (20.0, 30.0), (0.0, -13.0), (9.0, -6.0)])
@pytest.mark.parametrize("decode_in", ["child", "process"])
def test_a_window_outside_the_video_is_refused_in_one_sentence(video: Path, window: Window, decode_in: str) -> None:
    with pytest.raises(UsageError, match=r"is outside of the video, which is 12\.0 s long; choose one in it"):
        Video(video, num_frames=4, window=window, decode_in=decode_in)  # type: ignore[arg-type]


def test_all_frames_lie_in_the_window_at_their_true_times(video: Path) -> None:
    pool = Video(video, num_frames=16, window=(4.0, 8.0)).pool()

    assert [read_number(frame) for frame in pool.pixels] == [round(time * FPS) for time in pool.times]
    assert len(pool) == 16 and min(pool.times) >= 4.0 and max(pool.times) < 8.0


def test_a_window_beyond_the_video_says_so_and_a_usual_one_does_not(video: Path) -> None:
    beyond = Video(video, num_frames=4, window=(10.0, 40.0)).pool()

    assert beyond.warnings == ("the window reaches beyond the video, so 10.0 s to 12.0 s were sampled",)
    assert Video(video, num_frames=4, window=(10.0, 12.0)).pool().warnings == ()


def test_another_window_is_another_plan_in_the_cache(video: Path) -> None:
    windows: list[Window | None] = [None, (0.0, 4.0), (0.0, None), (-4.0, None)]

    keys = {plan_key(check_file(video), SampleSpec(4, window=window), "PyAV") for window in windows}

    assert len(keys) == len(windows)


def test_a_folder_of_pictures_has_windows_too(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(10):
        Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(tmp_path / f"{number}.png")

    assert Video(tmp_path, num_frames=4, window=(2.0, 6.0)).pool().times == (2.0, 3.0, 4.0, 5.0)


# Answers.


SURE, EVEN = {"A": 0.02, "B": 0.98}, {"A": 1.0, "B": 1.0}


def numbers(request: Request) -> set[int]:
    return {read_number(frame) for group in request.groups for frame in group.frames.pixels}


def model() -> MockModel:
    return MockModel(lambda request: SURE)


@pytest.fixture
def mocked(monkeypatch: pytest.MonkeyPatch) -> MockModel:
    """What the command line loads under any name."""
    made = model()
    monkeypatch.setattr(LazyModel, "load", lambda self, **options: made)
    return made


def test_an_answer_keeps_to_its_window_and_its_record_says_so(video: Path) -> None:
    answer = ask(video, "Which?", options=["a", "b"], model=model(), k=4, window=[3, 9])

    assert min(answer.pool.times) >= 3.0 and max(answer.pool.times) < 9.0
    assert answer.to_dict()["settings"]["sampling"]["window"] == (3, 9)


def test_a_record_without_a_window_is_as_before(video: Path) -> None:
    assert "window" not in ask(video, "Which?", options=["a", "b"], model=model(), k=2).settings["sampling"]


def test_refine_stays_inside_the_window(video: Path) -> None:
    settings = {"k": 4, "refine": True, "precision": "exact", "exit_confidence": 0.8, "window": (6.0, 10.0)}
    unsure = MockModel(lambda request: SURE if len(numbers(request) & set(range(150, 175))) > 8 else EVEN)
    answer = ask(video, "Which?", options=["a", "b"], model=unsure, **settings)  # type: ignore[arg-type]

    assert answer.reached.by == "refined"
    assert all(6.0 <= start < end <= 10.0 for start, end in answer.reached.stretches)
    assert all(6.0 <= time < 10.0 for time in answer.frames.times)


def test_frames_of_the_caller_and_open_videos_are_not_cut(video: Path) -> None:
    frames = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(UsageError, match="of your own frames give only those in it"):
        ask(FramePool.from_arrays(frames), "Which?", model=model(), window=(1.0, 2.0))
    with pytest.raises(UsageError, match="was sampled with window=None"):
        Session(Video(video, num_frames=16, precision="auto"), model=model(), k=4, window=(1.0, 2.0))


# The command line.


def test_from_and_to_are_read_as_people_write_times(video: Path, mocked: MockModel) -> None:
    words = [str(video), "Which?", "-o", "a", "-o", "b", "-m", "x/y", "--json", "--set", "k=2"]

    result = CliRunner().invoke(ask_command, [*words, "--from", "0:04", "--to", "-2.5"], catch_exceptions=False)

    assert json.loads(result.stdout)["settings"]["sampling"]["window"] == [4.0, -2.5]


@pytest.mark.parametrize("time", ["", "soon", "1:2:3:4", "--5", "nan", "1e3", "1:-5", "٣"])
def test_what_is_no_time_is_refused(video: Path, time: str) -> None:
    with pytest.raises(UsageError, match="a time is seconds or m:ss"):
        CliRunner().invoke(ask_command, [str(video), "Which?", "--from", time], catch_exceptions=False)


def test_plan_counts_the_window_only(video: Path) -> None:
    result = CliRunner().invoke(
        plan_command, [str(video), "--json", "--k", "2", "--from", "4", "--to", "8"], catch_exceptions=False
    )

    found = json.loads(result.stdout)
    assert found["cell_seconds"] == 1.0 and found["precisions"]["exact"]["times"] == [4.48, 5.48, 6.48, 7.48]


def test_subtitles_outside_the_window_are_not_shown(video: Path, tmp_path: Path, mocked: MockModel) -> None:
    said = Subtitles(
        (Segment(0, 2, "before"), Segment(3, 5, "into it"), Segment(5, 6, "inside"), Segment(9, 10, "after"))
    )
    lines = [
        f"{n}\n00:00:{s.start:02.0f},000 --> 00:00:{s.end:02.0f},000\n{s.text}\n" for n, s in enumerate(said.segments)
    ]
    file = tmp_path / "said.srt"
    file.write_text("\n".join(lines))
    words = [str(video), "Which?", "-o", "a", "-o", "b", "-m", "x/y", "--json", "--subtitles", str(file), "--to", "-4"]

    result = CliRunner().invoke(ask_command, [*words, "--from", "4"], catch_exceptions=False)

    assert said.within(4, 8).text == "into it inside"
    assert result.exit_code == 0, result.output
    shown = [" ".join(request.between).split() for request in mocked.requests]
    assert shown and all(words == ["into", "it", "inside"] for words in shown)


# HTTP and agents.


def test_a_request_may_have_a_window() -> None:
    body = SettingsBody.model_validate({"window": [80, None]})

    assert Options().changed(**body.changes()[0]).window == (80, None)


@pytest.mark.parametrize("window", [[80], [80, 300, 400], "80-300", [80, "300"], [float("inf"), None]])
def test_a_request_with_another_window_is_refused(window: object) -> None:
    with pytest.raises(ValueError, match="window"):
        SettingsBody.model_validate({"window": window})


def test_limits_of_a_video_stay_with_a_window(video: Path) -> None:
    with pytest.raises(Exception, match="longer than"):
        Video(video, num_frames=4, window=(0.0, 2.0), limits=VideoLimits(max_duration=5))
