"""gridprobe plan VIDEO: what the pool of an answer takes to decode, before paying for it.

A benchmark's name in the place of the video is for the evaluation's own plan; a file of that name would win.
"""

import json
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from gridprobe.cli.console import stdout
from gridprobe.settings import PRESETS, Settings
from gridprobe.video import Limits, Outline, outline

__all__ = ["plan"]


@click.command()
@click.argument("video", type=click.Path(path_type=Path))
@click.option("--k", type=int, default=12, show_default=True, help="Side of the grid: K² frames are sampled.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True)
@click.option("--decode-timeout", type=float, default=120.0, show_default=True, help="Seconds for the video.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(video: Path, k: int, preset: str, decode_timeout: float, as_json: bool) -> None:
    """Show what would be decoded of VIDEO at each precision, without decoding it."""
    settings = Settings.from_preset(preset, k=k, limits=Limits(seconds=decode_timeout))
    found = outline(video, cells=k * k, sampling=settings.sampling, limits=settings.limits)
    if as_json:
        sizes = {"pool": settings.pool_pixels.of(found.info), "kept": settings.native_pixels.of(found.info)}
        print(json.dumps({**found.to_dict(), "sizes": sizes, "precision": settings.precision}, allow_nan=False))
    else:
        _print(found, settings)


def _print(found: Outline, settings: Settings) -> None:
    info, console = found.info, stdout()
    duration = info.duration or 0.0
    keys = f"{found.key_frames} key frames" if found.key_frames else "key frames not counted"
    rate = f"{info.fps:.4g} frames/s" if info.fps else "unknown rate"
    size = f"{info.width}×{info.height}"
    console.print(Text(f"{info.path}: {info.codec} {size} in {info.container}, {duration:.1f} s, {rate}, {keys}"))
    every = f"one every {duration / found.cells:.3g} s"
    pool, kept = ("{}×{}".format(*size.of(info)) for size in (settings.pool_pixels, settings.native_pixels))
    console.print(Text(f"{found.cells} moments, {every}; frames of {pool}, once kept {kept}; {info.decoder}"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("precision", "frames", "key frames", "groups", "to decode", "at most off by"):
        table.add_column(name, justify="left" if name == "precision" else "right")
    for way in found.ways:
        name = f"{way.precision} (used)" if way.precision == settings.precision else way.precision
        counts = (len(way.times), way.key_frames, way.groups, way.decode)
        table.add_row(name, *map(str, counts), f"{way.furthest:.2f} s")
    console.print(table)
