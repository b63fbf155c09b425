"""The first look of `gridprobe watch` against that of claude-real-video 0.10.7, the rival from PyPI.

    python -m venv /tmp/rival && /tmp/rival/bin/pip install claude-real-video==0.10.7        # and ffmpeg from Debian
    python speed/watch.py --rival /tmp/rival/bin/crv [--minutes 3 10 60] [--out TABLE.md] [VIDEO...]

Both write contact sheets of whole videos, each in a fresh process, without a transcript: gridworld videos of these
lengths, a video of the part "brief", and the VIDEOs. Tokens are w·h/750 of each sheet. Evidence is visible if a frame
on a sheet lies in one of its intervals; questions are one of each family about the script of the demo. Frames that were
decoded before are not used (GRIDPROBE_CACHE=off).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from PIL import Image

from gridprobe_watch.sheets import tokens_of
from gridprobe_world.dataset import script
from gridprobe_world.demo import world
from gridprobe_world.questions import FAMILIES, PART_FAMILIES, ask_about, ask_part
from gridprobe_world.render import write_script
from gridprobe_world.world import TEST_SEEDS, Worlds

Intervals = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Seen:
    """What one program showed of a video."""

    sheets: int
    tokens: int
    times: Sequence[float]
    seconds: float

    def covers(self, evidence: Sequence[Intervals]) -> int:
        """How many of these pieces of evidence a frame shows."""
        return sum(any(a <= time < b for time in self.times for a, b in each) for each in evidence)


def started(command: Sequence[object]) -> tuple[str, float]:
    """The output of a program, and its seconds."""
    start = time.perf_counter()
    environment = {**os.environ, "GRIDPROBE_CACHE": "off"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=True)
    return done.stdout, time.perf_counter() - start


def ours(video: Path, folder: Path) -> Seen:
    command = [sys.executable, "-m", "gridprobe", "watch", video, "--json", "--out", folder / "ours"]
    text, seconds = started(command)
    found: dict[str, Any] = json.loads(text)
    times = [each for sheet in found["sheets"] for each in sheet["times"]]
    return Seen(len(found["sheets"]), found["tokens"], times, seconds)


def tokens_in(picture: Path) -> int:
    with Image.open(picture, formats=("JPEG",)) as opened:
        return tokens_of(*opened.size)


def rivals(crv: Path, video: Path, folder: Path) -> Seen:
    out = folder / "rival"
    _, seconds = started([crv, video, "-o", out, "--grid", "--no-transcribe", "--overwrite"])
    sheets = sorted((out / "grids").glob("*.jpg"))
    tokens = sum(map(tokens_in, sheets))
    times = [each["timestamp_sec"] for each in json.loads((out / "frames.json").read_text())["frames"]]
    return Seen(len(sheets), tokens, times, seconds)


def evidence_of(worlds: Worlds, duration: float, part: str = "") -> list[Intervals]:
    """Where the evidence of a question of each family is, in seconds."""
    families = PART_FAMILIES[part] if part else FAMILIES  # type: ignore[index]
    ask = ask_part if part else ask_about
    questions = [ask(worlds, 0, family, random.Random(f"watch:{family}")) for family in families]
    intervals = [each.evidence for each in questions if each and each.evidence]
    return [tuple((a * duration, b * duration) for a, b in each) for each in intervals]


def cases(
    folder: Path, minutes: Sequence[float], brief_minutes: float, videos: Sequence[Path]
) -> list[tuple[str, Path, list[Intervals]]]:
    made: list[tuple[str, Path, list[Intervals]]] = []
    brief = script(TEST_SEEDS[0], "brief")
    scripts = [(f"gridworld, {each:g} min", world(), each, "") for each in minutes]
    for name, worlds, length, part in [
        *scripts,
        (f"brief flashes, {brief_minutes:g} min", brief, brief_minutes, "brief"),
    ]:
        path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.mp4"
        if not path.exists():
            write_script(worlds, path, duration=60 * length, size=224)
        made.append((name, path, evidence_of(worlds, 60 * length, part)))
    return made + [(each.name, each, []) for each in videos]


def row(name: str, mine: Seen, other: Seen, evidence: Sequence[Intervals]) -> str:
    seen = (
        f"{mine.covers(evidence)}/{len(evidence)} | {other.covers(evidence)}/{len(evidence)}" if evidence else "– | –"
    )
    cells = [
        f"{mine.sheets}",
        f"{mine.tokens:,}",
        f"{other.sheets}",
        f"{other.tokens:,}",
        f"{mine.tokens / other.tokens:.3f}",
    ]
    cells += [f"{mine.seconds:.1f}", f"{other.seconds:.1f}", f"{mine.seconds / other.seconds:.2f}", seen]
    return f"| {name} | {' | '.join(cells)} |"


HEAD = """`python speed/watch.py --rival crv{more}`, {day}, {cores} CPU cores that other programs used as well

| video | sheets | tokens | its sheets | its tokens | ratio | s | its s | ratio | evidence visible | in its |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path, metavar="VIDEO")
    parser.add_argument("--rival", type=Path, required=True, help="its program, crv")
    parser.add_argument("--minutes", type=float, nargs="*", default=[3, 10, 60], help="lengths of gridworld videos")
    parser.add_argument("--brief", type=float, default=10, help="minutes of the video with brief flashes")
    parser.add_argument("--folder", type=Path, help="where the videos are made, and found again")
    parser.add_argument("--out", type=Path, help="write the table there")
    arguments = parser.parse_args()
    more = "".join(f" {each.name}" for each in arguments.videos)
    lines = [HEAD.format(more=more, day=date.today().isoformat(), cores=os.cpu_count())]
    print(lines[0], flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name, video, evidence in cases(folder, arguments.minutes, arguments.brief, arguments.videos):
            results = Path(temporary) / video.stem
            mine, other = ours(video, results), rivals(arguments.rival, video, results)
            lines.append(row(name, mine, other, evidence))
            print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
