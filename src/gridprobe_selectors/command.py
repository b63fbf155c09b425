"""gridprobe compare: one question, several selectors."""

import json
import math
from pathlib import Path
from typing import Any

import click

from gridprobe.cli.ask import imply, introduce, subtitles_in
from gridprobe.cli.console import announce_saved, debug_option, progress, quiet_option, speaks_unicode, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.options import FILE, in_groups, method_options, model_options, models_of, options_of
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.report.html import check_writable
from gridprobe.report.terminal import shows_colour
from gridprobe_selectors.compare import (
    CONTROLS,
    TimeRange,
    compare,
    comparison_dict,
    comparison_view,
    save_comparison,
)


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


@click.command(
    "compare",
    cls=Verb,
    examples=(
        "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --selectors gridprobe,siglip,aks --frames 8",
        "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --evidence 12-15 --html compare.html",
    ),
)
@in_groups(
    {
        "Question": [
            click.argument("video", type=FILE),
            click.argument("question"),
            click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="An option; give 2 to 26."),
            click.option("--subtitles", type=FILE, help="An .srt, .vtt or .json subtitle file."),
            click.option("--evidence", type=SpanType(), multiple=True, help="Where the answer is, in seconds."),
        ],
        "Model": model_options(),
        "Method": [
            click.option(
                "--selectors",
                metavar="A,B,…",
                default="gridprobe",
                show_default=True,
                help="What to compare; see gridprobe list selectors.",
            ),
            click.option(
                "--controls/--no-controls",
                default=True,
                show_default=True,
                help=f"Add the rows {' and '.join(CONTROLS)}, at the same number of frames.",
            ),
            *method_options("k", "frames", selector=False),
        ],
        "Output": [
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            click.option("--html", type=FILE, help="Save a self-contained HTML page."),
            quiet_option,
            debug_option,
        ],
    }
)
def compare_selectors(video: Path, question: str, options: tuple[str, ...], **arguments: Any) -> None:
    """Ask one QUESTION with the frames of several selectors: one timeline, their answers and their bills."""
    if arguments["html"]:
        check_writable(arguments["html"])
    asked = Question(question, options, subtitles=subtitles_in(arguments["subtitles"]).text).distinct()
    names = [name.strip() for name in arguments["selectors"].split(",") if name.strip()]
    settings = options_of(arguments)
    model, answerer = models_of(arguments)
    for name in names:
        SELECTORS.find(name)
    footage = settings.changed(frames="auto").resolve(model=model, selector="all").open(video)
    if not arguments["model"]:
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
            controls=arguments["controls"],
        )
    if arguments["as_json"]:
        print(json.dumps(comparison_dict(rows, arguments["evidence"]), allow_nan=False))
    else:
        console = stdout()
        color = shows_colour(console)
        unicode, evidence = speaks_unicode(console), arguments["evidence"]
        console.print(comparison_view(rows, evidence=evidence, width=console.width, color=color, unicode=unicode))
    if arguments["html"]:
        save_comparison(rows, arguments["html"], evidence=arguments["evidence"])
        announce_saved("comparison", arguments["html"])
