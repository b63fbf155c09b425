"""FrameCache: decoded frames and plans on disk, shared by all processes and safe to delete at any time.

Entry    One file, named after the SHA-256 of its key; the key contains everything the content depends on. The file
         starts with a checksum (SHA-256 of key and content), followed by the content as plain bytes. An entry with a
         wrong checksum is removed and counts as absent.
Writing  To a temporary file that is then renamed: nobody reads a partial entry, and if two processes write one, the
         last wins with the same bytes. Nothing is synced to disk: after a power cut, partial entries fail the checksum.
Cap      Reading an entry sets its modification time. When the total exceeds the cap, the least recently used entries
         are removed. A reader keeps its file open, and an open file survives removal (Windows refuses the removal), so
         no reader loses an entry.
Failure  An unusable cache counts as empty: nothing here raises, and the first failure is kept as a sentence for the
         answer's warnings. A folder is not used if it or a link to it belongs to another user, or if everybody can
         write to it, because whoever can write there can choose what a model sees.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gridprobe.video.files import VideoFile
from gridprobe.video.frames import Pixels
from gridprobe.video.sampling import AUTO_FRACTION, SampleSpec

VARIABLE = "GRIDPROBE_CACHE"
MAGIC = b"gridprobe-cache-1\n"
DIGEST = 32
ABANDONED_SECONDS = 3600.0
"""A temporary file older than this was left by a process that died."""
LOOK_AGAIN = 8
"""A process counts all entries again whenever it has itself written 1/LOOK_AGAIN of the cap."""


def cache_folder() -> Path | None:
    """$GRIDPROBE_CACHE/frames, else gridprobe/frames in the XDG cache folder; None if it is "off" in any case."""
    named = os.environ.get(VARIABLE, "")
    if named.strip().lower() == "off":
        return None
    if named:
        return Path(named).absolute() / "frames"
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home directory
        return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "gridprobe" / "frames"
    return None


def open_cache(cap: int) -> "FrameCache | None":
    """The user's cache; None if it is turned off."""
    folder = cache_folder() if cap else None
    return FrameCache(folder, cap) if folder else None


class FrameCache:
    """A folder of cache entries."""

    def __init__(self, folder: Path, cap: int) -> None:
        self.folder = folder
        self.cap = cap
        self.warning: str | None = None
        """Why the cache cannot be used, or cannot be written to."""
        self._usable = self._is_ours()
        self._room = 0

    def read(self, key: str) -> bytes | None:
        """The content of an entry; None if there is no valid one."""
        if not self._usable:
            return None
        path = self._path(key)
        try:
            whole = path.read_bytes()
        except FileNotFoundError:  # never written, or removed since
            return None
        except OSError as error:
            self._set_warning(error, "read")
            return None
        content = whole[len(MAGIC) + DIGEST :]
        if whole[: len(MAGIC) + DIGEST] != MAGIC + _digest(key, content):
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # a read-only cache is still useful
            os.utime(path)
        return content

    def write(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Store these entries, and remove old ones to make room."""
        for key, content in entries:
            if self.warning or not self._usable:
                return
            try:
                self._write(self._path(key), MAGIC + _digest(key, content) + content)
            except OSError as error:
                self._set_warning(error, "written")
                return
            self._room -= len(content)
        if self._room < 0 and self._usable:
            self._trim()

    def remove(self, key: str) -> None:
        """Remove an entry with invalid content."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def size(self) -> tuple[int, int]:
        """The number of entries and their total bytes."""
        sizes = [status.st_size for _, status in self._entries()] if self._usable else []
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove all entries, except those that another process holds open where that prevents it."""
        for path, _ in self._entries() if self._usable else ():
            with contextlib.suppress(OSError):
                os.unlink(path)

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
            with contextlib.suppress(OSError):  # after the rename it does not exist
                os.unlink(temporary)

    def _trim(self) -> None:
        """Remove abandoned files, and if the cap is exceeded the least recently used entries, down to 9/10 of it."""
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime_ns)
        total = sum(status.st_size for _, status in entries)
        goal = self.cap if total <= self.cap else self.cap * 9 // 10
        for path, status in entries:
            if total <= goal and not _is_temporary(path):
                continue
            with contextlib.suppress(OSError):  # another process was faster, or the file is in use
                os.unlink(path)
            total -= status.st_size
        self._room = min(self.cap - total, self.cap // LOOK_AGAIN)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """All entries and abandoned temporary files; nothing else in the folder is ever touched."""
        for sub in _list(self.folder):
            for entry in _list(sub.path) if len(sub.name) == 2 and sub.is_dir(follow_symlinks=False) else ():
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    abandoned = _is_temporary(entry.path) and time.time() - status.st_mtime > ABANDONED_SECONDS
                    if stat.S_ISREG(status.st_mode) and (len(entry.name) == 2 * DIGEST or abandoned):
                        yield entry.path, status

    def _is_ours(self) -> bool:
        """Whether the folder may be used: it does not exist yet, or it is the user's own."""
        try:
            statuses = [os.lstat(self.folder), os.stat(self.folder)]
        except FileNotFoundError:
            return True
        except OSError as error:
            self._set_warning(error, "read")
            return False
        user = os.getuid() if hasattr(os, "getuid") else statuses[0].st_uid
        if not stat.S_ISDIR(statuses[1].st_mode):
            self.warning = f"the frame cache {self.folder} is not used: it is not a folder"
        elif any(status.st_uid != user for status in statuses):
            self.warning = f"the frame cache {self.folder} is not used: it belongs to another user"
        elif statuses[1].st_mode & stat.S_IWOTH:
            self.warning = f"the frame cache {self.folder} is not used: everybody can write to it"
        return self.warning is None

    def _set_warning(self, error: OSError, what: str) -> None:
        self.warning = self.warning or f"the frame cache {self.folder} cannot be {what} ({error.strerror})"


def _is_temporary(path: str) -> bool:
    """Whether this is the name of a file that is still written, or was when its process died."""
    return os.path.basename(path).startswith(tempfile.gettempprefix())


def _list(folder: str | Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed in the meantime
        return []


def _digest(key: str, content: bytes) -> bytes:
    """A checksum of key and content, so that a file under another entry's name does not match."""
    digest = hashlib.sha256(key.encode() + b"\n")
    digest.update(content)
    return digest.digest()


FORMAT = 3
"""Part of every key; raised when the same file, time and size give other pixels, or the same spec other times."""


def frame_key(*, decoder: str, source: str, time: float, size: tuple[int, int]) -> str:
    """Identifies a frame and the decoder that made it."""
    return f"frame {FORMAT}\n{decoder}\n{source}\n{time!r}\n{size[0]}x{size[1]}"


def plan_key(file: VideoFile, spec: SampleSpec, decoder: str) -> str:
    """Everything a plan depends on, including the limits: a cached plan must not get around them."""
    limits = spec.limits
    sample = f"{spec.num_frames} {spec.sampling} {spec.precision} {AUTO_FRACTION}"
    sample += f" {spec.segments}" if spec.segments else ""
    sample += "" if spec.stream is None else f" stream {spec.stream}"
    sample += "" if spec.window is None else f" window {spec.window}"
    bounds = f"{limits.max_pixels} {limits.max_duration} {limits.max_streams}"
    return f"plan {FORMAT}\n{decoder}\n{file.fingerprint}\n{sample}\n{bounds}"


# MemoryCache: decoded frames in memory, at every size they were decoded at, up to a limit in bytes.

Key = tuple[tuple[int, int], int]
"""Size and pts, which identify a frame of one video."""


class MemoryCache:
    """Keeps frames in the arrays they were decoded into, uncopied; evicts whole arrays, least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: OrderedDict[int, tuple[list[Key], Pixels]] = OrderedDict()
        self._places: dict[Key, tuple[int, int]] = {}
        self._added = 0

    @property
    def bytes(self) -> int:
        """Bytes in use."""
        return sum(pixels.nbytes for _, pixels in self._batches.values())

    def put(self, size: tuple[int, int], pts_list: Sequence[int], pixels: Pixels) -> None:
        """Keep these frames, unless they alone exceed the limit."""
        if pixels.nbytes > self._limit:
            return
        keys = [(size, pts) for pts in pts_list]
        self._added += 1
        self._batches[self._added] = keys, pixels
        self._places.update({key: (self._added, row) for row, key in enumerate(keys)})
        while self.bytes > self._limit:
            number, (evicted, _) = self._batches.popitem(last=False)
            for key in evicted:
                if self._places.get(key, (0, 0))[0] == number:
                    del self._places[key]

    def get(self, size: tuple[int, int], pts: int) -> Pixels | None:
        """One frame, if it is in the cache."""
        batch, row = self._places.get((size, pts), (0, 0))
        if not batch:
            return None
        self._batches.move_to_end(batch)
        frame: Pixels = self._batches[batch][1][row]
        return frame

    def batch(self, size: tuple[int, int], pts_list: Sequence[int]) -> Pixels | None:
        """The array that holds exactly these frames, if there is one; it needs no copy."""
        keys = [(size, pts) for pts in pts_list]
        batch, _ = self._places.get(keys[0], (0, 0)) if keys else (0, 0)
        batch_keys, pixels = self._batches.get(batch, ([], None))
        if not keys or batch_keys != keys:
            return None
        self._batches.move_to_end(batch)
        return pixels
