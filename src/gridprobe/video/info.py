"""VideoInfo: a video's properties, with the header's claims kept apart from what was found in the file."""

from dataclasses import dataclass
from typing import Any

__all__ = ["VideoInfo"]


@dataclass(frozen=True)
class VideoInfo:
    """A video's properties. Headers can be wrong: `*_header` is their claim, `*_found` is what was found."""

    path: str
    container: str
    codec: str
    width: int
    """Width of a frame as displayed: upright, with square pixels."""
    height: int
    rotation: int
    """Degrees counter-clockwise by which a stored frame is rotated for display: 0, 90, 180 or 270."""
    fps: float | None
    """Mean frame rate; the real rate may vary."""
    duration_header: float | None
    frames_header: int | None
    duration_found: float | None
    """Seconds from the start to the end of the last frame that is really in the file; None if not measured."""
    frames_found: int | None
    start_time: float
    """Timestamp of the presentation start, in seconds; all other times are relative to it."""
    pixel_format: str
    hdr: bool
    decoder: str
    fingerprint: str
    mirrored: bool = False
    """Whether a stored frame is mirrored left to right for display, before it is rotated."""
    late: float = 0.0
    """Seconds from the start of the file's timeline, as players and subtitles count, to the presentation start."""
    restarts: bool = False
    """Whether timestamps start again within the file, so that a part of it cannot be found."""
    stream: int | None = None
    """The number of the video stream in the file; None for pictures, and where it is not known."""

    @property
    def duration(self) -> float | None:
        """Seconds: as found, else as the header says."""
        return self.duration_header if self.duration_found is None else self.duration_found

    @property
    def frames(self) -> int | None:
        """Number of frames: as found, else as the header says."""
        return self.frames_header if self.frames_found is None else self.frames_found

    def to_dict(self) -> dict[str, Any]:
        """The fields that go into a JSON answer."""
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
            "stream": self.stream,
            "decoder": self.decoder,
            "fingerprint": self.fingerprint,
        }
