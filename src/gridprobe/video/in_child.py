"""InChild: videos that are opened and decoded in a child process; what comes back is checked, then used as values."""

import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.cores import usable_cores
from gridprobe.errors import VideoError
from gridprobe.video.cache_codec import checked_info
from gridprobe.video.children import ask_child
from gridprobe.video.clip import Checked
from gridprobe.video.decode import FileClip
from gridprobe.video.files import VideoFile, shown_name
from gridprobe.video.frames import Pixels
from gridprobe.video.info import VideoInfo
from gridprobe.video.pictures import FolderClip
from gridprobe.video.rows import Found
from gridprobe.video.sampling import SampleSpec

__all__ = ["ChildClip", "InChild"]

MAP_FROM = 16 << 20
"""Results of at least so many bytes stay in shared memory; smaller ones are copied out, as each needs a descriptor."""


@dataclass(frozen=True)
class InChild:
    """Opens one video in a child process."""

    path: str | os.PathLike[str]
    spec: SampleSpec

    def check(self) -> Checked:
        """Identify the file, or say that it is a folder."""
        reply = self._ask("check")
        with self._checking():
            known = reply["file"]
            if known is None:
                return Checked(None, "")
            file = VideoFile(
                shown_name(self.path),
                _typed(known["path"], str),
                _typed(known["size"], int),
                b"",
                _typed(known["fingerprint"], str),
                tuple(_typed(each, int) for each in known["identity"]),
            )
            return Checked(file, _typed(reply["decoder"], str))

    def open(self, checked: Checked) -> "ChildClip":
        """Inspect, measure and plan."""
        reply = self._ask("open", identity=checked.file and checked.file.identity)
        with self._checking():
            used = float(reply["used"])
            if checked.file is not None:
                clip, _ = FileClip.from_json(_typed(reply["clip"], str).encode(), checked.file, self.spec)
                return ChildClip(self, replace(clip, used=used), checked.decoder)
            times, chosen = [float(each) for each in reply["times"]], [_typed(each, int) for each in reply["chosen"]]
            if not chosen or chosen != sorted(set(chosen)) or chosen[0] < 0 or chosen[-1] >= len(times):
                raise ValueError(chosen)
            info = checked_info(VideoInfo(**reply["info"]))
            return ChildClip(self, FolderClip(Path(self.path), info, (), times, chosen, self.spec, used), info.decoder)

    def restore(self, content: bytes, checked: Checked) -> "tuple[ChildClip, Found]":
        """The clip and its frames from the cache; ValueError, TypeError or KeyError for malformed content."""
        assert checked.file is not None
        clip, found = FileClip.from_json(content, checked.file, self.spec)
        return ChildClip(self, clip, checked.decoder), found

    def _ask(self, do: str, *, used: float = 0.0, memory: int | None = None, **request: Any) -> dict[str, Any]:
        """The reply of a child; `used` is how much of the time limit was spent before."""
        limits = self.spec.limits
        seconds = max(0.0, limits.seconds - used)
        request |= {"do": do, "path": os.fspath(self.path), "spec": asdict(self.spec), "used": used}
        request |= {"folder": _current_folder(), "cpu": limits.seconds * usable_cores()}
        return ask_child(request, address_space=int(limits.process), seconds=seconds, memory=memory)

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Turn a malformed reply into an error; whoever exploits a decoder controls what the child says."""
        try:
            yield
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError, ZeroDivisionError):
            raise VideoError(f"{shown_name(self.path)}: the decoding process returned an invalid answer") from None


@dataclass(frozen=True, eq=False)
class ChildClip:
    """A clip whose frames are found and decoded in a child process."""

    place: InChild
    clip: FileClip | FolderClip
    """What is known of it."""
    decoder: str

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""
        return self.clip.info

    @property
    def source(self) -> str:
        """Identifies the content."""
        return self.clip.source

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, in seconds from the start."""
        return self.clip.seconds(tick)

    def warnings(self, found: Found) -> tuple[str, ...]:
        """What to warn about in an answer based on these frames."""
        return self.clip.warnings(found)

    def to_json(self, found: Found) -> bytes | None:
        """The clip and its frames for the cache on disk."""
        return self.clip.to_json(found)

    def expected_ticks(self) -> list[int] | None:
        """The ticks of the sampled frames, found without decoding."""
        if isinstance(self.clip, FolderClip):
            return self.clip.expected_ticks()
        reply = self._ask("expect")
        with self.place._checking():
            ticks = reply["ticks"]
            return None if ticks is None else _rising(ticks, most=self.clip.rows(None))

    def read(
        self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[Found, Pixels]:
        """Decode all sampled frames, or those at these ascending ticks, in shared memory."""
        rows = self.clip.rows(None if whole else ticks)
        shape = rows, size[1], size[0], 3
        with _shared_memory(math.prod(shape)) as memory:
            request = {"size": size, "ticks": ticks if ticks is None else list(ticks), "whole": whole}
            reply = self._ask("read", memory=memory, **request)
            with self.place._checking():
                found = Found(**reply["found"])
                found = found._replace(ticks=tuple(_rising(found.ticks, most=rows)))
                if not all(isinstance(each, int) for each in found[1:]):
                    raise TypeError(found)
                return found, _pixels(memory, (len(found.ticks), *shape[1:]))

    def _ask(self, do: str, *, memory: int | None = None, **request: Any) -> dict[str, Any]:
        clip = self.clip
        if isinstance(clip, FolderClip):
            request |= {"identity": None, "source": clip.source}
        else:
            content = clip.to_json(Found(())).decode()
            request |= {"identity": clip.file.identity, "clip": content}
        return self.place._ask(do, used=clip.used, memory=memory, **request)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _rising(ticks: Sequence[Any], *, most: int) -> list[int]:
    checked = [int(_typed(each, int)) for each in ticks]
    if len(checked) > most or checked != sorted(set(checked)):
        raise ValueError(checked)
    return checked


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed; a relative path leads nowhere then
        return "/"


@contextmanager
def _shared_memory(size: int) -> Iterator[int]:
    """A descriptor of so many bytes that a child can write to but not resize; it has no name that could stay behind."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gridprobe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, max(1, size))
        _seal(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _seal(descriptor: int) -> None:
    """Fix the size: reading a mapping whose file was truncated would crash this process."""
    import fcntl

    if hasattr(fcntl, "F_ADD_SEALS"):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _pixels(descriptor: int, shape: tuple[int, int, int, int]) -> Pixels:
    """The shared memory as an array of this process."""
    size = math.prod(shape)
    if size >= MAP_FROM:
        # A private mapping: writable, as other arrays are, without a way back to the child.
        return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), np.uint8).reshape(shape)
    pixels = np.empty(shape, np.uint8)
    if os.preadv(descriptor, [pixels.reshape(-1).data], 0) != size:
        raise ValueError(size)
    return pixels
