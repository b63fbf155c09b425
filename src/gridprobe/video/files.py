"""VideoFile: a path that was checked to be a regular, readable, non-empty file before FFmpeg opens it.

FFmpeg treats names as URLs and follows scripts by content, so it only ever gets `VideoFile.url`: "file:" and the
absolute real path, which no part of FFmpeg takes for a protocol or an option.
"""

import errno
import hashlib
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from gridprobe._util import is_utf8
from gridprobe.errors import UsageError, VideoError

EDGE = 64 * 1024
"""Bytes at each end of the file that are part of the fingerprint."""

MAX_BOXES = 10_000
"""MP4 boxes read in search of the index; real files have a handful, a hostile file can have millions."""

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"#EXTM3U", "hls"),
    (b"ffconcat", "concat"),
    (b"v=0", "sdp"),
    (b";FFMETADATA", "ffmetadata"),
    (b"<?xml", "xml or dash"),
    (b"<MPD", "dash"),
    (b"\x89PNG", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"%PDF", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"ID3", "mp3"),
    *((bytes([0xFF, byte]), "mp3") for byte in (0xFB, 0xF3, 0xF2)),
    *((bytes([0xFF, byte]), "aac") for byte in (0xF1, 0xF9)),
    (b"fLaC", "flac"),
    (b"version https://git-lfs", "a git-lfs pointer"),
    (b"<!DOCTYPE html", "html"),
    (b"<html", "html"),
)

SOUND = ("mp3", "aac", "flac", "wav")

PACKET, SYNC = 188, 0x47
"""Length and first byte of a packet of an MPEG transport stream."""
PLACES, BLOCK = 64, 128 * 1024
"""Where its clock is read: at the beginnings of at most that many equal parts of the file, in that many bytes."""
WRAP = 1 << 33
"""The clock counts 90,000 ticks a second and starts again here, after 26 hours, which is no restart."""
SLACK = 90_000
"""By how much the clock may go back."""

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""How a URL begins, also after pathlib has made one slash of two."""
REASONS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "the file cannot be read (permission denied)",
    errno.EPERM: "the file cannot be read (permission denied)",
    errno.ELOOP: "the symbolic links form a loop",
    errno.ENAMETOOLONG: "the file name is too long",
    errno.ENOTDIR: "a part of the path is not a directory",
}


@dataclass(frozen=True)
class VideoFile:
    """A regular file and the identity of its content."""

    name: str
    """The path as the caller wrote it, safe to print on one line."""
    path: str
    """The absolute path, with symbolic links resolved."""
    size: int
    head: bytes
    fingerprint: str
    identity: tuple[int, ...]
    """Device, inode, size and modification time; if any differs, so may the content."""

    @property
    def url(self) -> str:
        """The address that FFmpeg opens."""
        return "file:" + self.path


def check_file(path: str | os.PathLike[str]) -> VideoFile:
    """The file at `path`; VideoError unless it is a regular, readable, non-empty file."""
    text, name = os.fsdecode(path), shown_name(path)
    if "\0" in text or not is_utf8(text):
        raise VideoError(f"{name}: the file name is not valid text; rename the file")
    try:
        real = os.path.realpath(text, strict=True)
        # stat before open: opening a device can have side effects, and opening a FIFO can block.
        _check_kind(name, os.stat(real))
        handle = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(handle)
            _check_kind(name, status)
            head, tail = os.pread(handle, EDGE, 0), os.pread(handle, EDGE, max(0, status.st_size - EDGE))
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno == errno.ENOENT and ADDRESS.match(text):
            name = name.replace(":/", "://", 1) if "://" not in name else name
            way = "download the video first, for example with yt-dlp, and name the file"
            raise VideoError(f"{name} is an address, and gridprobe reads files; {way}") from None
        raise VideoError(f"{name}: {REASONS.get(error.errno or 0, error.strerror or 'cannot be read')}") from None
    return VideoFile(name, real, status.st_size, head, _fingerprint(status, head, tail), _identity(status))


def shown_name(path: str | os.PathLike[str]) -> str:
    """A path that is safe to print on one line."""
    return "".join(c if c.isprintable() else "�" for c in os.fsdecode(path)) or "''"


@contextmanager
def unchanged(file: VideoFile) -> Iterator[None]:
    """Raise VideoError if the file was deleted, replaced or modified between its check and the end of the block.

    A video is opened several times, so without this its frames could come from two files under one fingerprint.
    """
    _check_unchanged(file)
    try:
        yield
    except VideoError:
        _check_unchanged(file)  # if it changed, that is the better explanation
        raise
    _check_unchanged(file)


def _check_unchanged(file: VideoFile) -> None:
    try:
        same = _identity(os.stat(file.path)) == file.identity
    except OSError:
        raise VideoError(f"{file.name}: the file was deleted or moved while it was in use") from None
    if not same:
        raise changed(file)


def changed(file: VideoFile) -> VideoError:
    """The error to raise when a file is not the one that was checked."""
    return VideoError(f"{file.name}: the file changed while it was in use; try again when it is complete")


def looks_like(head: bytes) -> str | None:
    """The name of a well-known format that is not video, recognised by its first bytes; None for anything else."""
    if head.startswith(b"\x89PNG") and b"acTL" in head[:1024]:  # animated
        return None
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "wav"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:32].lower()
    return next((name for signature, name in SIGNATURES if text.startswith(signature.lower())), None)


def lacks_index(file: VideoFile) -> bool:
    """Whether this is an MP4 without an index (moov box): an incomplete download or recording."""
    if file.head[4:8] not in {b"ftyp", b"mdat", b"wide", b"free", b"skip"}:
        return False
    try:
        with open(file.path, "rb") as handle:
            return not _has_index(handle, file.size)
    except OSError:  # deleted in the meantime
        return False


def _has_index(handle: BinaryIO, size: int) -> bool:
    """Whether there is a moov or moof box; also True if the boxes are malformed or more than MAX_BOXES."""
    offset = 0
    for _ in range(MAX_BOXES):
        if offset + 8 > size:
            return False
        handle.seek(offset)
        header = handle.read(16)
        length, kind = int.from_bytes(header[:4], "big"), header[4:8]
        if kind in {b"moov", b"moof"}:
            return True
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        if length < 8:  # 0 means "to the end of the file"; 2 to 7 is not a valid box
            return length != 0
        offset += length
    return True


def timestamps_restart(file: VideoFile) -> bool:
    """Whether the clock of an MPEG transport stream goes back between two places, as in joined recordings.

    FFmpeg seeks by timestamps, so of two parts with the same timestamps only one is ever found.
    """
    last: dict[int, int] = {}
    try:
        with open(file.path, "rb") as handle:
            for place in range(0, file.size, max(BLOCK, file.size // PLACES)):
                handle.seek(place)
                for stream, clock in _clocks(handle.read(BLOCK)):
                    before = last.get(stream, clock)
                    if SLACK < before - clock < WRAP // 2:
                        return True
                    last[stream] = clock
    except OSError:  # deleted in the meantime, which the next pass notices
        pass
    return False


def _clocks(block: bytes) -> list[tuple[int, int]]:
    """The program clock references in a block, with the numbers of their streams."""
    start = next((at for at in range(min(PACKET, len(block))) if _is_aligned(block, at)), None)
    clocks = []
    for at in range(start or 0, len(block) - 12 if start is not None else 0, PACKET):
        packet = block[at : at + 12]
        if packet[0] == SYNC and packet[3] & 0x20 and packet[4] >= 7 and packet[5] & 0x10:
            clock = int.from_bytes(packet[6:11], "big") >> 7
            clocks.append(((packet[1] & 0x1F) << 8 | packet[2], clock))
    return clocks


def _is_aligned(block: bytes, at: int) -> bool:
    return all(block[place] == SYNC for place in range(at, min(len(block), at + 5 * PACKET), PACKET))


def _check_kind(name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(f"{name}: this is a directory; name one video file in it")
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{name}: not a regular file (pipes, sockets and devices are refused)")
    if status.st_size == 0:
        raise VideoError(f"{name}: the file is empty")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _fingerprint(status: os.stat_result, head: bytes, tail: bytes) -> str:
    digest = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}\n".encode())
    digest.update(head)
    digest.update(tail)
    return digest.hexdigest()


def fingerprint_of(handle: int) -> str:
    """The fingerprint of an open file, as in `VideoFile` and `VideoInfo`."""
    status = os.fstat(handle)
    return _fingerprint(status, os.pread(handle, EDGE, 0), os.pread(handle, EDGE, max(0, status.st_size - EDGE)))


# VideoLimits: the largest video gridprobe accepts; Deadline: the clock that enforces the time limit.


@dataclass(frozen=True)
class VideoLimits:
    """Bounds checked against the header, before decoding; `seconds` is checked throughout."""

    max_pixels: int = 8192 * 8192
    """Largest frame: twice 8K, a quarter of 16384×16384."""
    max_duration: float = 48 * 3600.0
    max_streams: int = 64
    seconds: float = 120.0
    """Wall-clock time to open a video and decode its pool; a later pass has what opening left of it."""
    memory: int = 512 << 20
    """Bytes of decoded frames that a `Video`, and so a session, keeps in memory. Of large frames fewer are decoded in
    parallel, and where the frames that one decoder must hold take more, the video is refused."""
    process: int = 4 << 30
    """Bytes of address space of a child process that decodes; decoders never touch most of what they reserve."""
    cache: int = 2 << 30
    """Bytes of the frame cache on disk, which all processes share; 0 turns it off."""

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_duration", "max_streams", "seconds", "memory", "process", "cache"):
            value, least = getattr(self, name), 0 if name == "cache" else 1e-9
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise UsageError(f"{name} must be a number {'of at least' if least == 0 else 'above'} 0, got {value!r}")


@dataclass(frozen=True)
class Deadline:
    """The time limit of one video."""

    name: str
    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left, never zero because FFmpeg takes zero as "no limit"."""
        return max(0.001, self.started + self.seconds - time.monotonic())

    def check(self) -> None:
        """Raise VideoError once the time is up."""
        if time.monotonic() - self.started >= self.seconds:
            raise self.error()

    def error(self) -> VideoError:
        """The error to raise when the time is up."""
        return VideoError(
            f"{self.name}: decoding took longer than {self.seconds:g} s; "
            "raise the limit (--set limits.seconds=N, VideoLimits.seconds)"
        )
