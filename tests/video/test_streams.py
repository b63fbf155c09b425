"""V21: files with several streams. The default one is read, `stream` chooses another; they share no cache entry."""

import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from av.video.stream import VideoStream
from click.testing import CliRunner

import gridprobe as gp
from gridprobe.cli import cli
from gridprobe.errors import UsageError, VideoError
from gridprobe.options import Options
from gridprobe.report.terminal import save_clip
from gridprobe.video import FrameCache, FramePool, SampleSpec, Video, VideoLimits, preview, probe, sample
from gridprobe.video.video import cut
from videos import bars, numbered_video, read_number

SIZES = {0: (512, 64), 2: (256, 64)}
"""The video streams by number; stream 1 is sound and stream 3 cover art."""
LISTED = "choose stream 0 (h264, 512×64) or stream 2 (h264, 256×64)"
QUESTION = gp.Question("Which?", ["a", "b"])
ASKED: dict[str, Any] = {
    "model": gp.MockModel(lambda request: {"A": 0.6, "B": 0.4}),
    "k": 2,
    "limits": VideoLimits(cache=0),
}


def several(path: Path, default: int = 0, frames: int = 10) -> Path:
    """Two videos, sound between them and cover art at the end; frame n shows 100 × its stream's number + n."""
    with av.open(str(path), "w") as output:
        streams: dict[int, VideoStream] = {}
        for number in range(3):
            stream = output.add_stream("aac", rate=44100) if number == 1 else output.add_stream("libx264", rate=25)
            if isinstance(stream, VideoStream):
                stream.width, stream.height, stream.pix_fmt = *SIZES[number], "yuv420p"
                stream.disposition = Disposition.default if number == default else Disposition(0)
                streams[number] = stream
            else:
                sound = stream
        cover = output.add_stream("mjpeg", rate=25)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        for number in range(frames):
            for which, stream in streams.items():
                frame = av.VideoFrame.from_ndarray(bars(100 * which + number, SIZES[which]), "rgb24")
                frame.pts = number
                output.mux(stream.encode(frame))
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 4410), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 44100
        picture = av.VideoFrame.from_ndarray(bars(0, (64, 64)), "rgb24")
        for stream, last in ((sound, silence), (cover, picture)):
            output.mux(stream.encode(last))
        for stream in (*streams.values(), sound, cover):
            output.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def video(made: Path) -> Path:
    return several(made / "several.mp4")


def numbers(pool: FramePool) -> list[int]:
    return [read_number(frame) for frame in pool.pixels]


def shown(stream: int) -> list[int]:
    return [100 * stream + number for number in (1, 3, 5, 7, 9)]


@pytest.mark.parametrize("default", [0, 2])
def test_v21_of_several_streams_the_default_is_shown_and_described(tmp_path: Path, default: int) -> None:
    pool = sample(several(tmp_path / "several.mkv", default), num_frames=5)
    assert numbers(pool) == shown(default)
    assert pool.info is not None and (pool.info.width, pool.info.height) == SIZES[default]
    assert pool.info.to_dict()["stream"] == pool.info.stream == default


@pytest.mark.parametrize("decode_in", ["process", "child"])
@pytest.mark.parametrize("stream", SIZES)
def test_v21_a_stream_can_be_chosen(video: Path, stream: int, decode_in: Any) -> None:
    pool = sample(video, num_frames=5, stream=stream, decode_in=decode_in)
    assert numbers(pool) == shown(stream)
    assert pool.info is not None and pool.info.stream == stream and (pool.info.width, pool.info.height) == SIZES[stream]
    assert (
        probe(video, stream=stream).width == preview(video, num_frames=5, stream=stream).info.width == SIZES[stream][0]
    )
    within = Video(video, num_frames=5, stream=stream).within(((0.2, 0.4),)).pool()
    assert numbers(within) == [100 * stream + number for number in range(5, 10)]


@pytest.mark.parametrize("decode_in", ["process", "child"])
@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (1, "stream 1 is audio, not video"),
        (3, "stream 3 is a still picture, not video"),
        (4, "the file has no stream 4"),
        (10**30, f"the file has no stream {10**30}"),
    ],
)
def test_v21_a_stream_that_is_no_video_is_one_sentence_with_those_that_are(
    video: Path, stream: int, reason: str, decode_in: Any
) -> None:
    with pytest.raises(VideoError) as caught:
        sample(video, num_frames=5, stream=stream, decode_in=decode_in)
    assert str(caught.value) == f"{video}: {reason}; {LISTED}"


def test_v21_an_encrypted_stream_is_named(video: Path, tmp_path: Path) -> None:
    data = video.read_bytes()
    assert data.count(b"avc1\0\0") == 2
    path = tmp_path / "one.mp4"
    path.write_bytes(data.replace(b"avc1\0\0", b"encv\0\0", 1))
    with pytest.raises(VideoError, match=r"stream 0 is encrypted, or .*; choose stream 2 \(h264, 256×64\)$"):
        sample(path, num_frames=5, stream=0)


@pytest.mark.parametrize("stream", [-1, True, 1.0, "1"])
def test_v21_what_is_no_number_is_refused(video: Path, stream: Any) -> None:
    for attempt in (
        lambda: sample(video, num_frames=5, stream=stream),
        lambda: Options(stream=stream),
        lambda: Options.from_preset("paper", stream=stream),
    ):
        with pytest.raises(UsageError, match=r"^stream must be .* 0.*, got "):
            attempt()


def test_v21_a_folder_of_pictures_has_no_streams(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    with pytest.raises(VideoError, match="a folder of pictures has no stream 0; leave stream out"):
        sample(tmp_path, num_frames=1, stream=0)


def test_v21_streams_share_no_cache_entry(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same size for all, so that only the stream tells frames apart; the second round is read from the disk."""
    from gridprobe.video import FrameSize

    def read(stream: int | None) -> FramePool:
        cache = FrameCache(tmp_path, 10**8)
        return Video(video, num_frames=5, stream=stream, cache=cache).pool(FrameSize(square=128))

    first = {stream: read(stream) for stream in (None, 0, 2)}
    monkeypatch.setattr("gridprobe.video.decode.read_plan", lambda *_, **__: pytest.fail("decoded again"))
    for stream, pool in first.items():
        again = read(stream)
        assert numbers(again) == numbers(pool) == shown(stream or 0)
        assert again.keys == pool.keys and again.info == pool.info
    assert set(first[0].keys).isdisjoint(first[2].keys) and set(first[None].keys).isdisjoint(first[2].keys)


@pytest.mark.parametrize("stream", [None, 2])
def test_v21_the_record_names_the_stream(video: Path, stream: int | None) -> None:
    answer = gp.ask(video, QUESTION, **ASKED, stream=stream)
    record = answer.to_dict()
    assert record["video"]["stream"] == (stream or 0)
    assert record["settings"]["sampling"].get("stream") == stream
    assert numbers(answer.pool) == [100 * (stream or 0) + number for number in (1, 3, 6, 8)]


def test_v21_the_command_line_takes_a_stream(video: Path) -> None:
    def plan(stream: int) -> Any:
        return CliRunner(env={"GRIDPROBE_MODEL": ""}).invoke(
            cli, ["plan", str(video), "--json", "--set", f"stream={stream}"]
        )

    found = json.loads(plan(2).stdout)
    assert (found["video"]["stream"], found["video"]["width"]) == (2, SIZES[2][0])
    refused = plan(1)
    assert refused.exit_code == 1 and LISTED in " ".join(refused.stderr.split())
    asked = CliRunner(env={"GRIDPROBE_MODEL": ""}).invoke(
        cli,
        [
            "ask",
            str(video),
            "Which?",
            "-o",
            "a",
            "-o",
            "b",
            "--model",
            "embedded:nano",
            "--set",
            "stream=1",
            "--set",
            "limits.cache=0",
        ],
    )
    assert asked.exit_code == 1 and LISTED in " ".join(asked.stderr.split())


def test_v21_open_footage_of_another_stream_is_refused(video: Path) -> None:
    opened = Video(video, num_frames=4, precision="auto", stream=2)
    with pytest.raises(UsageError, match="the open video was sampled with stream=2, but the settings say None"):
        gp.ask(opened, QUESTION, **ASKED)


def test_v21_a_clip_is_cut_from_the_stream_of_the_answer(video: Path, tmp_path: Path) -> None:
    made = cut(video, [(0.0, 0.2)], suffix=".mp4", stream=2)
    (tmp_path / "cut.mp4").write_bytes(made.content)
    assert probe(tmp_path / "cut.mp4").width == SIZES[2][0]
    answer = gp.ask(video, QUESTION, **ASKED, stream=2, effort="full")
    assert save_clip(answer, video, tmp_path / "clip.mp4", limits=VideoLimits()) is not None
    assert probe(tmp_path / "clip.mp4").width == SIZES[2][0]


def test_v21_an_old_plan_in_the_cache_does_not_stand_for_a_chosen_stream(video: Path) -> None:
    from gridprobe.video.cache import plan_key
    from gridprobe.video.files import check_file

    keys = {plan_key(check_file(video), SampleSpec(5, stream=stream), "PyAV") for stream in (None, 0, 2)}
    assert len(keys) == 3


def test_v21_setup_and_settings_agree() -> None:
    setup = Options(stream=2).resolve(model=ASKED["model"])
    assert setup.sampling == Options(stream=2).sample and setup.sampling.stream == 2


def test_the_only_stream_can_be_named(tmp_path: Path) -> None:
    path = numbered_video(tmp_path / "one.mp4", 10)
    assert np.array_equal(sample(path, num_frames=5, stream=0).pixels, sample(path, num_frames=5).pixels)
