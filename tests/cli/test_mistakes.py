"""Mistakes that users make: each is one sentence with the way out, before any work is done."""

from pathlib import Path

import av
import numpy as np
import pytest
from click.testing import CliRunner, Result

import gridprobe as gp
from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.models.local import checkpoint
from gridprobe.plan import Plan
from gridprobe.report.html import check_writable
from gridprobe_eval.benchmarks import load_benchmark
from videos import numbered_video

OPTIONS = ("-o", "a", "-o", "b")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes") / "clip.mp4"
    numbered_video(path, 60)
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": ""}).invoke(cli, [str(each) for each in arguments])


@pytest.mark.parametrize("verb", ["ask", "compare"])
def test_equal_options_are_refused(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "open", None)

    result = run(verb, "v.mp4", "Which?", "-o", "red", "-o", "blue", "-o", " Red ", "--model", "./x")

    assert result.exit_code == 2 and "options A and C are the same text, 'red'; remove one" in result.stderr


def test_equal_options_in_a_file_are_refused_with_the_line(clip: Path, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "Which?", "options": ["x", "x"]}\n')

    result = run("ask", clip, "--questions", tmp_path / "q.jsonl", "--model", "./x")

    assert result.exit_code == 1 and "line 1: options A and B are the same text" in result.stderr


def test_equal_options_are_refused_from_python(tiny_model: gp.MockModel) -> None:
    frames = np.zeros((4, 64, 64, 3), np.uint8)

    with pytest.raises(UsageError, match="options A and B are the same text, 'x'; remove one"):
        gp.ask(frames, "Which?", options=["x", "X "], model=tiny_model, k=2)


def test_a_benchmarks_equal_options_are_asked_with_a_warning(tmp_path: Path) -> None:
    """Official questions are not ours to change, nor to leave out."""
    (tmp_path / "q.jsonl").write_text('{"id": "q", "video": "v.mp4", "question": "Which?", "options": ["x", "x"]}\n')

    found = load_benchmark("jsonl", tmp_path / "q.jsonl")

    assert not found.problems and found.items[0].question.options == ("x", "x")
    assert "options A and B are the same text" in found.items[0].question.warnings[0]


@pytest.mark.parametrize("address", ["https://youtu.be/1", "HTTP://host/v.mp4", "s3://bucket/v.mp4"])
def test_an_address_is_to_be_downloaded_first(address: str) -> None:
    result = run("ask", address, "Which?", *OPTIONS, "--model", "./x")

    assert result.exit_code == 1 and f"gridprobe: {address} is an address" in result.stderr
    assert "download the video first, for example with yt-dlp" in result.stderr


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("song.m4a", "aac"),
        ("song.mp3", "libmp3lame"),
        ("song.wav", "pcm_s16le"),
        ("song.flac", "flac"),
        ("song.aac", "aac"),
    ],
)
def test_a_file_with_only_sound_says_so(name: str, codec: str, tmp_path: Path) -> None:
    with av.open(str(tmp_path / name), "w") as container:
        stream = container.add_stream(codec, rate=44100, layout="mono")
        kind = stream.format.name
        silence = np.zeros((1, 44100), {"fltp": np.float32, "s16": np.int16, "s32p": np.int32}[kind])
        frame = av.AudioFrame.from_ndarray(silence, format=kind, layout="mono")
        frame.rate = 44100
        pieces = av.AudioResampler(frame_size=stream.codec_context.frame_size or 1024)
        for piece in (*pieces.resample(frame), *pieces.resample(None), None):
            container.mux(stream.encode(piece))

    result = run("ask", tmp_path / name, "Which?", *OPTIONS, "--model", "./x")

    assert result.exit_code == 1 and "no video stream in the file; it holds only sound" in result.stderr


# V01, V02 of tests/reliability.md
@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "the file is empty"), (b"secret " * 99, "not a video container gridprobe accepts")]
)
def test_a_file_that_is_no_video_is_one_line_and_exit_code_1(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.mp4").write_bytes(content)

    result = run("ask", tmp_path / "a.mp4", "Which?", *OPTIONS, "--model", "./x")

    assert result.exit_code == 1 and reason in " ".join(result.stderr.split())
    assert "secret" not in result.output and "Traceback" not in result.output


def test_more_frames_than_were_sampled_is_a_warning(clip: Path, tiny_checkpoint: Path) -> None:
    same = ("ask", clip, "Which?", *OPTIONS, "--model", tiny_checkpoint, "--k", 3, "--json")

    many, few = (run(*same, "--frames", count).stdout for count in (500, 9))

    assert "500 frames were to be kept, but only 9 were sampled; a larger k samples more" in many
    assert "were to be kept" not in few


def test_ask_in_python_needs_a_model_and_takes_a_plain_text(clip: Path, tiny_model: gp.MockModel) -> None:
    with pytest.raises(UsageError, match="name the model that is to answer"):
        gp.ask(clip, "What is it?")
    assert gp.ask(clip, "What is it?", model=tiny_model, k=2).question.open


def test_a_misspelt_benchmark_gets_a_suggestion(tmp_path: Path) -> None:
    result = run("eval", "gridwrld", "--data", tmp_path, "--out", tmp_path / "run")

    assert result.exit_code == 2 and "did you mean 'gridworld'?" in result.stderr


@pytest.mark.parametrize(
    ("offline", "kind", "words"),
    [
        (True, "LocalEntryNotFoundError", "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or download"),
        (False, "LocalEntryNotFoundError", "the Hugging Face hub cannot be reached; check the connection, or"),
    ],
)
def test_a_hub_that_cannot_be_reached_is_one_sentence(
    offline: bool, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub import constants, errors

    def download(*_: object, **__: object) -> str:
        raise getattr(errors, kind)("Got: ConnectError\nAn error happened while …\nPlease check your …")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)

    with pytest.raises(gp.ModelError) as caught:
        checkpoint.find_folder("some/model")

    start = "cannot find the model some/model: no such folder, not in the local cache, and "
    assert str(caught.value).startswith(start + words) and "\n" not in str(caught.value)


def test_a_folder_that_one_may_not_write_to_is_found_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere

    with pytest.raises(UsageError, match="you may not write to the folder"):
        check_writable(tmp_path / "report.html")
