"""How long do 144 frames of a 1080p hour take, and how much memory? Makes its own file; prints and stores a table.

    python speed/sampling.py

Ours against the way most people write it with the same library: seek to each time, decode forward, keep full-size RGB.
Each runs in a fresh process; the file is in the page cache for both.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import av
import numpy as np

FRAMES = 144
RESULTS = Path(__file__).parent / "results" / "sampling.md"


def make_hour(path: Path) -> None:
    """Sixty seconds of moving 1080p pattern, repeated sixty times without encoding again."""
    fps, seconds = 25, 60
    minute = path.with_name("minute.mp4")
    y, x = np.mgrid[0:1080, 0:1920]
    with av.open(str(minute), "w") as out:
        stream = out.add_stream("libx264", rate=fps, options={"preset": "veryfast", "crf": "25"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 1920, 1080, "yuv420p", 50
        for n in range(fps * seconds):
            luma = ((x + 3 * n) ^ (y + n)) & 0xFF
            picture = np.repeat(luma.astype(np.uint8)[..., None], 3, axis=2)
            picture[:, : n % 1920 // 4] //= 2
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    with av.open(str(path), "w") as out:
        target = None
        for turn in range(60):
            with av.open(str(minute)) as source:
                if target is None:
                    target = out.add_stream_from_template(source.streams.video[0])
                for packet in source.demux(source.streams.video[0]):
                    if packet.dts is None:
                        continue
                    assert packet.pts is not None
                    shift = round(turn * seconds / packet.time_base)
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, target
                    out.mux(packet)
    minute.unlink()


def ours(path: str) -> int:
    from gridprobe.video import sample

    return len(sample(path, num_frames=FRAMES))


def plain(path: str) -> int:
    """Seek to each target, decode forward, keep the frames."""
    kept = []
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        assert stream.duration and stream.time_base and stream.average_rate
        duration = float(stream.duration * stream.time_base)
        for i in range(FRAMES):
            moment = (i + 0.5) * duration / FRAMES
            container.seek(int(moment / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if (frame.time or 0.0) + 1 / float(stream.average_rate) > moment:
                    kept.append(frame.to_ndarray(format="rgb24"))
                    break
    return len(kept)


def child(way: str, path: str) -> None:
    start = time.perf_counter()
    count = {"ours": ours, "plain": plain}[way](path)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "cpu": usage.ru_utime, "mb": usage.ru_maxrss / 1024, "frames": count}))


def measure(way: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--child", way, str(path)], capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(rows: dict[str, dict[str, float]]) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("gridprobe", "av", "numpy"))
    base = rows["plain PyAV, seek and decode, full size"]["seconds"]
    lines = [
        f"`python speed/sampling.py`, {date.today()}, {os.cpu_count()} cores, {platform.machine()}, {versions}",
        "",
        f"{FRAMES} frames of one hour of 1920×1080 H.264, a key frame every 50 frames.",
        "",
        "| way | seconds | ratio | CPU seconds | peak memory | frames |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ratio = f"{row['seconds'] / base:.2f}×"
        lines.append(
            f"| {name} | {row['seconds']:.1f} | {ratio} | {row['cpu']:.1f} | {row['mb']:.0f} MB | {row['frames']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.mp4"
        print("making an hour of 1080p…", file=sys.stderr)
        make_hour(path)
        rows = {
            "gridprobe.video.sample, native size": measure("ours", path),
            "plain PyAV, seek and decode, full size": measure("plain", path),
        }
    text = table(rows)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
