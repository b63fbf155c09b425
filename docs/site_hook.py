"""A hook of mkdocs: pages link to files of the repository outside docs/; the website gets a copy of each.

A page under docs/ keeps its place. Any other file that a page links to, and that such a file links to in turn, is
copied to repository/. Links are rewritten accordingly, so that readers on GitHub and on the website get the same page.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
LOADS = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"?https?://|<link(?=[^>]+rel=\"?(?:stylesheet|preload))[^>]+href=\"?https?://"
)
FENCE = re.compile(r"(^```.*?^```)", flags=re.S | re.M)


def place(path: str) -> str:
    """Where the website has a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if (ROOT / path).is_file() else f"repository/{path}/index.md"


def targets(text: str, path: str) -> set[str]:
    """The files and folders of the repository that the Markdown file at `path` links to."""
    prose = "".join(FENCE.split(text)[::2])
    return {posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1])) for found in LINK.finditer(prose)}


def moved(text: str, path: str) -> str:
    """The Markdown of a page with its links as the website needs them."""
    here = posixpath.dirname(place(path))

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
        return posixpath.relpath(place(target), here or ".") + (found[2] or "")

    parts = FENCE.split(text)
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))


def needed() -> list[str]:
    """Every file and folder outside docs/ that the website must have."""
    found: set[str] = set()
    todo = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")}
    while todo:
        path = todo.pop()
        new = {each for each in targets(markdown(path), path) if not each.startswith("docs/")} - found
        found |= new
        todo |= new
    return sorted(found)


def markdown(path: str) -> str:
    """The text of a Markdown file, a list of links for a folder, and nothing for other files."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if each.is_file() and each.suffix in {".md", ".json"})
        return f"# {path}\n\n" + "".join(f"- [{name}]({file.name}/{name})\n" for name in names)
    return file.read_text(encoding="utf-8") if file.suffix == ".md" else ""


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/."""
    from mkdocs.structure.files import File

    for path in needed():
        file = ROOT / path
        content = moved(markdown(path), path) if file.is_dir() or file.suffix == ".md" else file.read_bytes()
        files.append(File.generated(config, place(path), content=content))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page under docs/; the others are rewritten already."""
    inside = page.file.src_uri
    return text if inside.startswith("repository/") else moved(text, f"docs/{inside}")


def on_post_build(config: Any) -> None:
    """Fail if a page would load anything from elsewhere."""
    from mkdocs.exceptions import PluginError

    for page in Path(config.site_dir).rglob("*.html"):
        if found := LOADS.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.name} loads {found[0]}…; the website must work offline, so keep a copy of it")
