"""Decoding in a child process against decoding in this one: an hour of 720p, 144 frames. Prints the ratios.

    python speed/decode_child.py [VIDEO] [--rounds 5]

Without a VIDEO the file of speed/decode.py is made: H.264, a keyframe every 250 frames. Both ways take turns in one
process. The child is warm, as it is from the second video of a session or worker on; what a cold one costs is printed
as well. CPU seconds are those of this process and of the child together, and the steadier figure on a shared machine.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # this checkout

from gridprobe.video import FrameSize, Limits, children, sample

SIZE = FrameSize(max_side=224)
TICKS = os.sysconf("SC_CLK_TCK")


def spent() -> float:
    """CPU seconds of this process and of its children that wait for work."""
    total = time.process_time()
    for child in children._idle:
        fields = Path(f"/proc/{child._process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def measure(video: str, precision: str, decode_in: str) -> tuple[float, float]:
    start, before = time.perf_counter(), spent()
    options = {"precision": precision, "decode_in": decode_in, "limits": Limits(seconds=900)}
    sample(video, cells=144, size=SIZE, **options)  # type: ignore[arg-type]
    return time.perf_counter() - start, spent() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        video = given.video
        if video is None:
            from decode_files import make

            video = str(make("gop250", Path(folder), given.minutes).path)
        for precision in ("exact", "auto"):
            children.stop_idle()
            cold, _ = measure(video, precision, "child")
            pairs = [[measure(video, precision, where) for where in ("process", "child")] for _ in range(given.rounds)]
            for place, name in enumerate(("wall", "CPU")):
                here, there = (statistics.median(pair[which][place] for pair in pairs) for which in (0, 1))
                print(f"{precision}: {name} {here:.2f} s in process, {there:.2f} s in a child, × {there / here:.3f}")
            print(f"{precision}: wall {cold:.2f} s with the start of the child")


if __name__ == "__main__":
    main()
