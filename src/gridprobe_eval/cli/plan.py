"""gridprobe plan: estimate the decoding for a video, or the cost of an evaluation, in advance."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe._util import printable
from gridprobe.cli.console import progress, quiet_option, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.options import (
    FILE,
    in_groups,
    limit_options,
    method_options,
    model_options,
    options_of,
    parse_options,
    window_options,
)
from gridprobe.models import cost_model_of
from gridprobe.options import Options
from gridprobe.video import Preview, preview
from gridprobe_eval.cli.evaluate import benchmark_options, choice_options, eval_arguments
from gridprobe_eval.estimate import estimate_run
from gridprobe_eval.planning import Models, Offer, offers

# gridprobe estimate_run BENCHMARK: the cost of an evaluation, without loading a model.


def plan_benchmark(name: str, data: Path, arguments: dict[str, Any], *, as_json: bool) -> None:
    """Estimate the cost of `gridprobe eval` with the same options."""
    benchmark, setup, choice = eval_arguments(name, data, arguments)
    model, answerer = cost_model_of(setup.model.identity), cost_model_of(setup.answerer.identity)
    with progress():
        estimate = estimate_run(
            benchmark,
            setup,
            model=model,
            answerer=answerer,
            choice=choice,
            subtitles=arguments["subtitles"],
        )
    if as_json:
        print(json.dumps({**estimate, "benchmark": benchmark.version}, allow_nan=False))
    else:
        _print_run(stdout(), estimate, benchmark.version)


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
        flops = (_number(cost[key]) for key in ("tflops", "tflops_paper"))
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
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@click.command(
    cls=Verb,
    examples=(
        "gridprobe plan talk.mp4 -m Qwen/Qwen3-VL-8B-Instruct",
        "gridprobe plan talk.mp4 --max-tokens 4000",
        "gridprobe plan mlvu --data data/mlvu -m Qwen/Qwen3-VL-2B-Instruct",
    ),
)
@in_groups(
    {
        "Benchmark": [
            click.argument("video", metavar="VIDEO|BENCHMARK", type=FILE),
            click.option("--data", type=FILE, help="Folder of the benchmark's files."),
            *benchmark_options(),
            *choice_options(),
            *window_options(),
        ],
        "Model": model_options(),
        "Method": method_options(),
        "Limits of a question": limit_options(),
        "Output": [click.option("--json", "as_json", is_flag=True, help="Print one JSON object."), quiet_option],
    }
)
def plan(video: Path, data: Path | None, as_json: bool, **arguments: Any) -> None:
    """Show which frames of VIDEO would be decoded and what quick, auto and full answers would take, in advance.

    With limits such as --max-tokens, show what fits them. With --data, show the cost of an evaluation of BENCHMARK.
    No model is loaded. Takes the options of eval.
    """
    if data is not None:
        plan_benchmark(str(video), data, arguments, as_json=as_json)
    else:
        _plan_video(video, options_of(arguments), arguments, as_json=as_json)


def cost_models_of(arguments: dict[str, Any]) -> Models:
    """Cost models, and the prices of a server."""
    model = cost_model_of(arguments["model"] or "embedded")
    answerer = cost_model_of(arguments["answer_model"]) if arguments["answer_model"] else model
    load = parse_options(arguments["load"])
    return Models(model, answerer, *(float(load.get(name, 0.0)) for name in ("price_in", "price_out")))


def _plan_video(video: Path, options: Options, arguments: dict[str, Any], *, as_json: bool) -> None:
    spec = options.sample
    names = ("num_frames", "sampling", "limits", "stream", "window")
    video_preview = preview(video, **{name: getattr(spec, name) for name in names})
    models, selector = cost_models_of(arguments), arguments["selector"]
    resolved = options.resolve(model=models.model, selector=selector)
    cells = options.k**2
    _, most = resolved.selector.bounds(cells)
    shown = {"pool": resolved.pool_size(cells), "kept": resolved.size_of(resolved.view, most)}
    sizes = {name: size.fit(video_preview.info.width, video_preview.info.height) for name, size in shown.items()}
    offered = offers(options, video_preview.info, models, selector=selector)
    if as_json:
        more = {"sizes": sizes, "precision": options.precision, "offers": [each.to_dict() for each in offered]}
        print(json.dumps({**video_preview.to_dict(), **more}, allow_nan=False))
    else:
        _print(video_preview, sizes, options.precision)
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
    every = f"one every {found.cell:.3g} s"
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
