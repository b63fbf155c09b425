"""Which video a request means: an upload, a file of the allowed folder, the media itself, or an address."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote_to_bytes

from gridprobe.serving.bounds import Bounds
from gridprobe.serving.fetch import Fetcher
from gridprobe.serving.folder import AllowedFolder, AllowedRoots
from gridprobe.serving.refusals import Refusal
from gridprobe.serving.shelf import Blob, Shelf
from gridprobe.text import printable
from gridprobe.video.files import fingerprint_of

__all__ = ["Frames", "Remote", "Source", "Sources", "data_of", "shown"]

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
MOST_PARTS = 10_000
"""Pictures in one data: address, whatever the server's own limit is."""
SHOWN = 120
"""Longest name of a video."""


@dataclass(frozen=True)
class Source:
    """A video on disk."""

    key: str
    """The same for the same content."""
    path: Path
    name: str
    """What clients see."""
    fingerprint: str | None = None
    """Of the descriptor that was checked; what is opened later must have the same."""
    blob: Blob | None = None

    @property
    def private(self) -> bool:
        """Whether it came with a request, so that nothing of it may outlive the server."""
        return self.blob is not None


@dataclass(frozen=True)
class Remote:
    """A video that is still to be fetched."""

    url: str


@dataclass(frozen=True)
class Frames:
    """Pictures, as `data:` addresses or base64, with their times in seconds."""

    pictures: Sequence[str]
    times: Sequence[float]


def shown(name: str) -> str:
    """A name that is safe to show: no folders, no control characters, not long."""
    return printable(name.replace("\\", "/").rpartition("/")[2].encode("utf-8", "replace").decode())[:SHOWN] or "video"


class Sources:
    """Finds videos; a source that is found is held until `release`."""

    def __init__(
        self,
        shelf: Shelf,
        bounds: Bounds,
        *,
        folder: AllowedFolder | AllowedRoots | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.shelf = shelf
        self.folder = folder
        self._bounds = bounds
        self._fetcher = fetcher
        self.of_session: Callable[[str], Source] | None = None

    @property
    def fetches(self) -> bool:
        """Whether addresses may be named."""
        return self._fetcher is not None

    def find(self, named: str | Frames) -> Source | Remote:
        """The video that a request names; only addresses are left for later."""
        if isinstance(named, Frames):
            return self._pictures(named)
        scheme = match[1].lower() if (match := SCHEME.match(named)) else ""
        if scheme in ("http", "https"):
            if self._fetcher is None:
                message = "this server does not fetch addresses (--allow-urls); upload the video"
                raise Refusal(message, status=403, code="not_allowed")
            return Remote(named)
        if scheme == "data":
            return self._inline(named)
        if scheme == "upload":
            upload = self.shelf.find(named.removeprefix(match[0]).lstrip("/") if match else "")
            return self._of(self.shelf.hold(upload.blob), upload.name)
        if scheme == "session" and self.of_session is not None and match:
            found = self.of_session(named.removeprefix(match[0]).lstrip("/"))
            return replace(found, blob=self.shelf.hold(found.blob)) if found.blob else found
        if scheme not in ("", "file"):
            raise Refusal(f"a video cannot be named by {printable(scheme)[:20]!r} addresses", code="bad_address")
        return self._in_folder(named)

    @contextmanager
    def at_hand(self, source: Source | Remote) -> Iterator[Source]:
        """The source on disk, fetched if need be; released at the end."""
        found = self._fetched(source) if isinstance(source, Remote) else source
        try:
            yield found
        finally:
            self.release(found)

    def release(self, source: Source | Remote) -> None:
        """The caller does not need it any more."""
        if isinstance(source, Source) and source.blob is not None:
            self.shelf.drop(source.blob)

    def held(self, source: Source) -> Source:
        """The same source, held once more."""
        return replace(source, blob=self.shelf.hold(source.blob)) if source.blob else source

    def _fetched(self, remote: Remote) -> Source:
        assert self._fetcher is not None
        with self.shelf.receiving(self._bounds.max_upload) as incoming:
            self._fetcher.fetch(remote.url, incoming.write)
            name = remote.url.partition("?")[0]
            return self._of(self.shelf.keep(incoming), shown(name))

    def _inline(self, url: str) -> Source:
        kind, parts = data_of(url, many=True)
        if kind in ("video/jpeg", "video/png", "video/webp"):
            return self._pictures(Frames([f"data:image;base64,{part}" for part in parts], range(len(parts))))
        if not kind.startswith("video/") and kind not in ("application/octet-stream", "image/gif", "application/mp4"):
            raise Refusal(f"data of the type {printable(kind)[:40]!r} is not video", code="not_video")
        if len(parts) > 1:
            raise Refusal("a data: address of a video has one comma", code="bad_address")
        with self.shelf.receiving(self._bounds.max_upload) as incoming:
            incoming.write(_decoded(parts[0]))
            return self._of(self.shelf.keep(incoming), "video")

    def _pictures(self, frames: Frames) -> Source:
        if not 1 <= len(frames.pictures) <= self._bounds.max_pictures:
            most = self._bounds.max_pictures
            raise Refusal(f"a video of pictures has 1 to {most} of them, got {len(frames.pictures)}", code="too_many")
        pictures = [_decoded(data_of(each)[1][0]) for each in frames.pictures]
        return self._of(self.shelf.keep_pictures(pictures, [float(time) for time in frames.times]), "pictures")

    def _in_folder(self, name: str) -> Source:
        if self.folder is None:
            message = "this server has no folder of videos (--videos); upload the video"
            raise Refusal(message, status=403, code="not_allowed")
        with self.folder.opened(name) as (handle, path):
            fingerprint = fingerprint_of(handle)
        return Source(f"file:{path}:{fingerprint}", path, shown(path.name), fingerprint)

    def _of(self, blob: Blob, name: str) -> Source:
        return Source(f"sha256:{blob.sha256}", blob.path, name, None, blob)


def data_of(url: str, *, many: bool = False) -> tuple[str, list[str]]:
    """The media type of a base64 data: address, and its content; several, separated by commas, with `many`."""
    head, comma, content = url.partition(",")
    fields = [field.strip() for field in head[5:].split(";")]
    if not url[:5].lower() == "data:" or not comma or "base64" not in [field.lower() for field in fields[1:]]:
        raise Refusal("media in a request must be a data: address with base64", code="bad_address")
    if content.count(",") > MOST_PARTS:
        raise Refusal(f"a data: address may have at most {MOST_PARTS} pictures", code="too_many")
    return fields[0].lower() or "text/plain", content.split(",") if many else [content]


def _decoded(text: str) -> bytes:
    try:
        if "%" in text:
            text = unquote_to_bytes(text).decode("ascii")
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("the base64 of a data: address is damaged", code="bad_base64") from None
