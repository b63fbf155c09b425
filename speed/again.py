"""The same question twice about an hour of video, each time in a fresh process: what the frame cache saves.

    python speed/again.py [VIDEO]

Without a VIDEO one is made: an hour of 1280×720 H.264, a keyframe every 250 frames. The model is a scripted one that
looks at every pixel, so what is measured is decoding. "other" is another question, which keeps other frames.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "again.md"
HEADER = """# Asking again

`python speed/again.py`, {day}, {cores} cores, {name}: one question by `gridprobe.ask` (k = 12, 8 frames
kept), each in a fresh process, imports not counted. CPU seconds are those of the process and of the child that decodes,
whose start is counted. On a shared machine CPU seconds are the steadier column. In the end
the cache holds {size:.1f} MiB.
"""
ROWS = (
    ("cold cache", "first", True),
    ("warm cache, same question", "first", True),
    ("warm cache, other question", "other", True),
    ("no cache", "first", False),
)


def child(video: str, which: str) -> None:
    """One question, answered by a model that is surest of the brightest or of the darkest frames, but never sure."""
    import gridprobe as gp

    def look(request: gp.models.Request) -> dict[str, float]:
        means = [float(group.frames.pixels.mean()) for group in request.groups]
        light = sum(means) / len(means)
        return {"A": 256 + (light if which == "first" else 255 - light), "B": 256}

    start, cpu = time.perf_counter(), time.process_time()
    answer = gp.ask(
        video, gp.Question(f"Is this the {which} question?", ["yes", "no"]), model=gp.MockModel(look), frames=8
    )
    wall = time.perf_counter() - start
    gp.video.decoder_pool.stop_idle()  # whoever has ended is counted
    there = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "wall": wall,
        "cpu": time.process_time() - cpu + there.ru_utime + there.ru_stime,
        "decode": answer.seconds.decode,
        "mb": peak(),
        "child mb": there.ru_maxrss / 1024,
    }
    print(json.dumps(found))


def peak() -> float:
    """Peak of this process in MB; `ru_maxrss` would be that of the process that started it if that one is larger."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def made(folder: Path) -> Path:
    """The file of speed/decode.py, an hour long."""
    sys.path.insert(0, str(Path(__file__).parent))
    from decode_files import make

    return make("gop250", folder, 60.0).path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", nargs="?")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.video, given.child)
        return
    lines = ["| | wall s | CPU s | of it decoding, wall s | peak MB | of the child |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        video = given.video or str(made(Path(folder)))
        for title, which, cached in ROWS:
            environment = os.environ | {"GRIDPROBE_CACHE": f"{folder}/cache" if cached else "off"}
            command = [sys.executable, __file__, video, "--child", which]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            numbers = f"{found['wall']:.2f} | {found['cpu']:.2f} | {found['decode']:.2f} | {found['mb']:.0f}"
            numbers += f" | {found['child mb']:.0f}"
            lines.append(f"| {title} | {numbers} |")
        size = sum(path.stat().st_size for path in Path(folder, "cache").rglob("*") if path.is_file())
    text = HEADER.format(name=Path(video).name, cores=os.cpu_count(), size=size / 2**20, day=date.today())
    RESULTS.write_text(f"{text}\n" + "\n".join(lines) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
