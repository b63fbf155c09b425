"""gridprobe plan: estimate the decoding for a video, or the cost of an evaluation, in advance."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe.benchmarks import parse_options
from gridprobe.cli.ask import WAY, given_settings, usage_limits_of
from gridprobe.cli.console import printable, progress, quiet_option, stdout
from gridprobe.cli.evaluate import asked, run_options
from gridprobe.cli.help import Verb
from gridprobe.evaluation.planning import Models, Offer, estimate_run, offers
from gridprobe.models import cost_model_of
from gridprobe.options import Options, make_plan, parse_changes
from gridprobe.video import Preview, VideoLimits, preview

__all__ = ["cost_models_of", "plan", "plan_benchmark", "print_offers"]

# gridprobe estimate_run BENCHMARK: the cost of an evaluation, without loading a model.


def plan_benchmark(name: str, data: Path, given: dict[str, Any], *, as_json: bool) -> None:
    """Estimate the cost of `gridprobe eval` with the same options."""
    what = asked(name, data, given)
    model = cost_model_of(what.setup.model.identity)
    answerer = cost_model_of(what.setup.answerer.identity)
    with progress():
        found = estimate_run(
            what.benchmark,
            what.setup,
            model=model,
            answerer=answerer,
            choice=what.choice,
            subtitles=given["subtitles"],
        )
    if as_json:
        print(json.dumps({**found, "benchmark": what.benchmark.version}, allow_nan=False))
    else:
        _print_run(stdout(), found, what.benchmark.version)


def _print_run(console: Console, found: dict[str, Any], version: str) -> None:
    lines = [
        f"{version}: {found['questions']} questions about {found['videos']} videos, {found['hours']:.1f} h to decode"
    ]
    if found["unknown_length"]:
        lines.append(f"{found['unknown_length']} videos of unknown length are not in these hours")
    if found["unreadable"]:
        size = "{}×{}".format(*found["frame_size"])
        first = f"{len(found['unreadable'])} videos cannot be read, such as {found['unreadable'][0]}"
        lines.append(f"{first}; they are counted as {size}")
    for line in lines:
        console.print(Text(printable(line)))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "passes", "tokens", "TFLOPs", "TFLOPs, published convention"):
        table.add_column(name, justify="right" if name else "left")
    passes = {"overview": found["overview"], "probes": found["probes"], "focus, at least": found["focus"]["least"]}
    passes["focus, at most"] = found["focus"]["most"]
    for name, cost in passes.items():
        if name == "overview" and not cost["calls"]:
            continue
        flops = (_run_number(cost[key]) for key in ("tflops", "tflops_paper"))
        table.add_row(name, f"{cost['calls']:,}", f"{cost['tokens']:,}", *flops)
    console.print(table)
    if found["settled_by_overview"] and found["focus"]["most"]["calls"]:
        console.print(Text("questions that the overview settles need neither probes nor focus"))
    memory = found["memory_gb"]
    console.print(Text(f"text tokens: {found['text_tokens']}; a time that rounds otherwise may be one token off"))
    longest = f"with its longest pass ({found['longest_pass_tokens']:,} tokens) {memory['largest_pass']} GB"
    console.print(
        Text(f"GPU memory, estimated for bfloat16: weights {memory['weights']} GB, the answering model {longest}")
    )


def _run_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The table of `gridprobe plan VIDEO`: what each way to ask takes.


def print_offers(console: Console, offered: Sequence[Offer]) -> None:
    """One row for each way to ask, and below what may exceed the limits."""
    priced = any(offer.money for offer in offered)
    table = Table(box=None, padding=(0, 2, 0, 0))
    names = ["a question", "native frames", "tokens", "TFLOPs", "seconds", "GB"]
    for name in [*names, "money"] if priced else names:
        table.add_column(name, justify="left" if name == "a question" else "right")
    for offer in offered:
        cells = [
            offer.name,
            _range(offer.frames),
            _range(offer.tokens),
            _range(offer.tflops),
            _range(offer.seconds) if offer.seconds else "?",
            f"{offer.memory_gb:.3g}",
        ]
        table.add_row(*cells, *([_range(offer.money) if offer.money else "?"] if priced else []))
    console.print(table)
    for offer in offered:
        if offer.over:
            console.print(Text(printable(f"{offer.name}: {offer.over}")))
    if not any(offer.seconds for offer in offered):
        console.print(Text("seconds will be known once this model has answered on this machine"))


def _range(values: tuple[float, float]) -> str:
    least, most = map(_number, values)
    return least if least == most else f"{least}–{most}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


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
        settings = Options.from_preset(given["preset"], **{"limits": VideoLimits(seconds=decode_timeout), **changes})
        _plan_video(video, settings, given, as_json=as_json)


def cost_models_of(given: dict[str, Any]) -> Models:
    """Gauges of the models, and the prices of a server."""
    model = cost_model_of(given["model"] or "embedded")
    answerer = cost_model_of(given["answer_model"]) if given["answer_model"] else model
    served = parse_options(given["server"])
    return Models(model, answerer, *(float(served.get(name, 0.0)) for name in ("price_in", "price_out")))


def _plan_video(video: Path, settings: Options, given: dict[str, Any], *, as_json: bool) -> None:
    spec = settings.sample
    found = preview(video, num_frames=spec.num_frames, sampling=spec.sampling, limits=spec.limits, stream=spec.stream)
    models, selector = cost_models_of(given), given["selector"]
    setup = make_plan(model=models.model, selector=selector, settings=settings)
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
    every = f"one every {duration / found.num_frames:.3g} s"
    pool, kept = ("{}×{}".format(*sizes[name]) for name in ("pool", "kept"))
    console.print(Text(f"{found.num_frames} samples, {every}; frames of {pool}, kept frames of {kept}; {info.decoder}"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("precision", "frames", "key frames", "groups", "to decode", "max. time error"):
        table.add_column(name, justify="left" if name == "precision" else "right")
    for way in found.ways:
        name = f"{way.precision} (used)" if way.precision == precision else way.precision
        counts = (len(way.times), way.key_frames, way.groups, way.decode)
        table.add_row(name, *map(str, counts), f"{way.furthest:.2f} s")
    console.print(table)
