"""gridprobe watch: contact sheets of a video, for agents that see pictures, and a page for people."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from PIL import Image
from rich.text import Text

from gridprobe._util import one_line, printable
from gridprobe.cli.console import is_quiet, notice, progress, quiet_option, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.options import FILE, in_groups, window_of, window_options
from gridprobe.errors import DataError, UsageError
from gridprobe.report.format import clock
from gridprobe.report.html import asset, jpeg_source, render_page, write_whole
from gridprobe.report.picture import jpeg
from gridprobe.video import VideoLimits, open_cache
from gridprobe.video.subtitles import Segment, read_subtitles
from gridprobe_watch.sheets import ContactSheet, FirstLook, look, tokens_of
from gridprobe_watch.subtitles import subtitle_files, timed_lines

PAGE, LINES = "index.html", "subtitles.txt"
CHARACTERS_PER_TOKEN = 4
MOST_TIMES = 12
"""Shots that are named on the terminal; the page and --json have all."""


@dataclass(frozen=True)
class Said:
    """The lines of the subtitle file next to a video, in the part that is looked at."""

    file: Path | None = None
    segments: tuple[Segment, ...] = ()
    problem: str = ""

    @classmethod
    def next_to(cls, video: Path, span: tuple[float, float]) -> "Said":
        """Of the first file that can be read; what is wrong with the others is said."""
        problems: list[str] = []
        for file in subtitle_files(video):
            try:
                return cls(file, read_subtitles(file).within(*span).segments, "; ".join(problems))
            except DataError as error:
                problems.append(str(error))
        return cls(problem="; ".join(problems))

    @property
    def text(self) -> str:
        """All lines with their times."""
        return "".join(f"{line}\n" for line in timed_lines(self.segments))

    @property
    def tokens(self) -> int:
        """About what the lines take of an agent's context."""
        return -(-len(self.text) // CHARACTERS_PER_TOKEN)


@click.command(
    cls=Verb,
    examples=(
        "gridprobe watch talk.mp4",
        "gridprobe watch talk.mp4 --from 1:20 --to 5:00",
    ),
)
@in_groups(
    {
        "Video": [
            click.argument("video", type=FILE),
            *window_options(),
            click.option(
                "--frames", type=int, metavar="N", help="How many; by default 144, or one a second of a short video."
            ),
        ],
        "Output": [
            click.option("--out", type=FILE, metavar="DIR", help="Folder for the sheets and a page."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            quiet_option,
        ],
    }
)
def watch(video: Path, frames: int | None, out: Path | None, as_json: bool, **arguments: Any) -> None:
    """Make contact sheets of a VIDEO with times, shots and subtitles: no model, no GPU; an agent reads them."""
    folder = out or Path("gridprobe-watch") / (video.resolve().stem or "video")
    _check(folder)
    with progress():
        limits = VideoLimits()
        seen = look(
            video, frames=frames, window=window_of(arguments), limits=limits, cache=open_cache(int(limits.cache))
        )
        said = Said.next_to(video, seen.span)
        files = _save(seen, said, folder)
    if said.problem:
        notice(f"gridprobe: {said.problem}")
    if as_json:
        print(json.dumps(_to_dict(video, seen, said, files, out), allow_nan=False))
    else:
        _print(video, seen, said, files, out)


def _check(folder: Path) -> None:
    """Raise UsageError if nothing can be saved there, before any work starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}; name another one with --out") from None


def _save(seen: FirstLook, said: Said, folder: Path) -> list[Path]:
    """Write the sheets, the subtitles and the page; a closer look is added to what is there."""
    files = []
    pictures = []
    for sheet in seen.sheets:
        picture = sheet.draw()
        files.append(folder / f"{_stamp(sheet.span[0])}-{_stamp(sheet.span[1])}.jpg")
        pictures.append(picture)
        write_whole(files[-1], jpeg(picture, quality=88))
    if said.segments:
        write_whole(folder / LINES, said.text.encode())
    write_whole(folder / PAGE, _page(seen, said, pictures).encode())
    return files


def _stamp(seconds: float) -> str:
    """A time in a file's name; names sort by time."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m{rest:02d}s"


def _page(seen: FirstLook, said: Said, pictures: Sequence[Image.Image]) -> str:
    return render_page(
        "watch.html.j2",
        one_line(seen.name),
        style=asset("answer.css"),
        about=_about(seen),
        counts=_counts(seen),
        sheets=[jpeg_source(jpeg(each, quality=88)) for each in pictures],
        shots=[clock(each, tenths=seen.interval < 2) for each in seen.shots],
        lines=timed_lines(said.segments),
        warnings=list(seen.frames.warnings),
    )


def _about(seen: FirstLook) -> str:
    """The video in a line."""
    info = seen.info
    rate = f", {info.fps:.4g} frames/s" if info.fps else ""
    length = clock(info.duration or 0.0)
    return f"{length}, {info.width}×{info.height}, {info.codec}{rate}"


def _counts(seen: FirstLook) -> str:
    """What the sheets hold, and what they take."""
    start, end = seen.span
    whole = start == 0 and end == (seen.info.duration or 0.0)
    part = "" if whole else f" of {clock(start)}–{clock(end)}"
    sheets = "1 contact sheet" if len(seen.sheets) == 1 else f"{len(seen.sheets)} contact sheets"
    tokens = sum(each.tokens for each in seen.sheets)
    return f"{len(seen.frames)} frames{part}, one every {seen.interval:.3g} s, on {sheets} ({tokens:,} image tokens)"


def _closer(video: Path, seen: FirstLook, out: Path | None) -> str:
    """The command that looks closer at the part where most happens."""
    start, end = seen.closer
    more = ["--out", str(out)] if out else []
    words = ["gridprobe", "watch", str(video), "--from", clock(start), "--to", clock(end), *more]
    return shlex.join(words)


def _to_dict(video: Path, seen: FirstLook, said: Said, files: Sequence[Path], out: Path | None) -> dict[str, Any]:
    sheets = [{"file": str(file), **sheet.to_dict()} for file, sheet in zip(files, seen.sheets, strict=True)]
    lines = [[each.start, each.end, one_line(each.text)] for each in said.segments]
    spoken = {"file": str(said.file), "tokens": said.tokens, "lines": lines} if said.file else None
    return {**seen.to_dict(), "sheets": sheets, "subtitles": spoken, "next": _closer(video, seen, out)}


def _print(video: Path, seen: FirstLook, said: Said, files: Sequence[Path], out: Path | None) -> None:
    lines = [] if is_quiet() else [f"{video}: {_about(seen)}", _counts(seen)]
    for file, sheet in zip(files, seen.sheets, strict=True):
        lines.append(str(file) if is_quiet() else f"  {file}  {_words(sheet)}")
    if not is_quiet():
        lines += _more(video, seen, said, files[0].parent, out)
    for line in lines:
        stdout().print(Text(printable(line)), soft_wrap=True)


def _words(sheet: ContactSheet) -> str:
    start, end = (clock(each) for each in sheet.span)
    width, height = sheet.layout.size
    return f"{start}–{end}, {width}×{height}, {tokens_of(width, height):,} tokens"


def _more(video: Path, seen: FirstLook, said: Said, folder: Path, out: Path | None) -> list[str]:
    """Shots, subtitles, warnings, the page and what to do next."""
    times = [clock(each, tenths=seen.interval < 2) for each in seen.shots]
    rest = f" and {len(times) - MOST_TIMES} more" if len(times) > MOST_TIMES else ""
    lines = [f"new shots: {', '.join(times[:MOST_TIMES])}{rest}"] if times else ["no cut between these frames"]
    if said.segments:
        count = "1 line" if len(said.segments) == 1 else f"{len(said.segments)} lines"
        lines.append(f"subtitles: {folder / LINES}, {count} ({said.tokens:,} tokens)")
    lines += [f"warning: {each}" for each in seen.frames.warnings]
    lines.append(f"page: {folder / PAGE}")
    if seen.closer[1] - seen.closer[0] < seen.span[1] - seen.span[0]:
        lines.append(f"closer, where most happens: {_closer(video, seen, out)}")
    return lines
