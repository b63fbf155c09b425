"""Decoding in a child process against decoding in the caller's, on one video: CPU seconds and memory, in one run.

    python speed/child.py VIDEO [--rounds 3]

Each measurement is a fresh process that first decodes a small video, so that imports and the start of the child do not
count: a worker starts its child once. CPU seconds are those of the process and its child together, less those of a
process that decodes the small video only. Prints a table with medians of the rounds.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gridprobe.gridworld.dataset import items, world_of
from gridprobe.gridworld.video import write_script
from gridprobe.video import FrameSize, sample
from gridprobe.video.children import stop_idle

PLACES = ("process", "child")
PRECISIONS = ("exact", "auto")


def once(small: str, video: str, precision: str, place: str) -> None:
    for path in (small, video) if video else (small,):
        sample(path, cells=144, precision=precision, size=FrameSize(max_side=224), decode_in=place)  # type: ignore[arg-type]
    stop_idle()  # a child that has ended is counted
    here, there = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(each.ru_utime + each.ru_stime for each in (here, there))
    print(json.dumps([cpu, (here.ru_maxrss + there.ru_maxrss) / 1024]))


def measured(*arguments: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, __file__, "--once", *arguments], check=True, capture_output=True, text=True)
    cpu, megabytes = json.loads(done.stdout)
    return cpu, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        return once(*given.once)
    print("| | CPU s, process | CPU s, child | ratio | MB, process | MB, with child |\n|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.mp4"
        write_script(world_of(items(1)[0]), small, duration=20.0)
        for precision in PRECISIONS:
            cpu: dict[str, list[float]] = {place: [] for place in PLACES}
            memory: dict[str, float] = {}
            for _ in range(given.rounds):
                for place in PLACES:
                    base, _ = measured(str(small), "", precision, place)
                    whole, memory[place] = measured(str(small), given.video, precision, place)
                    cpu[place].append(whole - base)
            here, there = (statistics.median(cpu[place]) for place in PLACES)
            sizes = " | ".join(f"{memory[place]:.0f}" for place in PLACES)
            print(f"| {precision} | {here:.2f} | {there:.2f} | {there / here:.3f} | {sizes} |", flush=True)
    return None


if __name__ == "__main__":
    main()
