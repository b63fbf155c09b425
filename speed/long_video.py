"""From ten minutes to ten hours: what a question costs when as many frames are looked at, and when more are.

    python speed/long_video.py --out long_video.json          # 2 cores, embedded micro: some minutes

Videos are H.264 files of 224×224 at 2 frames a second, made of encoded minutes that repeat: a gridworld video without
what the question asks about, and once, at 0.8 of the video, with it. "Same frames" samples 144 frames of every video;
the needle is on screen for 1.5 of the 144 shares of it. "Same density" samples a frame every 9.4 seconds; the needle is
on screen for 20 seconds, and beyond 144 frames the overview is laid out in windows. The preset is gridworld, with no
frame cache. Each question is asked in a process of its own. Seconds are of `ask`, without loading the model; memory is
the peak of the process, with everything it loads.
"""

import argparse
import datetime
import json
import math
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe_world.dataset import WorldItem, items, world_of
from gridprobe_world.render import Renderer

FPS, SIDE, MINUTE, GOP = 2, 224, 120, 10
WHERE, SHARE, NEEDLE = 0.8, 1.5 / 144, 20.0
DENSITY = 600 / 64
HOURS = (1 / 6, 1.0, 3.0, 10.0)
KINDS = ("same frames", "same density")


def needle(number: int) -> WorldItem:
    """A question about something that is on screen once, and briefly."""
    found = (item for item in items(400) if item.family == "needle" and len(item.asked.evidence) == 1)
    return [item for _, item in zip(range(number + 1), found, strict=False)][-1]


def pictures(item: WorldItem, *, shown: bool) -> list[Any]:
    """A minute of the item's video: from the moments with the evidence, or from those well away from it."""
    (start, end), renderer = item.asked.evidence[0], Renderer(world_of(item), SIDE)
    margin = 0.02
    moments = (
        [moment for moment in np.linspace(0.001, 0.999, 2000) if start < moment < end]
        if shown
        else [moment for moment in np.linspace(0.001, 0.999, MINUTE) if not start - margin < moment < end + margin]
    )
    return [renderer.frame(float(moments[n * len(moments) // MINUTE])) for n in range(MINUTE)]


def encoder() -> Any:
    import av

    made = av.CodecContext.create("libx264", "w")
    made.width = made.height = SIDE
    made.pix_fmt, made.time_base, made.framerate = "yuv420p", Fraction(1, FPS), Fraction(FPS)
    made.gop_size = GOP
    made.options = {"crf": "30", "preset": "ultrafast", "bf": "0", "sc_threshold": "0", "threads": "1"}
    return made


def encoded(frames: Sequence[Any]) -> list[tuple[bytes, bool]]:
    """The packets of some frames, with whether each is a keyframe; the first one is."""
    import av

    made = encoder()
    pieces = []
    for place, pixels in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = place, made.time_base
        pieces += made.encode(frame)
    return [(bytes(packet), packet.is_keyframe) for packet in [*pieces, *made.encode(None)]]


def write(path: Path, item: WorldItem, *, hours: float, seconds: float) -> None:
    """Repeat the minute without the needle; from WHERE on, the one with it for so many seconds."""
    import av

    plain, hot = encoded(pictures(item, shown=False)), encoded(pictures(item, shown=True))
    count, length = round(hours * 3600 * FPS), GOP * round(seconds * FPS / GOP)
    start = GOP * (round(WHERE * count) // GOP)
    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(FPS))
        context = stream.codec_context
        context.width = context.height = SIDE
        context.pix_fmt, context.gop_size, context.time_base = "yuv420p", GOP, Fraction(1, FPS)
        context.options = dict(encoder().options)
        container.start_encoding()
        for place in range(count):
            content, key = (hot if start <= place < start + length else plain)[place % MINUTE]
            packet = av.Packet(content)
            packet.pts = packet.dts = place
            packet.time_base, packet.stream, packet.is_keyframe = Fraction(1, FPS), stream, key
            container.mux(packet)


def child(path: str, k: int, number: int, model_name: str) -> None:
    """One question in this process; prints what it took."""
    import torch

    import gridprobe as gp
    from gridprobe.video import VideoLimits

    torch.set_num_threads(2)
    model, item = gp.load_model(model_name, device="cpu"), needle(number)
    start, cpu = time.perf_counter(), time.process_time()
    limits = VideoLimits(cache=0, seconds=1200.0)
    answer = gp.ask(path, item.asked.question, model=model, k=k, preset="gridworld", limits=limits)
    found = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "tokens": answer.cost.total.tokens,
        "tflops": answer.cost.tflops,
        "frames": len(answer.pool),
        "windows": answer.reached.windows,
        "kept": answer.selection.kept,
        "right": answer.right,
        "by": answer.reached.by,
        "baseline_tflops": answer.cost.baseline.tflops,
    }
    print(json.dumps(found))


def measured(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every length, both kinds."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for hours in given.hours:
                same = kind == KINDS[0]
                k = given.k if same else math.isqrt(round(hours * 3600 / DENSITY))
                path = Path(folder) / "video.mp4"
                item = needle(given.question)
                write(path, item, hours=hours, seconds=hours * 3600 * SHARE * 144 / given.k**2 if same else NEEDLE)
                command = [sys.executable, __file__, "--child", str(path), str(k), str(given.question), given.model]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr)
                row = {"kind": kind, "hours": hours, "k": k, "file_mb": path.stat().st_size / 1e6}
                row |= json.loads(done.stdout.splitlines()[-1])
                print(row, file=sys.stderr, flush=True)
                yield row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown, one line for each video."""
    lines = [
        "| sampled | length | K | frames | windows | TFLOPs | s | CPU s | peak MB | right |",
        "|---|" + "---:|" * 9,
    ]
    for row in rows:
        length = f"{row['hours']:g} h" if row["hours"] >= 1 else f"{row['hours'] * 60:g} min"
        numbers = f"{row['tflops']:.3f} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['mb']:.0f}"
        cells = f"{row['k']} | {row['frames']} | {row['windows']} | {numbers} | {'yes' if row['right'] else 'no'}"
        lines.append(f"| {row['kind']} | {length} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", nargs="*", type=float, default=HOURS)
    parser.add_argument("--k", type=int, default=12, help="for the same number of frames")
    parser.add_argument("--question", type=int, default=0, help="the number of the needle question")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    given = parser.parse_args()
    rows = list(measured(given))
    command = f"python speed/long_video.py {shlex.join(sys.argv[1:])}"
    print(f"`{command}`, {datetime.date.today()}\n\n{table(rows)}")
    given.out.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
