"""gridprobe plan: estimate the decoding for a video, or the cost of an evaluation, in advance."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from gridprobe.backends import gauge_model
from gridprobe.benchmarks import parse_options
from gridprobe.cli.ask import WAY, given_settings
from gridprobe.cli.benchmark import run_options
from gridprobe.cli.console import quiet_option, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.limits import usage_limits_of
from gridprobe.cli.plan_run import plan_benchmark
from gridprobe.cli.plan_table import print_offers
from gridprobe.evaluation.offers import Models, offers
from gridprobe.settings import Settings, parse_changes
from gridprobe.setup import make_setup
from gridprobe.video import Preview, VideoLimits, preview

__all__ = ["gauges_of", "plan"]


@click.command(
    cls=Verb,
    examples=(
        "gridprobe plan talk.mp4 -m Qwen/Qwen3-VL-8B-Instruct",
        "gridprobe plan talk.mp4 --max-tokens 4000",
        "gridprobe plan mlvu --data data/mlvu -m Qwen/Qwen3-VL-2B-Instruct",
    ),
)
@click.argument("video", metavar="VIDEO|BENCHMARK", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the benchmark's files.")
@run_options
@click.option("--decode-timeout", type=float, default=120.0, show_default=True, help="Limit in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@quiet_option
def plan(video: Path, data: Path | None, decode_timeout: float, as_json: bool, **given: Any) -> None:
    """Show which frames of VIDEO would be decoded and what quick, auto and full answers would take, in advance.

    With limits such as --max-tokens, show what fits them. With --data, show the cost of an evaluation of BENCHMARK.
    No model is loaded. Takes the options of eval.
    """
    if data is not None:
        plan_benchmark(str(video), data, given, as_json=as_json)
    else:
        changes = parse_changes(given["changes"]) | given_settings(given, WAY) | usage_limits_of(given)
        settings = Settings.from_preset(given["preset"], **{"limits": VideoLimits(seconds=decode_timeout), **changes})
        _plan_video(video, settings, given, as_json=as_json)


def gauges_of(given: dict[str, Any]) -> Models:
    """Gauges of the models, and the prices of a server."""
    model = gauge_model(given["model"] or "embedded")
    answerer = gauge_model(given["answer_model"]) if given["answer_model"] else model
    served = parse_options(given["server"])
    return Models(model, answerer, *(float(served.get(name, 0.0)) for name in ("price_in", "price_out")))


def _plan_video(video: Path, settings: Settings, given: dict[str, Any], *, as_json: bool) -> None:
    spec = settings.sample
    found = preview(video, cells=spec.cells, sampling=spec.sampling, limits=spec.limits, stream=spec.stream)
    models, selector = gauges_of(given), given["selector"]
    setup = make_setup(model=models.model, selector=selector, settings=settings)
    cells = settings.k**2
    _, most = setup.selector.bounds(cells)
    shown = {"pool": setup.pool_size(cells), "kept": setup.size_of(setup.view, most)}
    sizes = {name: size.fit(found.info.width, found.info.height) for name, size in shown.items()}
    offered = offers(settings, found.info, models, selector=selector)
    if as_json:
        more = {"sizes": sizes, "precision": settings.precision, "offers": [each.to_dict() for each in offered]}
        print(json.dumps({**found.to_dict(), **more}, allow_nan=False))
    else:
        _print(found, sizes, settings.precision)
        print_offers(stdout(), offered)


def _print(found: Preview, sizes: dict[str, tuple[int, int]], precision: str) -> None:
    info, console = found.info, stdout()
    duration = info.duration or 0.0
    keys = f"{found.key_frames} key frames" if found.key_frames else "key frames not counted"
    rate = f"{info.fps:.4g} frames/s" if info.fps else "unknown rate"
    size = f"{info.width}×{info.height}"
    names, suffix = info.container.split(","), Path(info.path).suffix[1:].lower()
    container = suffix if suffix in names else names[0]  # FFmpeg has one name for all of mov,mp4,m4a,3gp
    console.print(Text(f"{info.path}: {info.codec} {size} in {container}, {duration:.1f} s, {rate}, {keys}"))
    every = f"one every {duration / found.cells:.3g} s"
    pool, kept = ("{}×{}".format(*sizes[name]) for name in ("pool", "kept"))
    console.print(Text(f"{found.cells} samples, {every}; frames of {pool}, kept frames of {kept}; {info.decoder}"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("precision", "frames", "key frames", "groups", "to decode", "max. time error"):
        table.add_column(name, justify="left" if name == "precision" else "right")
    for way in found.ways:
        name = f"{way.precision} (used)" if way.precision == precision else way.precision
        counts = (len(way.times), way.key_frames, way.groups, way.decode)
        table.add_row(name, *map(str, counts), f"{way.furthest:.2f} s")
    console.print(table)
