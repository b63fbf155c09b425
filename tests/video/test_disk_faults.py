"""The frame cache on a disk whose every operation fails in turn: the frames are right, and rubbish is removed."""

import os
from pathlib import Path

import numpy as np
import pytest

from disk_faults import Crash, every_fault
from gridprobe.video import FrameCache, FrameSize, Video
from gridprobe.video.frames import FramePool
from videos import numbered_video

SMALL = FrameSize(max_side=32)
CAP = 1 << 20


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("clip") / "clip.mp4", 12, size=(64, 32))


def pool(clip: Path, folder: Path, cap: int = CAP) -> FramePool:
    return Video(clip, num_frames=2, cache=FrameCache(folder, cap)).pool(SMALL)


def temporary(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("tmp*") if path.is_file()]


@pytest.mark.parametrize("cap", [CAP, 2000], ids=["roomy", "too small"])
def test_every_fault_costs_only_time(clip: Path, tmp_path: Path, cap: int) -> None:
    whole = pool(clip, tmp_path / "whole")
    for disk in every_fault(tmp_path, ("EIO", "full", "crash")):
        with disk:
            try:
                found = [pool(clip, disk.place, cap), pool(clip, disk.place, cap)]  # written, then read
            except Crash:
                found = []
        found += [pool(clip, disk.place, cap), pool(clip, disk.place, cap)]
        for each in found:
            assert each.times == whole.times and np.array_equal(each.pixels, whole.pixels), disk.operations[-1]
            assert all("frame cache" in warning for warning in each.warnings)
        assert not found[-1].warnings, "the disk works again"
        for path in temporary(disk.place):
            os.utime(path, (0, 0))  # a day later
        FrameCache(disk.place, cap).write([("another", b"entry")])
        assert not temporary(disk.place)
        assert FrameCache(disk.place, cap).size()[1] <= cap
