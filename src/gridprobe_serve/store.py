"""MediaStore: uploads and fetched videos on disk, within a quota. AllowedFolders: the host's own videos."""

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
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import RLock
from urllib.parse import unquote, urlsplit

from gridprobe.errors import UsageError
from gridprobe_serve.errors import ApiError, check_descriptors, new_id, not_found
from gridprobe_serve.jobs import UnfinishedJob, unfinished_in

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

    def __init__(self, *, quota: int, parent: Path | None = None) -> None:
        """An empty store.

        Args:
            quota: bytes that all media may take.
            parent: where the folder is made.
        """
        place = Path(parent or tempfile.gettempdir())
        self.unfinished: list[UnfinishedJob] = []
        """Jobs of servers that did not end properly."""
        with suppress(OSError):  # the next server tries again
            for folder in place.glob(f"{PREFIX}*"):
                self.unfinished += _remove_left_behind(folder)
        self.folder, self._lock_handle = _locked_folder(place)
        self.quota = quota
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
        """A new file of at most that many bytes; it is deleted unless `keep` or `upload` takes it."""
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
        stored = Upload(new_id(), name, self.keep(incoming))
        with self._lock:
            while len(self._uploads) >= MOST_UPLOADS:
                self.remove(next(iter(self._uploads)))
            self._uploads[stored.id] = stored
        return stored

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
            self.drop(self.find(id).blob)
            del self._uploads[id]

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
            if sha256 not in self._blobs:
                blob = Blob(sha256, self.folder / f"{sha256}-{new_id()}", size)  # an old one may be undeleted
                os.rename(path, blob.path)
                self._blobs[sha256] = blob
            return self.hold(self._blobs[sha256])

    def _make_room(self, more: int) -> None:
        """Forget uploads that no session uses, least recently used first, until that many bytes fit."""
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
    """Turn an OSError of the disk into an ApiError: 507 if it is full, 503 if it fails."""
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


def _remove_left_behind(folder: Path) -> list[UnfinishedJob]:
    """Delete the folder of a server that did not end properly, whose lock nobody holds; returns its unfinished jobs."""
    unfinished: list[UnfinishedJob] = []
    with suppress(OSError):  # it is in use, or somebody else's
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if time.time() - folder.lstat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
            return unfinished
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unfinished = unfinished_in(folder)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
    return unfinished


OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
ENDINGS = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".mpg", ".mpeg", ".flv", ".wmv", ".ogv", ".gif"}
)
MOST_LISTED = 1000
DEEPEST = 16


@dataclass(frozen=True)
class ListedVideo:
    """A file that can be named in a request."""

    name: str
    bytes: int


@dataclass(frozen=True)
class AllowedFolders:
    """Folders whose files requests may name; a relative name is looked for in each.

    A file is checked on its opened descriptor: no "..", no symbolic links, regular files only.
    """

    roots: tuple[Path, ...]

    @classmethod
    def at(cls, *folders: Path) -> "AllowedFolders":
        """The folders, unless one is missing or the root of everything."""
        roots = tuple(Path(os.path.realpath(each)) for each in folders)
        for folder, root in zip(folders, roots, strict=True):
            if not root.is_dir():
                raise UsageError(f"the folder of videos {str(folder)!r} (--videos, --root) is not a folder")
            if root == Path(root.anchor):
                message = "/ as folder of videos (--videos, --root) would let requests read every file"
                raise UsageError(f"{message}; name a folder below it")
        return cls(roots)

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, Path]]:
        """An open descriptor of a file, and its path. Errors do not say whether the file exists."""
        with ExitStack() as stack:
            for root in self.roots:
                try:
                    opened = stack.enter_context(_opened(root, name))
                    break
                except ApiError as error:
                    if error.status != 403:
                        raise
            else:
                raise _not_allowed()
            yield opened

    def listed(self) -> list[ListedVideo]:
        """The videos in all folders, by name; by their whole paths if there are several folders."""
        videos: list[ListedVideo] = []
        for root in self.roots:
            place = f"{root}/" if len(self.roots) > 1 else ""
            videos += [ListedVideo(f"{place}{name}", size) for name, size in islice(_videos_below(root), MOST_LISTED)]
        return videos


def parts_below(root: Path, name: str) -> tuple[str, ...]:
    """The names of folders and file below a root. A file: address must name a path under it."""
    if name.lower().startswith("file:"):
        address = urlsplit(name)
        if address.netloc not in ("", "localhost") or address.query or address.fragment:
            raise _not_allowed()
        name = unquote(address.path)
    if name.startswith("/"):
        try:
            name = str(Path(os.path.normpath(name)).relative_to(root)) if ".." not in name.split("/") else ".."
        except ValueError:
            raise _not_allowed() from None
    parts = tuple(name.split("/"))
    if not 1 <= len(parts) <= DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise _not_allowed()
    return parts


@contextmanager
def _opened(root: Path, name: str) -> Iterator[tuple[int, Path]]:
    """An open descriptor of a file below a root, and its path."""
    *folders, file = parts = parts_below(root, name)
    with ExitStack() as stack:
        try:
            handle = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            stack.callback(os.close, handle)
            for folder in folders:
                handle = os.open(folder, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=handle)
                stack.callback(os.close, handle)
            # The type is checked before opening, which can block or have side effects, and after it.
            regular = stat.S_ISREG(os.stat(file, dir_fd=handle, follow_symlinks=False).st_mode)
            if regular:
                handle = os.open(file, OPEN_FLAGS, dir_fd=handle)
                stack.callback(os.close, handle)
                regular = stat.S_ISREG(os.fstat(handle).st_mode)
        except OSError as error:
            check_descriptors(error)
            raise _not_allowed() from None
        except ValueError:
            raise _not_allowed() from None
        if not regular:
            raise _not_allowed()
        yield handle, root.joinpath(*parts)


def _videos_below(root: Path) -> Iterator[tuple[str, int]]:
    """Name and size of the videos below a folder."""
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for path in (Path(folder, file) for file in sorted(files)):
            name = path.relative_to(root).as_posix()
            if path.suffix.lower() in ENDINGS and not path.name.startswith(".") and name.isprintable():
                with suppress(OSError):  # gone in the meantime
                    about = path.lstat()
                    if stat.S_ISREG(about.st_mode):
                        yield name, about.st_size


def _not_allowed() -> ApiError:
    message = "this file is not one that requests may name; see GET /v1/gridprobe/videos"
    return ApiError(message, status=403, code="not_allowed")
