"""Transcribing: sound as it is decoded, lines at the times of the video, faster-whisper's interface, and a server."""

import json
import re
import shutil
import subprocess
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import gridprobe as gp
from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import GridProbeError, ModelError, ServerError, UsageError, VideoError
from gridprobe.models import Request
from gridprobe.options import Options
from gridprobe.registry import transcriber
from gridprobe.video import Video, VideoLimits
from gridprobe.video.decode import SOUND_RATE
from gridprobe.video.sampling import DecodeIn
from gridprobe.video.subtitles import Ears, Segment, Subtitles
from gridprobe_speech import FASTER_WHISPER, SERVER, transcribe
from gridprobe_speech.transcribe import FasterWhisper, TranscriptionServer, listening_with, piece_end
from speech import RATE, BeepListener, beeps, with_sound
from videos import numbered_video

AT = (0.5, 1.5, 2.5)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_sound(tmp_path_factory.mktemp("speech") / "talk.mp4", beeps(3.0, AT))


def heard_in(path: Path, *, decode_in: DecodeIn = "process") -> list[float]:
    heard = listening_with(BeepListener())(Video(path, num_frames=4, decode_in=decode_in), "")
    return [line.start for line in heard.segments]


# Times.


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("plain.mp4", {}, AT),
        ("delayed.mp4", {"delay": 0.4}, (0.9, 1.9, 2.9)),
        ("opus.mkv", {"delay": 0.4, "codec": "libopus"}, (0.9, 1.9, 2.9)),
        ("late.mkv", {"late": 0.4}, (0.1, 1.1, 2.1)),
        ("late.ts", {"late": 0.4}, (0.1, 1.1, 2.1)),
        ("gap.mkv", {"gap": (2.0, 0.7)}, (0.5, 1.5, 3.2)),
    ],
)
def test_lines_stand_where_they_are_heard_in_the_video(
    name: str, settings: dict[str, Any], expected: tuple[float, ...], tmp_path: Path
) -> None:
    video = with_sound(tmp_path / name, beeps(3.0, AT), **settings)

    assert heard_in(video) == pytest.approx(expected, abs=0.03)


def test_the_sandboxed_child_decodes_the_same_sound(spoken: Path) -> None:
    here, there = (Video(spoken, num_frames=4, decode_in=each).sound() for each in ("process", "child"))

    assert np.array_equal(here[0], there[0]) and here[1] == there[1]
    assert len(here[0]) == pytest.approx(3 * SOUND_RATE, abs=0.1 * SOUND_RATE)


@pytest.mark.parametrize("decode_in", ["process", "child"])
def test_sound_beyond_the_limit_of_memory_is_refused(decode_in: DecodeIn, spoken: Path) -> None:
    limits = VideoLimits(memory=2 * SOUND_RATE)
    video = Video(spoken, num_frames=1, decode_in=decode_in, limits=limits)

    with pytest.raises(VideoError, match=r"sound is longer than 0\.0 hours; raise the limit \(VideoLimits\.memory\)"):
        video.sound()


def test_a_video_without_sound_is_asked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = numbered_video(tmp_path / "silent.mp4", 50)
    recogniser = BeepListener()

    heard = Ears("none", "", listening_with(recogniser)).hear(Video(silent, num_frames=4))

    assert heard == Subtitles((), notes=("the video has no sound to transcribe",)) and recogniser.calls == []


def test_damaged_sound_is_left_out(spoken: Path, tmp_path: Path) -> None:
    content = bytearray(spoken.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    (tmp_path / "damaged.mp4").write_bytes(content)

    samples, _ = Video(tmp_path / "damaged.mp4", num_frames=2, decode_in="child").sound()

    assert len(samples) > SOUND_RATE


# The cache and progress.


def test_the_same_sound_is_transcribed_once_also_in_a_copy_of_the_video(
    spoken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))
    plan = Options(k=2).resolve(model=gp.MockModel(lambda _: {"A": 1.0}))
    (tmp_path / "copy.mp4").write_bytes(spoken.read_bytes())
    first, second, other = BeepListener(), BeepListener(), BeepListener("others")

    lines = [
        listening_with(each)(plan.open(path), language).segments
        for each, path, language in [
            (first, spoken, ""),
            (second, tmp_path / "copy.mp4", ""),
            (second, spoken, "en"),
            (other, spoken, ""),
        ]
    ]

    assert lines[0] == lines[1] and [line.text for line in lines[2]] == ["beep 1 en", "beep 2 en", "beep 3 en"]
    assert [len(each.calls) for each in (first, second, other)] == [1, 1, 1]


def test_progress_counts_seconds_of_sound(spoken: Path) -> None:
    events: list[ProgressEvent] = []

    with listening(events.append):
        heard_in(spoken)

    steps = [(event.done, event.total) for event in events if event.stage == "speech"]
    assert steps[0] == (0, 3) and steps[-1] == (3, 3) and steps == sorted(steps)


def test_what_a_recogniser_makes_up_does_no_harm(spoken: Path) -> None:
    def lines(samples: object, language: str) -> Iterator[Segment]:
        yield from (Segment(float("nan"), 1.0, "a"), Segment(1.0, float("inf"), "b"), Segment(2.0, 1.0, " c  d "))
        yield from (Segment(-5.0, -4.0, "before"), Segment(0.1, 0.2, " \n "), Segment(1e9, 1e9, "after the end"))

    recogniser = cast(Any, SimpleNamespace(identity="odd", lines=lines))

    heard = listening_with(recogniser)(Video(spoken, num_frames=2), "")

    assert heard.segments == (Segment(2.0, 2.0, "c d"), Segment(0.0, 0.0, "before"))


# In a question.


def test_a_video_without_subtitles_is_transcribed_and_one_with_subtitles_is_not(
    spoken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recogniser = BeepListener()
    monkeypatch.setattr("gridprobe_speech.transcribe.FasterWhisper", lambda name: recogniser)
    said: list[tuple[str, ...]] = []

    def answer(request: Request) -> dict[str, float]:
        said.append(request.between)
        return {"A": 0.6, "B": 0.4}

    def ask(path: Path) -> gp.Answer:
        question = gp.Question("Which?", ["a", "b"])
        limits = VideoLimits(cache=0)
        return gp.ask(path, question, model=gp.MockModel(answer), k=2, limits=limits, transcribe="small")

    transcribed = ask(spoken)
    (tmp_path / "talk.mp4").write_bytes(spoken.read_bytes())
    (tmp_path / "talk.srt").write_text("00:00:01,000 --> 00:00:02,000\nwritten\n")
    written = ask(tmp_path / "talk.mp4")

    assert " ".join("\n".join(said[0]).split()) == "beep 1 beep 2 beep 3"
    assert transcribed.settings["subtitles"] == {"source": "transcribed by beeps", "lines": 3, "shown": 3}
    assert written.settings["subtitles"]["source"] == "talk.srt" and len(recogniser.calls) == 1


@pytest.mark.parametrize(
    ("name", "entry", "argument"),
    [
        ("small", FASTER_WHISPER, "small"),
        ("faster-whisper:./here", FASTER_WHISPER, "./here"),
        ("./folder", FASTER_WHISPER, "./folder"),
        ("http://host:1/v1#x", SERVER, "http://host:1/v1#x"),
        ("server:https://host/v1", SERVER, "https://host/v1"),
    ],
)
def test_a_name_means_a_recogniser(name: str, entry: Any, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(transcribe, entry.target.partition(":")[2], made.append)

    transcriber(name)

    assert made == [argument]


# faster-whisper, by its interface: weights cannot be had here.


class WhisperLike:
    """Takes and gives what `faster_whisper.WhisperModel` of 1.2.1 does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[dict[str, Any]] = []

    def transcribe(
        self, audio: npt.NDArray[np.float32], language: str | None = None, vad_filter: bool = False
    ) -> tuple[Iterator[Any], Any]:
        self.calls.append({"type": audio.dtype, "peak": float(abs(audio).max()), "language": language})
        assert vad_filter
        segments = (SimpleNamespace(start=s, end=s + 0.4, text=f" said at {s}") for s in (0.5, 1.5))
        return segments, SimpleNamespace(language="en", duration=len(audio) / SOUND_RATE)


def test_whisper_gets_the_sound_as_it_wants_it(spoken: Path) -> None:
    models: list[WhisperLike] = []

    def make(name: str) -> WhisperLike:
        models.append(WhisperLike(name))
        return models[-1]

    listen = listening_with(FasterWhisper("small", make))
    first, _ = (listen(Video(spoken, num_frames=2), language) for language in ("", "en"))

    assert [(line.start, line.text) for line in first.segments] == [(0.5, "said at 0.5"), (1.5, "said at 1.5")]
    assert first.source == "transcribed by faster-whisper:small"
    (model,) = models
    assert [(each["type"], each["language"]) for each in model.calls] == [("float32", None), ("float32", "en")]
    assert 0.3 < model.calls[0]["peak"] <= 1.0


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, OSError])
def test_weights_that_do_not_load_are_one_sentence(kind: type[Exception], spoken: Path) -> None:
    def make(name: str) -> Any:
        raise kind("no such\nmodel size")

    with pytest.raises(ModelError, match=r"cannot load the recogniser of speech huge: no such model size"):
        listening_with(FasterWhisper("huge", make))(Video(spoken, num_frames=2), "")


def test_other_weights_in_a_folder_are_another_recogniser(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"one")
    first = FasterWhisper(str(tmp_path)).identity
    (tmp_path / "model.bin").write_bytes(b"another")

    assert FasterWhisper(str(tmp_path)).identity != first


def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path: Path, spoken: Path) -> None:
    with pytest.raises(ModelError, match="there is no such folder"):
        listening_with(FasterWhisper(str(tmp_path / "none")))(Video(spoken, num_frames=2), "")


# A server.


@contextmanager
def transcriptions(*replies: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these replies in turn, the last one for ever: bodies, or status and body."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            boundary = self.headers["Content-Type"].partition("boundary=")[2].encode()
            fields: dict[str, Any] = {"path": self.path, "key": self.headers.get("Authorization")}
            for part in body.split(b"--" + boundary)[1:-1]:
                head, _, content = part.partition(b"\r\n\r\n")
                match = re.search(rb'name="([^"]+)"', head)
                assert match is not None
                fields[match[1].decode()] = content.removesuffix(b"\r\n")
            requests.append(fields)
            reply = replies[min(len(requests), len(replies)) - 1]
            status, reply = reply if isinstance(reply, tuple) else (200, reply)
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


RECORDED = {
    "task": "transcribe",
    "language": "english",
    "duration": 3.0,
    "text": " Hello there. Good night.",
    "segments": [
        {"id": 0, "seek": 0, "start": 0.5, "end": 1.2, "text": " Hello there.", "tokens": [50364], "avg_logprob": -0.2},
        {"id": 1, "seek": 0, "start": 2.0, "end": 2.6, "text": " Good night.", "tokens": [50464], "avg_logprob": -0.2},
    ],
}
"""What OpenAI's reference gives for response_format=verbose_json."""


def test_a_server_is_sent_a_wav_file_and_its_segments_become_lines(
    spoken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_API_KEY", "sk-1")
    with transcriptions(RECORDED) as (address, requests):
        heard = listening_with(TranscriptionServer(f"{address}/audio/transcriptions#whisper-x"))(
            Video(spoken, num_frames=2), "en"
        )

    assert [(line.start, line.text) for line in heard.segments] == [(0.5, "Hello there."), (2.0, "Good night.")]
    (request,) = requests
    assert (request["path"], request["key"]) == ("/v1/audio/transcriptions", "Bearer sk-1")
    assert (request["model"], request["language"], request["response_format"]) == (b"whisper-x", b"en", b"verbose_json")
    with wave.open(BytesIO(request["file"])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (SOUND_RATE, 1, 2)
        assert file.getnframes() == pytest.approx(3 * SOUND_RATE, abs=2000)
    assert "sk-1" not in heard.source


def test_long_sound_is_sent_in_pieces_that_end_in_a_quiet_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcribe, "PIECE", 10 * SOUND_RATE)
    monkeypatch.setattr(transcribe, "QUIET", (4 * SOUND_RATE, SOUND_RATE // 10))
    samples = np.full(25 * SOUND_RATE, 5000, np.int16)
    samples[7 * SOUND_RATE : round(7.1 * SOUND_RATE)] = 3
    one = {"segments": [{"start": 1.0, "end": 2.0, "text": "a line"}]}

    with transcriptions(one) as (address, requests):
        lines = list(TranscriptionServer(address).lines(samples, ""))

    assert len(requests) == len(lines) and sum(len(each["file"]) - 44 for each in requests) == samples.nbytes
    assert lines[0] == Segment(1.0, 2.0, "a line") and lines[1].start == pytest.approx(8.05)
    assert all(len(each["file"]) <= 44 + 20 * SOUND_RATE for each in requests)
    assert piece_end(samples[: 3 * SOUND_RATE], 0) == 3 * SOUND_RATE


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, b"out of memory\nat line 5"), r"does not transcribe \(status 500\): out of memory at line 5"),
        ((404, b""), r"status 404\): no reason given"),
        ({"text": "no times"}, "transcribes without times; use a model with response_format=verbose_json"),
        (b"<html>", "transcribes without times"),
        ({"segments": [{"start": "x", "end": 1, "text": "?"}]}, "transcribes without times"),
        ({"segments": 5}, "transcribes without times"),
    ],
)
def test_a_server_that_does_not_do_it_is_one_sentence(reply: Any, message: str, spoken: Path) -> None:
    with transcriptions(reply) as (address, _), pytest.raises(ServerError, match=message):
        listening_with(TranscriptionServer(address))(Video(spoken, num_frames=2), "")


def test_a_server_that_is_down_is_named(spoken: Path) -> None:
    with pytest.raises(GridProbeError, match=r"127\.0\.0\.1:9 does not transcribe .*; is the server running\?"):
        listening_with(TranscriptionServer("http://127.0.0.1:9/v1"))(Video(spoken, num_frames=2), "")


def test_an_address_with_a_password_is_refused_before_the_video_is_opened() -> None:
    with pytest.raises(UsageError, match="contains a user, a password or a query"):
        transcriber("http://me:secret@host/v1")


# A real recogniser: PocketSphinx has its weights in its wheel, and eSpeak NG speaks.


SPOKEN = ("one", "two", "three", "four", "five")
DIGITS = (*SPOKEN, "six", "seven", "eight", "nine", "zero")


@pytest.mark.release
def test_a_real_recogniser_hears_what_is_said_and_when(tmp_path: Path) -> None:
    sphinx = pytest.importorskip("pocketsphinx", reason="PocketSphinx is not installed")
    if shutil.which("espeak-ng") is None:
        pytest.skip("no eSpeak NG on this machine")

    class Sphinx:
        identity = "pocketsphinx"

        def lines(self, samples: npt.NDArray[np.int16], language: str) -> Iterator[Segment]:
            decoder = sphinx.Decoder(samprate=SOUND_RATE, loglevel="FATAL", lm=None)
            decoder.add_jsgf_string("digits", f"#JSGF V1.0; grammar d; public <d> = ({' | '.join(DIGITS)})+;")
            decoder.activate_search("digits")
            decoder.start_utt()
            decoder.process_raw(samples.tobytes(), full_utt=True)
            decoder.end_utt()
            words = (word for word in decoder.seg() if not word.word.startswith(("<", "[")))
            for word in words:
                yield Segment(word.start_frame / 100, word.end_frame / 100, re.sub(r"\(\d\)", "", word.word))

    speech = tmp_path / "speech.wav"
    subprocess.run(["espeak-ng", "-s", "130", "-w", speech, " ".join(SPOKEN)], check=True)
    with wave.open(str(speech)) as file:
        rate, frames = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), np.int16)
    sound = np.interp(np.arange(0, len(frames) / rate, 1 / RATE), np.arange(len(frames)) / rate, frames / 32768)
    padded = np.concatenate([np.zeros(2 * RATE), sound, np.zeros(RATE)]).astype(np.float32)
    video = with_sound(tmp_path / "talk.mp4", padded, delay=0.5)

    heard = listening_with(cast(Any, Sphinx()))(Video(video, num_frames=4, decode_in="child"), "en")

    lines = [line for line in heard.segments if 2.0 < line.start < 5.5]
    assert sum(line.text in SPOKEN for line in lines) >= 4, heard.segments
    assert [line.text for line in lines if line.text in SPOKEN] == sorted(
        (line.text for line in lines if line.text in SPOKEN), key=SPOKEN.index
    )
    assert 2.4 < next(line.start for line in lines if line.text in SPOKEN) < 3.2
