"""The subtitle files next to a video, as timed lines of text."""

from collections.abc import Sequence
from pathlib import Path

from gridprobe._util import one_line
from gridprobe.report.format import clock
from gridprobe.video.subtitles import Segment, sidecars


def subtitle_files(video: Path) -> list[Path]:
    """Files such as talk.srt and talk.en.vtt for talk.mp4, the likeliest first."""
    tracks, _ = sidecars(video)
    return [each.path for each in sorted(tracks, key=lambda track: track.rank) if each.path is not None]


def timed_lines(segments: Sequence[Segment]) -> list[str]:
    """Each line with its times, for example "[1:20-1:24] Good morning."."""
    return [f"[{clock(each.start)}-{clock(each.end)}] {one_line(each.text)}" for each in segments]
