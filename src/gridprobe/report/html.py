"""HTML pages from templates/, and files that the user named.

Every text is escaped, and a page holds all it needs and makes no request.
"""

import base64
import os
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridprobe import __version__, _util
from gridprobe.errors import UsageError
from gridprobe.report.format import amount, clock, percent, share_words, sure_words

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy of a page without a script; it blocks all requests."""


def render_page(template: str, title: str, *, style: str, policy: str = POLICY, **values: Any) -> str:
    """A complete page."""
    return render_part(template, title=title, style=style, policy=policy, version=__version__, **values)


def render_part(template: str, **values: Any) -> str:
    """A template with these values as HTML."""
    return _environment().get_template(template).render(values)


def asset(name: str) -> str:
    """A stylesheet or script of the templates' folder."""
    return (files("gridprobe.report") / "templates" / name).read_text(encoding="utf-8")


def jpeg_source(content: bytes) -> str:
    """A JPEG file as the source of a picture."""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode('ascii')}"


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gridprobe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do"],
    )
    words = {"amount": amount, "clock": clock, "percent": percent, "share": share_words, "sure": sure_words}
    environment.filters |= {**words, "px": "{:.1f}".format, "tick": "{:,g}".format, "shortened": _shortened}
    return environment


def _shortened(text: str, length: int = 90) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# Save a result to the file that the user named.


def check_writable(path: Path) -> None:
    """Raise UsageError if the file cannot be written; the command line calls this before any work starts."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise UsageError(
            f"cannot write {path}: the folder {target.parent} does not exist; name a file in a folder that exists"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: you may not write to the folder {target.parent}; choose another folder")
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file; name a file instead")


def write_whole(path: Path, content: bytes) -> None:
    """Write the file completely or not at all. A symbolic link is followed; only a regular file is replaced."""
    check_writable(path)
    try:
        _util.write_whole(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that you may write to"
        ) from None
