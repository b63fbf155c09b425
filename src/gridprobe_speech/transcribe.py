"""Transcribing the sound of a video: with faster-whisper, or through a server's /v1/audio/transcriptions.

A recogniser is told 16 kHz samples and yields lines with their times in them, in order. `listening_with` makes of it
what the registry asks for: it decodes the sound, moves the lines to the video's time, and keeps them in the cache on
disk by the sound's content, so that a copy of a video, or a second question, is not transcribed again.
"""

import hashlib
import io
import json
import math
import os
import wave
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe._util import one_line, parse_json, report
from gridprobe.errors import ModelError, ServerError
from gridprobe.registry import explain_missing
from gridprobe.video.decode import SOUND_RATE
from gridprobe.video.subtitles import Segment, Subtitles, within

if TYPE_CHECKING:
    from gridprobe.video import Video

Samples = npt.NDArray[np.int16]
FORMAT = 1
"""Part of every key; raised when the same sound gives other lines."""
NO_SOUND = "the video has no sound to transcribe"
PIECE = 600 * SOUND_RATE
"""Samples that a server is sent at once: 19 MB, where the most common limit is 25."""
QUIET = 30 * SOUND_RATE, SOUND_RATE // 10
"""A piece ends at the quietest of these tenths of a second before its end."""
TIMEOUT = 600.0
"""Seconds to wait for a server's reply."""
MAX_REPLY = 1 << 26
MAX_TEXT = 10_000
"""Characters of a line."""


class Recogniser(Protocol):
    """Writes down what is said."""

    @property
    def identity(self) -> str:
        """What decides its lines, for the cache."""
        ...

    def lines(self, samples: Samples, language: str) -> Iterator[Segment]:
        """The lines in order, with times in seconds from the first sample; `language` may be empty."""
        ...


def listening_with(recogniser: Recogniser) -> "Callable[[Video, str], Subtitles]":
    """What transcribes a video with this recogniser."""

    def transcribe(video: "Video", language: str) -> Subtitles:
        samples, start = video.sound()
        if not len(samples):
            return Subtitles((), notes=(NO_SOUND,))

        def recognise() -> bytes:
            return json.dumps([astuple(line) for line in _reported(recogniser, samples, language)]).encode()

        content = hashlib.sha256(samples.tobytes()).hexdigest()
        key = f"speech {FORMAT}\n{recogniser.identity}\n{language}\n{content}"
        lines = (Segment(*values) for values in json.loads(video.stored(key, recognise)))
        moved = (replace(line, start=line.start + start, end=line.end + start) for line in lines)
        return Subtitles(within(moved, video), source=f"transcribed by {recogniser.identity}")

    return transcribe


def _reported(recogniser: Recogniser, samples: Samples, language: str) -> Iterator[Segment]:
    """The lines that can be shown, at times within the sound, with progress in seconds of it."""
    length = len(samples) / SOUND_RATE
    total = max(1, round(length))
    report("speech", 0, total)
    for line in recogniser.lines(samples, language):
        text = " ".join(line.text.split())[:MAX_TEXT]
        if text and line.start <= length and math.isfinite(line.end):
            start = max(0.0, line.start)
            end = min(length, max(start, line.end))
            yield Segment(start, end, text)
            report("speech", min(total, round(end)), total)
    report("speech", total, total)


# faster-whisper.


def faster_whisper(name: str) -> "Callable[[Video, str], Subtitles]":
    """Whisper by CTranslate2: a folder with its weights, or a name that is downloaded from the Hugging Face hub."""
    return listening_with(FasterWhisper(name))


@dataclass(frozen=True, eq=False)
class FasterWhisper:
    """A Whisper model, which is loaded when it is first needed."""

    name: str
    make: Callable[[str], Any] | None = field(default=None, repr=False)
    """What loads it; by default `faster_whisper.WhisperModel`."""

    @property
    def identity(self) -> str:
        """The name; for a folder also which weights are in it."""
        weights = Path(self.name) / "model.bin"
        if not weights.is_file():
            return f"faster-whisper:{self.name}"
        status = weights.stat()
        return f"faster-whisper:{self.name}@{status.st_size:x}-{status.st_mtime_ns:x}"

    @cached_property
    def _model(self) -> Any:
        if self.make is None and (self.name.startswith((".", "~", os.sep)) and not os.path.isdir(self.name)):
            raise ModelError(f"cannot load the recogniser of speech {self.name}: there is no such folder")
        try:
            with explain_missing("speech"):
                if self.make is not None:
                    return self.make(self.name)
                from faster_whisper import WhisperModel

                return WhisperModel(self.name)
        except (ValueError, RuntimeError, OSError) as error:
            raise ModelError(f"cannot load the recogniser of speech {self.name}: {one_line(str(error))}") from None

    def lines(self, samples: Samples, language: str) -> Iterator[Segment]:
        """As it recognises them; silence is left out before, as Whisper invents words for it."""
        sound = samples.astype(np.float32) / 32768
        try:
            segments, _ = self._model.transcribe(sound, language=language or None, vad_filter=True)
            for each in segments:
                yield Segment(float(each.start), float(each.end), str(each.text))
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{self.name} cannot transcribe this: {one_line(str(error))}") from None


# A server.


def server(name: str) -> "Callable[[Video, str], Subtitles]":
    """Any server with OpenAI's route for transcriptions that gives times."""
    return listening_with(TranscriptionServer(name))


@dataclass(frozen=True, eq=False)
class TranscriptionServer:
    """A model behind /v1/audio/transcriptions; sound is sent in pieces of ten minutes that end in a quiet place."""

    name: str

    def __post_init__(self) -> None:
        _ = self.identity

    @property
    def identity(self) -> str:
        """The address and the model."""
        return str(self._address)

    @property
    def _address(self) -> Any:
        with explain_missing("speech"):
            from gridprobe.models.openai.client import Address
        return Address.parse(self.name.replace("/audio/transcriptions", ""))

    def lines(self, samples: Samples, language: str) -> Iterator[Segment]:
        """The lines of one piece after the other."""
        start = 0
        while start < len(samples):
            end = piece_end(samples, start)
            offset = start / SOUND_RATE
            for line in self._ask(samples[start:end], language):
                yield replace(line, start=line.start + offset, end=line.end + offset)
            report("speech", round(end / SOUND_RATE), max(1, round(len(samples) / SOUND_RATE)))
            start = end

    def _ask(self, samples: Samples, language: str) -> list[Segment]:
        import httpx

        from gridprobe.models.openai.client import find_key

        address = self._address
        key = find_key(address)
        fields = {"model": address.model or "whisper-1", "response_format": "verbose_json", "temperature": "0"}
        fields |= {"language": language} if language else {}
        try:
            reply = httpx.post(
                address.url("/audio/transcriptions"),
                data={**fields, "timestamp_granularities[]": "segment"},
                files={"file": ("sound.wav", wav(samples), "audio/wav")},
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=TIMEOUT,
                trust_env=False,
            )
        except httpx.HTTPError as error:
            why = one_line(str(error)) or type(error).__name__
            raise ServerError(f"{address.host} does not transcribe ({why}); is the server running?") from None
        if reply.status_code != 200 or len(reply.content) > MAX_REPLY:
            raise ServerError(f"{address.host} does not transcribe (status {reply.status_code}): {_reason(reply.text)}")
        return _segments(reply.content, address.host)


def _reason(text: str) -> str:
    return one_line(text[:200]) or "no reason given"


def _segments(content: bytes, host: str) -> list[Segment]:
    """The timed lines of a reply, which is not trusted."""
    try:
        rows = parse_json(content)["segments"]
        return [Segment(float(row["start"]), float(row["end"]), str(row["text"])) for row in rows]
    except (ValueError, TypeError, KeyError):
        raise ServerError(
            f"{host} transcribes without times; use a model with response_format=verbose_json, such as Whisper"
        ) from None


def piece_end(samples: Samples, start: int) -> int:
    """Where the piece that starts there ends: in the quietest moment of its last half minute."""
    end = start + PIECE
    if end >= len(samples):
        return len(samples)
    window, step = QUIET
    tail = samples[end - window : end].astype(np.float32)
    loudness = np.square(tail[: len(tail) // step * step].reshape(-1, step)).mean(axis=1)
    return end - window + int(loudness.argmin()) * step + step // 2


def wav(samples: Samples) -> bytes:
    """The samples as a WAV file."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SOUND_RATE)
        file.writeframes(samples.tobytes())
    return content.getvalue()
