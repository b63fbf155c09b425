"""Parts of every HTML page: the document around the content, and tables."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gridprobe._version import __version__

__all__ = ["document", "pairs", "table"]


def document(title: str, main: str, *, style: str, policy: str, after: str = "") -> str:
    """A complete page. `main` is HTML; `after` is HTML for the end of the body, such as scripts."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header><h1 dir="auto">{escape(title)}</h1></header>
<main>
{main}
</main>
<footer>Written by gridprobe {escape(__version__)}. This page is self-contained and loads no other files.</footer>
{after}</body>
</html>
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, stacked: bool = False) -> str:
    """A table with HTML in its cells; short rows are padded with empty cells.

    With `stacked`, cells carry the name of their column, so that a stylesheet can write them below each other.
    """
    names = "".join(f'<th scope="col">{name}</th>' if name else "<td></td>" for name in head)
    heads = head[1:] if stacked else ()
    body = "".join(_row([*row, *[""] * (len(head) - len(row))], heads) for row in rows)
    return f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def pairs(values: Mapping[str, Any]) -> str:
    """A table of names and values of any type."""
    rows = [[escape(name), f'<span dir="auto">{escape(str(value))}</span>'] for name, value in values.items()]
    return f'<table class="pairs"><tbody>{"".join(map(_row, rows))}</tbody></table>'


def _row(row: Sequence[str], heads: Sequence[str] = ()) -> str:
    first, *rest = row
    named = [f' data-head="{name}"' for name in heads] or [""] * len(rest)
    cells = "".join(f"<td{name}>{value}</td>" for name, value in zip(named, rest, strict=True))
    return f'<tr><th scope="row">{first}</th>{cells}</tr>'
