"""gridprobe plan BENCHMARK: the cost of an evaluation, without loading a model."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe.backends import gauge_model
from gridprobe.cli.benchmark import asked
from gridprobe.cli.console import printable, progress, stdout
from gridprobe.evaluation.planning import plan

__all__ = ["plan_benchmark"]


def plan_benchmark(name: str, data: Path, given: dict[str, Any], *, as_json: bool) -> None:
    """Estimate the cost of `gridprobe eval` with the same options."""
    what = asked(name, data, given)
    model = gauge_model(what.setup.model.identity)
    answerer = gauge_model(what.setup.answerer.identity)
    with progress():
        found = plan(
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
        _print(stdout(), found, what.benchmark.version)


def _print(console: Console, found: dict[str, Any], version: str) -> None:
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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
