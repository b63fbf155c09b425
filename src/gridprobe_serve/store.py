"""Shelf: media on disk, stored once by content, within a quota; and uploads, which name some of it."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from urllib.parse import unquote, urlsplit

from gridprobe.errors import UsageError
from gridprobe_serve.jobs import ApiError, Left, check_descriptors, left_in, new_id, not_found

__all__ = ["AllowedFolder", "AllowedRoots", "Blob", "Incoming", "Listed", "MediaStore", "Upload"]

PREFIX = "gridprobe-serve-"
LOCK = "in-use"
MOST_UPLOADS = 4096
"""Uploads, however small, that are kept; the least recently used one makes room for another."""
ABANDONED_SECONDS = 3600.0
"""A folder without a lock that is older than this was left by a server that died at its start or end."""
SIGNATURES = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG\r\n", ".png"), (b"RIFF", ".webp"), (b"BM", ".bmp"))


@dataclass(eq=False)
class Blob:
    """A file, or a folder of pictures, that is deleted when nobody holds it."""

    sha256: str
    path: Path
    size: int
    holders: int = 0


@dataclass(frozen=True)
class Upload:
    """A blob with an id and the name that its owner gave it."""

    id: str
    name: str
    blob: Blob
    created: float


@dataclass(eq=False)
class Incoming:
    """A file that is being received."""

    path: Path
    handle: int | None
    most: int
    room: Callable[[int], None]
    size: int = 0
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def write(self, data: bytes) -> None:
        """Append some bytes; 413 past the size limit, 507 past the quota or on a full disk."""
        if self.size + len(data) > self.most:
            raise ApiError(f"the file is larger than {self.most} bytes", status=413, code="too_large")
        self.room(len(data))
        assert self.handle is not None
        left = memoryview(data)
        with _storing():
            while left:
                left = left[os.write(self.handle, left) :]
        self.size += len(data)
        self.digest.update(data)

    def close(self) -> None:
        """No more will be written; an OSError if not everything is stored."""
        if self.handle is not None:
            handle, self.handle = self.handle, None
            os.close(handle)


class MediaStore:
    """A private temporary folder; it is deleted at the end, and after a crash at the next start."""

    def __init__(self, *, quota: int, parent: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        """An empty shelf.

        Args:
            quota: bytes that all media together may take.
            parent: where the folder is made.
            clock: seconds.
        """
        place = Path(parent or tempfile.gettempdir())
        self.left: list[Left] = []
        """Jobs of servers that did not end properly."""
        with suppress(OSError):  # the next server tries again
            for folder in place.glob(f"{PREFIX}*"):
                self.left += _remove_left_behind(folder)
        self.folder, self._lock_handle = _locked_folder(place)
        self.quota = quota
        self._clock = clock
        self._lock = RLock()
        self._blobs: dict[str, Blob] = {}
        self._uploads: OrderedDict[str, Upload] = OrderedDict()
        self._incoming: set[Incoming] = set()
        self._undeleted: dict[Path, int] = {}
        """Files and folders that could not be deleted, with their sizes; it is tried again."""

    @property
    def size(self) -> int:
        """Bytes in use, with what is being received, and what could not be deleted."""
        stored = sum(each.size for each in self._blobs.values()) + sum(self._undeleted.values())
        return stored + sum(each.size for each in self._incoming)

    @property
    def uploads(self) -> int:
        """How many uploads there are."""
        return len(self._uploads)

    def close(self) -> None:
        """Delete everything; what cannot be deleted now is deleted when a server starts."""
        with suppress(OSError):  # it is closed in any case
            os.close(self._lock_handle)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def receiving(self, most: int) -> Iterator[Incoming]:
        """A new file of at most so many bytes; it is deleted unless `keep` or `upload` takes it."""
        path = self.folder / f"incoming-{new_id()}"
        with _storing():
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        incoming = Incoming(path, handle, most, self._make_room)
        with self._lock:
            self._incoming.add(incoming)
        try:
            yield incoming
        finally:
            with suppress(OSError):  # what is kept was closed before
                incoming.close()
            with self._lock:
                self._incoming.discard(incoming)
                self._delete(path, incoming.size)

    def keep(self, incoming: Incoming) -> Blob:
        """What was received as a blob that the caller holds."""
        with _storing():
            incoming.close()
            return self._keep(incoming.digest.hexdigest(), incoming.path, incoming.size)

    def keep_pictures(self, pictures: Sequence[bytes], times: Sequence[float]) -> Blob:
        """Pictures as a folder blob that the caller holds."""
        total = sum(map(len, pictures))
        self._make_room(total)
        digest = hashlib.sha256(json.dumps(list(times)).encode())
        with _storing():
            folder = Path(tempfile.mkdtemp(prefix="pictures-", dir=self.folder))
        try:
            with _storing():
                for number, picture in enumerate(pictures):
                    (folder / f"{number:06}{_ending(picture, number + 1)}").write_bytes(picture)
                    digest.update(hashlib.sha256(picture).digest())
                (folder / "times.json").write_text(json.dumps(list(times)))
                return self._keep(digest.hexdigest(), folder, total)
        finally:
            with self._lock:
                self._delete(folder, total)

    def upload(self, incoming: Incoming, name: str) -> Upload:
        """What was received, under an id."""
        if incoming.size == 0:
            raise ApiError("the body is empty; send the file as the body", code="empty_body")
        found = Upload(new_id(), name, self.keep(incoming), self._clock())
        with self._lock:
            while len(self._uploads) >= MOST_UPLOADS:
                self.remove(next(iter(self._uploads)))
            self._uploads[found.id] = found
        return found

    def find(self, id: str) -> Upload:
        """The upload with this id; it counts as used now."""
        with self._lock:
            if id not in self._uploads:
                raise not_found("upload")
            self._uploads.move_to_end(id)
            return self._uploads[id]

    def remove(self, id: str) -> None:
        """Forget an upload; its content goes when no session uses it."""
        with self._lock:
            found = self.find(id)
            del self._uploads[id]
            self.drop(found.blob)

    def hold(self, blob: Blob) -> Blob:
        """Keep a blob until `drop`."""
        with self._lock:
            blob.holders += 1
            return blob

    def drop(self, blob: Blob) -> None:
        """The caller does not need a blob any more."""
        with self._lock:
            blob.holders -= 1
            if blob.holders > 0 or self._blobs.get(blob.sha256) is not blob:
                return
            del self._blobs[blob.sha256]
            self._delete(blob.path, blob.size)

    def _delete(self, path: Path, size: int) -> None:
        """Delete a file or folder if it exists, and what could not be deleted before."""
        self._undeleted[path] = size
        for each in list(self._undeleted):
            with suppress(OSError):  # it stays in the list
                if each.is_dir():
                    shutil.rmtree(each)
                else:
                    each.unlink(missing_ok=True)
                del self._undeleted[each]

    def _keep(self, sha256: str, path: Path, size: int) -> Blob:
        with self._lock:
            known = self._blobs.get(sha256)
            if known is None:
                known = Blob(sha256, self.folder / f"{sha256}-{new_id()}", size)  # an old one may be undeleted
                os.rename(path, known.path)
                self._blobs[sha256] = known
            return self.hold(known)

    def _make_room(self, more: int) -> None:
        """Forget uploads that no session uses, least recently used first, until so many bytes fit."""
        with self._lock:
            for upload in list(self._uploads.values()):
                if self.size + more <= self.quota:
                    return
                if upload.blob.holders == 1:
                    self.remove(upload.id)
            if self.size + more > self.quota:
                raise _full()


@contextmanager
def _storing() -> Iterator[None]:
    """Turn an OSError of the disk into a refusal: 507 if it is full, 503 if it fails."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full() from None
        message = f"the server cannot store the video ({error.strerror}); try again later"
        raise ApiError(message, status=503, code="disk_error") from None


def _ending(picture: bytes, number: int) -> str:
    """The ending of a picture's file."""
    ending = next((ending for start, ending in SIGNATURES if picture.startswith(start)), None)
    if ending is None:
        raise ApiError(f"picture {number} is neither JPEG, PNG, WebP nor BMP", status=422, code="unusable_video")
    return ending


def _full() -> ApiError:
    return ApiError("there is no room for more videos; delete uploads, or try again later", status=507, code="no_room")


def _locked_folder(place: Path) -> tuple[Path, int]:
    """A new folder, and a descriptor that holds its lock."""
    try:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
            stack.pop_all()
    except OSError as error:
        raise UsageError(f"cannot store uploads in {place}: {error.strerror}; set TMPDIR to another folder") from error
    return folder, handle


def _remove_left_behind(folder: Path) -> list[Left]:
    """Delete the folder of a server that did not end properly, whose lock nobody holds; returns its unfinished jobs."""
    left: list[Left] = []
    with suppress(OSError):  # it is in use, or somebody else's
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if time.time() - folder.lstat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
            return left
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = left_in(folder)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
    return left


# Files under an allowed folder, checked on the opened descriptor: no "..", no symbolic links, regular files only.

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
                except ApiError as refusal:
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


def _refused() -> ApiError:
    return ApiError(
        "this file is not one that requests may name; see GET /v1/gridprobe/videos", status=403, code="not_allowed"
    )
