"""ServerLimits: how much a server takes on."""

from dataclasses import dataclass, field, fields
from typing import Any

from gridprobe.importance import MAX_K


def option(default: Any, help: str, *, low: float = 1, high: float | None = None, mib: bool = False) -> Any:
    """A limit that is an option of the command line, with bounds; in MiB there if it is one of bytes."""
    shown = {"default": default >> 20 if mib else default, "help": help, "low": low, "high": high, "mib": mib}
    return field(default=default, metadata=shown)


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server; a request past one is refused before anything is made for it."""

    queue: int = option(64, "Jobs that may wait.")
    concurrency: int = option(8, "Jobs at work at the same time.", high=64)
    """Their calls of the models are merged."""
    max_k: int = option(16, "Largest K of a request.", high=MAX_K)
    session_age: float = option(3600.0, "Seconds.")
    """After which a session that is not used is closed."""
    max_body: int = option(64 << 20, "In MiB.", mib=True)
    """Bytes of a JSON body; it may contain a video."""
    max_upload: int = option(2 << 30, "In MiB.", mib=True)
    """Bytes of an uploaded or fetched file."""
    quota: int = option(8 << 30, "In MiB.", mib=True)
    """Bytes of all media on disk."""
    session_bytes: int = option(2 << 30, "In MiB.", mib=True)
    """Bytes of decoded frames in memory, of all sessions."""
    grace: float = option(30.0, "Seconds to finish at the end.", low=0)
    bodies: int = 256 << 20
    """Bytes of all JSON bodies that are being read."""
    sessions: int = 64
    decoders: int = 4
    """Requests for pictures that are decoded at the same time; as many as `queue` may wait."""
    merged: int = 64
    """Requests in one call of a model."""
    max_videos: int = 16
    """Videos of a chat."""
    max_pictures: int = 2048
    """Pictures of a request."""
    max_side: int = 2048
    """Longest side of a picture that is sent, and of frames that are shown to a model."""
    decode_seconds: float = 120.0
    fetch_seconds: float = 120.0
    idle_seconds: float = 30.0
    """Longest pause within a body."""

    @classmethod
    def options(cls) -> dict[str, dict[str, Any]]:
        """What the command line needs to know of each limit that is an option of it."""
        return {each.name: {"kind": type(each.default), **each.metadata} for each in fields(cls) if each.metadata}
