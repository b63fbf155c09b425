"""VideoInfo: what is known about a video, the header's claims kept apart from what was found."""

from dataclasses import dataclass
from typing import Any

__all__ = ["VideoInfo"]


@dataclass(frozen=True)
class VideoInfo:
    """A video's properties. Headers lie, so a claim (`*_header`) stands beside what reading gave (`*_found`)."""

    path: str
    container: str
    codec: str
    width: int
    """Of a frame as it is displayed: upright, with square pixels."""
    height: int
    rotation: int
    """Degrees counter-clockwise that a stored frame is turned by to stand upright: 0, 90, 180 or 270."""
    fps: float | None
    """Mean rate; with a variable rate no frame need keep to it."""
    duration_header: float | None
    frames_header: int | None
    duration_found: float | None
    """Seconds from the start to the end of the last frame that is really in the file; None when not looked for."""
    frames_found: int | None
    start_time: float
    """Time stamp of the presentation start; all times elsewhere are counted from it."""
    pixel_format: str
    hdr: bool
    decoder: str
    fingerprint: str

    @property
    def duration(self) -> float | None:
        """Seconds: what was found, else what the header says."""
        return self.duration_header if self.duration_found is None else self.duration_found

    @property
    def frames(self) -> int | None:
        """Number of frames: what was found, else what the header says."""
        return self.frames_header if self.frames_found is None else self.frames_found

    def to_dict(self) -> dict[str, Any]:
        """The part of it that belongs in a JSON answer."""
        return {
            "path": self.path,
            "duration": None if self.duration is None else round(self.duration, 3),
            "fps": None if self.fps is None else round(self.fps, 3),
            "frames": self.frames,
            "width": self.width,
            "height": self.height,
            "rotation": self.rotation,
            "container": self.container,
            "codec": self.codec,
            "hdr": self.hdr,
            "decoder": self.decoder,
            "fingerprint": self.fingerprint,
        }
