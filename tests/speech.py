"""Videos with text tracks and with sound, made on the fly, and what writes their sound down without weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import numpy.typing as npt

from gridprobe.video.subtitles import Segment
from videos import numbered_video

RATE = 48_000
MILLISECONDS = Fraction(1, 1000)
Lines = Sequence[tuple[float, float, str]]
STYLE = "Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0"
HEADER = f"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name\nStyle: Default,{STYLE}\n\n[Events]\n"


def packet_text(text: str, codec: str) -> bytes:
    """A line as it stands in a packet."""
    if codec == "mov_text":
        return len(text.encode()).to_bytes(2, "big") + text.encode()
    return (f"0,0,Default,,0,0,0,,{text}" if codec == "ass" else text).encode()


def with_tracks(path: Path, tracks: Sequence[tuple[str, str, Lines]], *, late: float = 0.0, seconds: int = 4) -> Path:
    """A video with text tracks: codec, language and lines. `late` is when its first frame is shown."""
    plain = numbered_video(path.with_name(f"plain-{path.stem}.mkv"), 25 * seconds, options={"bf": "0"})
    with av.open(str(plain)) as source, av.open(str(path), "w") as output:
        picture = output.add_stream_from_template(source.streams.video[0])
        streams = [(output.add_stream(cast(Any, codec)), codec, lines) for codec, _, lines in tracks]
        for (stream, *_), (_, language, _) in zip(streams, tracks, strict=True):
            cast(Any, stream.codec_context).subtitle_header = HEADER.encode()
            stream.metadata["language"] = language
        packets = []
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None and packet.pts is not None and packet.time_base is not None:
                packet.stream = picture
                moved = round(late / packet.time_base)
                packet.pts, packet.dts = packet.pts + moved, packet.dts + moved
                packets.append(packet)
        for stream, codec, lines in streams:
            for start, end, text in lines:
                packet = av.Packet(packet_text(text, codec))
                packet.stream, packet.time_base = cast(Any, stream), MILLISECONDS
                packet.pts = packet.dts = round(1000 * start)
                packet.duration = round(1000 * (end - start))
                packets.append(packet)
        packets.sort(key=lambda each: float((each.dts or 0) * cast(Fraction, each.time_base)))
        for packet in packets:
            output.mux(packet)
    plain.unlink()
    return path


def beeps(seconds: float, at: Sequence[float]) -> npt.NDArray[np.float32]:
    """Silence with tones of a tenth of a second."""
    time = np.arange(round(seconds * RATE)) / RATE
    loud = np.any([(time >= start) & (time < start + 0.1) for start in at], axis=0)
    return cast("npt.NDArray[np.float32]", (0.5 * loud * np.sin(2 * np.pi * 440 * time)).astype(np.float32))


def with_sound(
    path: Path,
    sound: npt.NDArray[np.float32],
    *,
    codec: str = "aac",
    delay: float = 0.0,
    late: float = 0.0,
    gap: tuple[float, float] = (0.0, 0.0),
) -> Path:
    """A video with sound, which begins `delay` after the clock does; from gap[0] on it is gap[1] seconds later."""
    with av.open(str(path), "w") as output:
        video, audio = output.add_stream("libx264", rate=25), output.add_stream(cast(Any, codec), rate=RATE)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        cast(Any, audio).layout = "mono"
        for number in range(round(25 * len(sound) / RATE)):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number % 256, np.uint8), "rgb24")
            frame.pts, frame.time_base = number + round(25 * late), Fraction(1, 25)
            output.mux(video.encode(frame))
        output.mux(video.encode())
        for start in range(0, len(sound), 960):
            chunk = np.ascontiguousarray(sound[None, start : start + 960])
            some = av.AudioFrame.from_ndarray(chunk, "fltp", "mono")
            moved = delay + (gap[1] if gap[1] and start >= gap[0] * RATE else 0.0)
            some.sample_rate, some.time_base, some.pts = RATE, Fraction(1, RATE), start + round(moved * RATE)
            output.mux(cast(Any, audio).encode(some))
        output.mux(cast(Any, audio).encode(None))
    return path


@dataclass
class BeepListener:
    """A recogniser that hears tones: it writes "beep 1", "beep 2" and so on at the times they begin."""

    identity: str = "beeps"
    calls: list[int] = field(default_factory=list)

    def lines(self, samples: npt.NDArray[np.int16], language: str) -> Iterator[Segment]:
        self.calls.append(len(samples))
        loud = np.abs(samples.astype(np.int32))[: len(samples) // 160 * 160].reshape(-1, 160).max(axis=1) > 3000
        starts = [i for i in range(len(loud)) if loud[i] and not loud[max(0, i - 3) : i].any()]
        for number, start in enumerate(starts, start=1):
            yield Segment(start / 100, start / 100 + 0.1, f"beep {number} {language}".strip())
