"""Files under an allowed folder, checked on the opened descriptor: no "..", no symbolic links, regular files only."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gridprobe.errors import UsageError
from gridprobe.serving.refusals import Refusal, check_descriptors

__all__ = ["AllowedFolder", "AllowedRoots", "Listed"]

OPENED = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
ENDINGS = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".mpg", ".mpeg", ".flv", ".wmv", ".ogv", ".gif"}
)
MOST_LISTED = 1000
DEEPEST = 16


@dataclass(frozen=True)
class Listed:
    """A file that can be named in a request."""

    name: str
    bytes: int


@dataclass(frozen=True)
class AllowedFolder:
    """A folder whose files requests may name."""

    root: Path

    @classmethod
    def at(cls, folder: Path) -> "AllowedFolder":
        """The folder, unless it is missing or the root of everything."""
        root = Path(os.path.realpath(folder))
        if not root.is_dir():
            raise UsageError(f"the folder of videos {str(folder)!r} (--videos, --root) is not a folder")
        if root == Path(root.anchor):
            raise UsageError(
                "/ as folder of videos (--videos, --root) would let requests read every file; name a folder below it"
            )
        return cls(root)

    def parts(self, name: str) -> tuple[str, ...]:
        """The names of folders and file below the root. A file: address must name a path under it."""
        if name.lower().startswith("file:"):
            address = urlsplit(name)
            if address.netloc not in ("", "localhost") or address.query or address.fragment:
                raise _refused()
            name = unquote(address.path)
        if name.startswith("/"):
            try:
                name = str(Path(os.path.normpath(name)).relative_to(self.root)) if ".." not in name.split("/") else ".."
            except ValueError:
                raise _refused() from None
        parts = tuple(name.split("/"))
        if not 1 <= len(parts) <= DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise _refused()
        return parts

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, Path]]:
        """An open descriptor of a file, and its path. Errors do not say whether the file exists."""
        parts = self.parts(name)
        handles: list[int] = []
        try:
            try:
                handles.append(os.open(self.root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY))
                for part in parts[:-1]:
                    handles.append(os.open(part, OPENED | os.O_DIRECTORY, dir_fd=handles[-1]))
                found = os.stat(parts[-1], dir_fd=handles[-1], follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):  # before opening: that can block or have side effects
                    raise _refused()
                handles.append(os.open(parts[-1], OPENED, dir_fd=handles[-1]))
                if not stat.S_ISREG(os.fstat(handles[-1]).st_mode):
                    raise _refused()
            except OSError as error:
                check_descriptors(error)
                raise _refused() from None
            except ValueError:
                raise _refused() from None
            yield handles[-1], self.root.joinpath(*parts)
        finally:
            for handle in handles:
                os.close(handle)

    def listed(self) -> list[Listed]:
        """The videos in it, by name."""
        found: list[Listed] = []
        for folder, folders, files in os.walk(self.root, followlinks=False):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            place = Path(folder)
            found += filter(None, (self._listed(place / file) for file in sorted(files)))
            if len(found) >= MOST_LISTED:
                break
        return found[:MOST_LISTED]

    def _listed(self, path: Path) -> Listed | None:
        name = path.relative_to(self.root).as_posix()
        if path.suffix.lower() not in ENDINGS or path.name.startswith(".") or not name.isprintable():
            return None
        try:
            found = path.lstat()
        except OSError:  # gone in the meantime
            return None
        return Listed(name, found.st_size) if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True)
class AllowedRoots:
    """Several such folders, used like one; a relative name is looked for in each."""

    folders: tuple[AllowedFolder, ...]

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, Path]]:
        """As `AllowedFolder.opened`."""
        with ExitStack() as stack:
            found = None
            for folder in self.folders:
                try:
                    found = stack.enter_context(folder.opened(name))
                    break
                except Refusal as refusal:
                    if refusal.status != 403:
                        raise
            if found is None:
                raise _refused()
            yield found

    def listed(self) -> list[Listed]:
        """The videos in all of them, by their whole paths if there are several folders."""
        if len(self.folders) == 1:
            return self.folders[0].listed()
        return [replace(each, name=str(one.root / each.name)) for one in self.folders for each in one.listed()]


def _refused() -> Refusal:
    return Refusal(
        "this file is not one that requests may name; see GET /v1/gridprobe/videos", status=403, code="not_allowed"
    )
