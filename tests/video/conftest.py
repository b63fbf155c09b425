"""Videos that several tests read, made once, and ways to watch them being read: by counts, never by the wall clock."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from gridprobe.video import decode, reader
from gridprobe.video.files import Deadline
from gridprobe.video.source import Source
from videos import numbered_video, remux


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[reader.Reader]:
    """Every reader that is made during the test; each knows how many frames it decoded."""
    made: list[reader.Reader] = []
    original = reader.Reader.__init__

    def spy(self: reader.Reader, *args: object) -> None:
        made.append(self)
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(reader.Reader, "__init__", spy)
    return made


@pytest.fixture
def packets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all packets that are read during the test, in whichever pass."""
    sizes: list[int] = []
    original = Source._demux

    def spy(self: Source) -> Iterator[object]:
        demux = original(self)
        try:
            for packet in demux:
                sizes.append(packet.size)
                yield packet
        finally:
            demux.close()

    monkeypatch.setattr(Source, "_demux", spy)
    return sizes


@pytest.fixture
def deadline_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], type[Deadline]]:
    """Makes a deadline that is over at the n-th look at the clock, and puts it in the place of the real one."""

    def make(looks: int) -> type[Deadline]:
        looked = count(1)

        class Counted(Deadline):
            def check(self) -> None:
                if next(looked) >= looks:
                    raise self.error()

        monkeypatch.setattr(decode, "Deadline", Counted)
        return Counted

    return make


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the session's videos."""
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(scope="session")
def clip(made: Path) -> Path:
    """300 numbered frames, 12 s, H.264 with B-frames in MP4."""
    return numbered_video(made / "clip.mp4", 300)


@pytest.fixture(scope="session")
def faststart(made: Path) -> Path:
    """1500 numbered frames, 60 s, a keyframe every 25 and nowhere else, with the index in front."""
    path = numbered_video(made / "back.mp4", 1500, gop=25, options={"sc_threshold": "0"})
    return remux(path, made / "faststart.mp4", movflags="faststart")
