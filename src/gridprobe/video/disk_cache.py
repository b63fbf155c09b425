"""FrameCache: decoded frames and plans on disk, shared by all processes and safe to delete at any time.

Entry    One file, named after the SHA-256 of its key, which says everything its content depends on. It begins with the
         SHA-256 of key and content; then comes the content, plain bytes. One that does not match is removed, and counts
         as absent.
Writing  Under a temporary name, then renamed: nobody reads half an entry, and of two writers the last one wins with the
         same bytes. Nothing is synced to disk: what a power cut leaves behind does not match its checksum.
Cap      Reading an entry sets its time of modification. When all of them pass the cap, those used longest ago go. A
         reader holds its file open, and an open file outlives its name (Windows does not give the name up), so none is
         taken away from under a reader.
Trouble  A cache that cannot be used is a cache that is empty: nothing here raises, and the first failure is kept as a
         sentence for the answer's warnings. A folder that belongs to somebody else, is reached by somebody else's link
         or can be written by everybody is not used, because whoever can write there can choose what a model sees.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["FrameCache", "cache_folder", "open_cache"]

VARIABLE = "GRIDPROBE_CACHE"
MAGIC = b"gridprobe-cache-1\n"
DIGEST = 32
ABANDONED_SECONDS = 3600.0
"""A temporary file older than this belongs to a process that died."""
LOOK_AGAIN = 8
"""A process counts the entries of others anew whenever it has written this part of the cap itself."""


def cache_folder() -> Path | None:
    """$GRIDPROBE_CACHE/frames, else gridprobe/frames where the XDG rules put caches; None if it says "off"."""
    named = os.environ.get(VARIABLE, "")
    if named == "off":
        return None
    if named:
        return Path(named).absolute() / "frames"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home directory
        return (given if given.is_absolute() else Path.home() / ".cache") / "gridprobe" / "frames"
    return None


def open_cache(cap: int) -> "FrameCache | None":
    """The user's cache, None where it is turned off."""
    folder = cache_folder() if cap else None
    return FrameCache(folder, cap) if folder else None


class FrameCache:
    """A folder of entries."""

    def __init__(self, folder: Path, cap: int) -> None:
        self.folder = folder
        self.cap = cap
        self.trouble: str | None = None
        """Why the cache cannot be used, or not be written."""
        self._usable = self._is_ours()
        self._room = 0

    def read(self, key: str) -> bytes | None:
        """The content of an entry."""
        if not self._usable:
            return None
        path = self._path(key)
        try:
            whole = path.read_bytes()
        except FileNotFoundError:  # never written, or gone since: both mean that it has to be made
            return None
        except OSError as error:
            self._note(error, "read")
            return None
        content = whole[len(MAGIC) + DIGEST :]
        if whole[: len(MAGIC) + DIGEST] != MAGIC + _digest(key, content):
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # a cache that can only be read is still a cache
            os.utime(path)
        return content

    def write(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Keep these contents, and make room for them."""
        for key, content in entries:
            if self.trouble or not self._usable:
                return
            try:
                self._write(self._path(key), MAGIC + _digest(key, content) + content)
            except OSError as error:
                self._note(error, "written")
                return
            self._room -= len(content)
        if self._room < 0 and self._usable:
            self._trim()

    def remove(self, key: str) -> None:
        """Drop an entry whose content makes no sense."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def size(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        found = [status.st_size for _, status in self._entries()] if self._usable else []
        return len(found), sum(found)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / name

    def _write(self, path: Path, whole: bytes) -> None:
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(whole)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):  # there is none left if all went well
                os.unlink(temporary)

    def _trim(self) -> None:
        """Remove what was used longest ago, down to nine tenths of the cap."""
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime_ns)
        total = sum(status.st_size for _, status in entries)
        goal = self.cap if total <= self.cap else self.cap * 9 // 10
        for path, status in entries:
            if total <= goal:
                break
            with contextlib.suppress(OSError):  # another process was faster, or the name is held
                os.unlink(path)
            total -= status.st_size
        self._room = min(self.cap - total, self.cap // LOOK_AGAIN)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """All entries, and what processes left behind when they died; nothing else in the folder is ever touched."""
        for shelf in _listed(self.folder):
            for entry in _listed(shelf.path) if len(shelf.name) == 2 and shelf.is_dir(follow_symlinks=False) else ():
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    abandoned = entry.name.startswith("tmp") and time.time() - status.st_mtime > ABANDONED_SECONDS
                    if stat.S_ISREG(status.st_mode) and (len(entry.name) == 2 * DIGEST or abandoned):
                        yield entry.path, status

    def _is_ours(self) -> bool:
        """Whether the folder may be used: it is not there yet, or it is the user's own."""
        try:
            found = [os.lstat(self.folder), os.stat(self.folder)]
        except FileNotFoundError:
            return True
        except OSError as error:
            self._note(error, "read")
            return False
        user = os.getuid() if hasattr(os, "getuid") else found[0].st_uid
        if not stat.S_ISDIR(found[1].st_mode):
            self.trouble = f"the frame cache {self.folder} is not used: it is not a folder"
        elif any(status.st_uid != user for status in found):
            self.trouble = f"the frame cache {self.folder} is not used: it belongs to somebody else"
        elif found[1].st_mode & stat.S_IWOTH:
            self.trouble = f"the frame cache {self.folder} is not used: everybody can write to it"
        return self.trouble is None

    def _note(self, error: OSError, what: str) -> None:
        self.trouble = self.trouble or f"the frame cache {self.folder} cannot be {what} ({error.strerror})"


def _listed(folder: str | Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed meanwhile
        return []


def _digest(key: str, content: bytes) -> bytes:
    """Over the key too, so that a file under another entry's name does not pass for it."""
    digest = hashlib.sha256(key.encode() + b"\n")
    digest.update(content)
    return digest.digest()
