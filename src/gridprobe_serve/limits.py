"""ServerLimits: how much a server takes on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server; a request past one is refused before anything is made for it."""

    max_k: int = 16
    """Largest grid side that a request may ask for."""
    max_body: int = 64 << 20
    """Bytes of a JSON body; it may contain a video."""
    bodies: int = 256 << 20
    """Bytes of all JSON bodies that are being read."""
    max_upload: int = 2 << 30
    """Bytes of an uploaded or fetched file."""
    quota: int = 8 << 30
    """Bytes of all media on disk."""
    session_bytes: int = 2 << 30
    """Bytes of decoded frames in memory, of all sessions."""
    session_age: float = 3600.0
    """Seconds after which a session that is not used is closed."""
    sessions: int = 64
    queue: int = 64
    """Jobs that may wait."""
    concurrency: int = 8
    """Jobs that run at the same time; their calls of the models are merged."""
    decoders: int = 4
    """Requests for pictures that are decoded at the same time; as many as `queue` may wait."""
    merged: int = 64
    """Requests in one call of a model."""
    max_pictures: int = 2048
    """Pictures of a request."""
    max_side: int = 2048
    """Longest side of a picture that is sent, and of frames that are shown to a model."""
    decode_seconds: float = 120.0
    fetch_seconds: float = 120.0
    idle_seconds: float = 30.0
    """Longest pause within a body."""
    grace: float = 30.0
    """Seconds that running jobs get at shutdown."""
