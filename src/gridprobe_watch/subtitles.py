"""The subtitle files next to a video, as timed lines of text."""

from collections.abc import Sequence
from pathlib import Path

from gridprobe._util import one_line
from gridprobe.report.format import clock
from gridprobe.video.subtitles import Segment

ENDINGS = (".srt", ".vtt")


def subtitle_files(video: Path) -> list[Path]:
    """Files such as talk.srt and talk.en.vtt for talk.mp4, the plain name first."""
    if video.is_dir() or not video.parent.is_dir():
        return []
    names = (each for each in video.parent.iterdir() if each.suffix.lower() in ENDINGS)
    return sorted(each for each in names if each.stem == video.stem or each.stem.rpartition(".")[0] == video.stem)


def timed_lines(segments: Sequence[Segment]) -> list[str]:
    """Each line with its times, for example "[1:20-1:24] Good morning."."""
    return [f"[{clock(each.start)}-{clock(each.end)}] {one_line(each.text)}" for each in segments]
