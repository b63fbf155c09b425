"""What a session is about: a video, or frames that the caller brings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridprobe.errors import UsageError
from gridprobe.setup import Setup
from gridprobe.video import Footage, FramePool, FrameSize

__all__ = ["Given", "for_video"]


@dataclass(frozen=True, eq=False)
class Given:
    """The caller's frames, used like footage; they have one size."""

    given: FramePool
    trouble: tuple[str, ...] = ()

    def pool(self, size: FrameSize) -> FramePool:
        """All of them."""
        return self.given

    def undecoded(self, size: FrameSize) -> FramePool:
        """All of them."""
        return self.given

    def frames(self, indices: Sequence[int], size: FrameSize) -> FramePool:
        """Some of them."""
        return self.given.take(indices)


def for_video(setup: Setup, video: object) -> Setup:
    """The setup for this video: open footage must match its sampling; given frames are not sampled."""
    if isinstance(video, FramePool):
        return replace(setup, sampling=None)
    if isinstance(video, Footage) and setup.sampling is not None:
        for name in ("cells", "sampling", "precision", "stream"):
            have, want = getattr(video.spec, name), getattr(setup.sampling, name)
            if have != want:
                raise UsageError(
                    f"the open video was sampled with {name}={have!r}, but the settings say {want!r}; "
                    "open it again, or change the settings"
                )
    return setup
