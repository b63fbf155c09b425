"""gridprobe verify-data: check the files of a benchmark before a long run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from rich.table import Table
from rich.text import Text

from gridprobe.benchmarks import parse_options
from gridprobe.benchmarks.verify import KINDS, Finding, Verified, verify
from gridprobe.cli.console import printable, progress, quiet_option, speaks_unicode, stdout
from gridprobe.cli.help import Verb, names_of
from gridprobe.registry import BENCHMARKS

__all__ = ["Check", "print_checks", "verify_data"]

SHOWN = 10
"""The most findings of one kind that are printed; --json lists all."""


@click.command(
    "verify-data",
    cls=Verb,
    examples=(
        "gridprobe verify-data mlvu --data data/mlvu",
        "gridprobe verify-data jsonl --data mine.jsonl --deep",
    ),
)
@click.argument("benchmark", metavar="BENCHMARK", shell_complete=names_of(BENCHMARKS))
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of the benchmark's files.")
@click.option("--with", "options", multiple=True, metavar="NAME=VALUE", help="An option of the benchmark.")
@click.option("--deep", is_flag=True, help="Also decode frames throughout each video, to find truncated files.")
@click.option("--no-subtitles", is_flag=True, help="Do not check subtitle files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@quiet_option
@click.pass_context
def verify_data(
    context: click.Context,
    benchmark: str,
    *,
    data: Path,
    options: tuple[str, ...],
    deep: bool,
    no_subtitles: bool,
    as_json: bool,
) -> None:
    """Check rows, videos and subtitles of BENCHMARK; exit code 1 if any are missing or broken."""
    with progress():
        found = verify(benchmark, data, parse_options(options), deep=deep, subtitles=not no_subtitles)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _print(found)
    context.exit(1 if found.findings else 0)


def _print(found: Verified) -> None:
    console = stdout()
    release = f" (as released: {found.released_rows})" if found.released_rows is not None else ""
    some = 0 < found.without_subtitles < found.videos
    without = f", {found.without_subtitles} of them without subtitles" if some else ""
    console.print(Text(found.version))
    console.print(Text(f"{found.rows} rows{release}, {found.questions} questions, {found.videos} videos{without}"))
    for kind, meaning in KINDS.items():
        _print_kind(meaning, [each for each in found.findings if each.kind == kind])
    if not found.findings:
        console.print(Text("no problems found"))


def _print_kind(meaning: str, findings: list[Finding]) -> None:
    if not findings:
        return
    console = stdout()
    console.print(Text(f"{len(findings)} × {meaning}:"))
    for each in findings[:SHOWN]:
        console.print(Text(printable(f"  {each.where}: {each.what}")), soft_wrap=True)
    if len(findings) > SHOWN:
        console.print(Text(f"  … and {len(findings) - SHOWN} more; --json lists all"))


# Check: one line of what `gridprobe doctor` finds.


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "absent", "broken"]
    note: str


def print_checks(checks: list[Check]) -> None:
    """Print a table of checks."""
    console = stdout()
    marks = {"ok": "✓", "absent": "–", "broken": "✗"} if speaks_unicode(console) else {}
    colours = {"ok": "green", "absent": "yellow", "broken": "red"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for check in checks:
        mark = marks.get(check.state, check.state)
        table.add_row(Text(mark, colours[check.state]), check.name, Text(check.note))  # not markup
    console.print(table)
