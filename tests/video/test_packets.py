"""What the packets promise is what the reader does."""

from pathlib import Path

import pytest

from gridprobe.video import FrameSize, Precision, reader, sample
from gridprobe.video.decode import open_file
from gridprobe.video.files import check_file
from gridprobe.video.reader import Step, dry_run
from gridprobe.video.sampling import SampleSpec
from videos import numbered_video

SMALL = FrameSize(max_side=64)
FILES = {
    "a.mp4": {},
    "a.mkv": {},
    "a.ts": {},
    "open.mp4": {"options": {"x264-params": "open-gop=1:keyint=20:min-keyint=20"}},
    "hevc.mp4": {"codec": "libx265"},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "asp.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "raw.h264": {},
    "vfr.mp4": {"ticks": [*range(75), *range(75, 375, 4)]},
}


def steps(path: Path, cells: int, precision: Precision) -> tuple[list[Step], list[float]]:
    clip = open_file(check_file(path), SampleSpec(cells, precision=precision))
    with clip.opener()() as source:
        found = list(dry_run(source, clip.clock, clip.plan))
    return found, [clip.seconds(step.due) for step in found if step.due is not None]


@pytest.mark.parametrize("precision", ["exact", "keyframe"])
@pytest.mark.parametrize("cells", [5, 70])
@pytest.mark.parametrize("name", FILES)
def test_frames_and_their_number(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    readers: list[reader.Reader],
    name: str,
    cells: int,
    precision: Precision,
) -> None:
    path = made / f"walk_{name}"
    if not path.exists():
        numbered_video(path, 150, gop=40, **FILES[name])  # type: ignore[arg-type]
    monkeypatch.setattr("gridprobe.video.decode._cores", lambda: 1)
    pool = sample(path, num_frames=cells, precision=precision, size=SMALL)
    decoded = sum(each.decoded for each in readers)

    found, times = steps(path, cells, precision)

    assert tuple(dict.fromkeys(times)) == pool.times
    # Beyond what must be decoded, a decoder is fed until it gives the frame out, and with targets this close together
    # that takes in pictures which could have been left out. Matroska has no decoding times, so nothing is left out, and
    # each group is decoded until the pictures that the wanted one may refer to have come out.
    expected, groups = sum(step.decoded for step in found), 4
    assert expected - 2 <= decoded <= expected * 1.5 + 5 + (3 * groups if name == "a.mkv" else 0)
