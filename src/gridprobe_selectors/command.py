"""gridprobe compare: one question, several selectors."""

import json
import math
from pathlib import Path
from typing import Any

import click

from gridprobe.cli.ask import (
    FILE,
    FramesType,
    asked_models,
    distinct,
    given_settings,
    imply,
    introduce,
    limits_of,
    load_options,
    model_option,
    subtitle_text,
)
from gridprobe.cli.console import announce_saved, progress, quiet_option, speaks_unicode, stdout, verbose_option
from gridprobe.cli.help import Verb
from gridprobe.options import PRESETS, Options, make_plan
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.report.files import check_writable
from gridprobe_selectors.compare import (
    CONTROLS,
    TimeRange,
    compare,
    comparison_dict,
    comparison_view,
    save_comparison,
)

__all__ = ["compare_selectors"]


class SpanType(click.ParamType[TimeRange]):
    """An interval in seconds, such as 12-15."""

    name = "FROM-TO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TimeRange:
        """Two numbers that ascend."""
        if isinstance(value, tuple):
            return value
        start, dash, end = str(value).partition("-")
        try:
            span = float(start), float(end)
        except ValueError:
            span = (0.0, 0.0)
        if not dash or not 0 <= span[0] < span[1] < math.inf:
            self.fail(f"{value!r} is no interval in seconds that ascends, such as 12-15", param, ctx)
        return span


def _options(command: Any) -> Any:
    decorators = [
        click.argument("video", type=FILE),
        click.argument("question"),
        click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="An option; give 2 to 26."),
        click.option(
            "--selectors",
            metavar="A,B,…",
            default="gridprobe",
            show_default=True,
            help=f"What to compare: {'; '.join(SELECTORS.listed())}.",
        ),
        click.option("--frames", type=FramesType(), show_default="auto", help="How many frames to keep."),
        click.option(
            "--evidence", type=SpanType(), multiple=True, help="Where the answer is, in seconds; may be repeated."
        ),
        click.option(
            "--controls/--no-controls",
            default=True,
            show_default=True,
            help=f"Add the rows {' and '.join(CONTROLS)}, at the same number of frames.",
        ),
        click.option("--subtitles", type=FILE, help="An .srt, .vtt or .json subtitle file."),
        model_option(),
        click.option("--answer-model", metavar="NAME", help="Another model for the focused pass."),
        click.option("--server", multiple=True, metavar="NAME=VALUE", help="For models on a server: patience, …"),
        click.option("--k", type=int, show_default="the preset's, 12", help="Sample K² frames."),
        click.option("--context", type=click.Choice(["none", "small"]), help="What is shown next to the kept frames."),
        click.option("--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True),
        click.option("--seed", type=int, default=0, show_default=True, help="For selectors that draw."),
        *load_options(),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--html", type=FILE, help="Save a self-contained HTML page."),
        quiet_option,
        verbose_option,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@click.command(
    "compare",
    cls=Verb,
    examples=(
        "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --selectors gridprobe,siglip,aks --frames 8",
        "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --evidence 12-15 --html compare.html",
    ),
)
@_options
def compare_selectors(video: Path, question: str, options: tuple[str, ...], **given: Any) -> None:
    """Ask one QUESTION with the frames of several selectors: one timeline, their answers and their bills."""
    if given["html"]:
        check_writable(given["html"])
    asked = distinct(Question(question, options, subtitles=subtitle_text(given["subtitles"])))
    names = [name.strip() for name in given["selectors"].split(",") if name.strip()]
    changes = given_settings(given, ("frames", "k", "context", "seed"))
    settings = Options.from_preset(given["preset"], **changes, limits=limits_of(given))
    model, answerer = asked_models(given)
    for name in names:
        SELECTORS.find(name)
    footage = make_plan(model=model, selector="all", settings=settings.changed(frames="auto")).open(video)
    if not given["model"]:
        imply([asked])
    with progress():
        loaded = model.load()
        other = answerer.load() if answerer else None
        introduce(loaded, other)
        rows = compare(
            footage,
            asked,
            selectors=names,
            model=loaded,
            answer_model=other,
            settings=settings,
            controls=given["controls"],
        )
    if given["as_json"]:
        print(json.dumps(comparison_dict(rows, given["evidence"]), allow_nan=False))
    else:
        console = stdout()
        color = console.is_terminal and not console.no_color
        unicode, evidence = speaks_unicode(console), given["evidence"]
        console.print(comparison_view(rows, evidence=evidence, width=console.width, color=color, unicode=unicode))
    if given["html"]:
        save_comparison(rows, given["html"], evidence=given["evidence"])
        announce_saved("comparison", given["html"])
