"""Clip: an opened video as `Footage` uses it, whether it is a file or a folder of pictures."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gridprobe.video.files import VideoFile
from gridprobe.video.frames import Pixels
from gridprobe.video.info import VideoInfo
from gridprobe.video.rows import Found

__all__ = ["Checked", "Clip", "Place"]


class Checked(NamedTuple):
    """A path that was looked at."""

    file: VideoFile | None
    """None for a folder of pictures."""
    decoder: str
    """Name and version of the library that decodes files."""


class Clip(Protocol):
    """An opened video with a sampling plan. A tick is the clip's own unit of time; it identifies a frame."""

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""

    @property
    def source(self) -> str:
        """Identifies the content: equal sources, decoded by equal decoders, have equal pixels."""

    @property
    def decoder(self) -> str:
        """Name and version of the library that makes the pixels."""

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, in seconds from the start."""

    def expected_ticks(self) -> list[int] | None:
        """The ticks of the sampled frames, found without decoding; None if only decoding can find them."""

    def read(
        self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[Found, Pixels]:
        """Decode all sampled frames, or those at these ascending ticks, to (width, height).

        With `whole`, decode them exactly as in the pass over all frames.
        """

    def warnings(self, found: Found) -> tuple[str, ...]:
        """What to warn about in an answer based on these frames."""

    def to_json(self, found: Found) -> bytes | None:
        """The clip and its frames for the cache on disk; None for a clip that is not cached."""


class Place(Protocol):
    """Where one video is opened and decoded: in this process or in a child."""

    def check(self) -> Checked:
        """Identify the file, or say that it is a folder."""

    def open(self, checked: Checked) -> Clip:
        """Inspect, measure and plan."""

    def restore(self, content: bytes, checked: Checked) -> tuple[Clip, Found]:
        """The clip and its frames from the cache; ValueError, TypeError or KeyError for malformed content."""
