"""The options of `gridprobe ask` that save something, checked before any work starts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gridprobe.answer import Answer
from gridprobe.cli.console import announce_saved, notice
from gridprobe.report import save_map, save_report
from gridprobe.report.extracts import check_clip, check_folder, save_clip, save_frames
from gridprobe.report.files import check_writable
from gridprobe.report.picture import check_picture
from gridprobe.video import VideoLimits

__all__ = ["checked_outputs", "output_options", "save_outputs"]

FILE = click.Path(path_type=Path)
OUTPUTS = ("map", "report", "save_frames", "clip")


def output_options() -> list[Callable[[Any], Any]]:
    """What can be saved."""
    return [
        click.option("--map", type=FILE, help="Save the answer as one picture: .png or .jpg."),
        click.option("--report", type=FILE, help="Save all answers as a self-contained HTML page."),
        click.option(
            "--save-frames", type=FILE, metavar="DIR", help="Save the kept frames and a contact sheet as JPEG files."
        ),
        click.option(
            "--clip",
            type=FILE,
            help="Save the stretches around the evidence, without sound: .mp4, .mov or .mkv. They are copied, not "
            "encoded again, where the codec allows it, and then begin at the keyframe before.",
        ),
    ]


def checked_outputs(given: dict[str, Any], video: Path) -> dict[str, Path]:
    """The files and folders to write, by option; UsageError for one that cannot be written."""
    files: dict[str, Path] = {name: given[name] for name in OUTPUTS if given[name]}
    for name, path in files.items():
        if name == "save_frames":
            check_folder(path)
        elif name == "clip":
            check_clip(path, video)
        else:
            check_writable(path)
    if "map" in files:
        check_picture(files["map"])
    return files


def save_outputs(answers: Sequence[Answer], video: Path, files: dict[str, Path], *, limits: VideoLimits) -> None:
    """Save what was asked for, and print where it is."""
    if path := files.get("map"):
        save_map(answers, path)
        announce_saved("map", path)
    if path := files.get("report"):
        save_report(answers, path)
        announce_saved("report", path)
    if path := files.get("save_frames"):
        save_frames(answers[0], path)
        announce_saved("frames", path)
    if path := files.get("clip"):
        made = save_clip(answers[0], video, path, limits=limits)
        if made is None:
            notice("gridprobe: no clip was saved, as the answer does not point at any moment")
        else:
            announce_saved("clip" if made.copied else "clip, encoded again,", path)
