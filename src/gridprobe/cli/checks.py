"""Check: one line of what `gridprobe doctor` finds."""

from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from gridprobe.cli.console import speaks_unicode, stdout

__all__ = ["Check", "print_checks"]


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
