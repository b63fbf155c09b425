"""Decoding in a child process against decoding in this one: an hour of 720p, 144 frames. Prints and stores a table.

    python speed/decode_child.py [VIDEO] [--rounds 5]

Without a VIDEO the file of speed/decode.py is made: H.264, a keyframe every 250 frames.

CPU      Seconds of the process and of its child together, the median of rounds in which the ways take turns. "warm" is
         a child that has decoded before, as from the second video of a session or worker on. "cold" is a new one, its
         start included. "start" is what the child spends until it has identified the file: Python, numpy and PyAV.
Memory   Peaks of one question by `gridprobe.ask` in a fresh process (k = 12, 8 frames kept, no cache) with its imports,
         read from /proc/PID/smaps_rollup every 5 ms while it runs. RSS counts a page that process and child share (code
         of libraries, frames) in both. PSS counts each page once: 1/n of it for each of n processes. On a machine where
         other processes use the same libraries, PSS is too small.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "speed" / "results" / "decode_child.md"
PRECISIONS = ("exact", "auto")
HEADER = """# Decoding in a child process

`python speed/decode_child.py --rounds {rounds}`, {day}, {cores} cores, load average {load:.1f}, {name}: 144
frames of at most 224 pixels. What is measured, and how, stands at the head of `speed/decode_child.py`.{note}
"""

# In fresh processes, which import gridprobe; the one that measures memory does not, as it would share the libraries.


def cpu(video: str, precision: str, rounds: int) -> dict[str, list[float]]:
    """CPU seconds by way, one for each round."""
    from gridprobe.video import FrameSize, VideoLimits, decoder_pool, sample
    from gridprobe.video.decoder_pool import ChildDecoder
    from gridprobe.video.sampling import SampleSpec

    def spent() -> float:
        """CPU seconds of this process and of the children that wait for work."""
        return time.process_time() + sum(_cpu_of(child._process.pid) for child in decoder_pool._idle)

    def decode(where: str) -> float:
        before = spent()
        options = {"precision": precision, "decode_in": where, "limits": VideoLimits(seconds=900)}
        sample(video, num_frames=144, size=FrameSize(max_side=224), **options)  # type: ignore[arg-type]
        return spent() - before

    def start() -> float:
        before = spent()
        ChildDecoder(video, SampleSpec(144, limits=VideoLimits(seconds=900))).check()
        return spent() - before

    decode("process")  # imports PyAV
    found: dict[str, list[float]] = {"in process": [], "start": [], "warm": [], "cold": []}
    for _ in range(rounds):
        found["in process"].append(decode("process"))
        decoder_pool.stop_idle()
        found["start"].append(start())
        decoder_pool.stop_idle()
        found["cold"].append(decode("child"))
        found["warm"].append(decode("child"))
    return found


def _cpu_of(pid: int) -> float:
    """CPU seconds of all threads of a process: Linux's number for the clock of clock_getcpuclockid()."""
    return time.clock_gettime(~pid << 3 | 2)


def ask(video: str, precision: str, where: str) -> None:
    """One question to a model that looks at every pixel and is never sure, so that the kept frames are decoded too."""
    import gridprobe as gp

    def look(request: gp.models.Request) -> dict[str, float]:
        light = [float(group.frames.pixels.mean()) for group in request.groups]
        return {"A": 256 + sum(light) / len(light), "B": 256}

    question = gp.Question("Is it bright?", ["yes", "no"])
    options: dict[str, Any] = {"precision": precision, "decode_in": where, "limits": gp.video.VideoLimits(seconds=900)}
    gp.ask(video, question, model=gp.MockModel(look), frames=8, **options)


def fresh(*arguments: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "GRIDPROBE_CACHE": "off"}
    return subprocess.Popen([sys.executable, __file__, *arguments], env=environment, stdout=subprocess.PIPE, text=True)


# Memory.


def memory(video: str, precision: str, where: str) -> dict[str, float]:
    """The peaks of a question, in MB."""
    process, samples = fresh("--do", "ask", precision, where, video), []
    while process.poll() is None:
        samples.append([rollup for pid in (process.pid, *_children(process.pid)) if (rollup := _rollup(pid))])
        time.sleep(0.005)
    if process.wait():
        raise SystemExit(f"the question failed ({process.returncode})")
    peaks = {kind: max(sum(each[kind] for each in sample) for sample in samples) for kind in ("Pss", "Rss")}
    parents, others = ([sum(each["Rss"] for each in sample[part]) for sample in samples] for part in PARTS)
    return peaks | {"parent": max(parents), "child": max(others)}


PARTS = slice(0, 1), slice(1, None)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return []


def _rollup(pid: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":") for line in lines)}


# Tables.


def cpu_row(precision: str, found: dict[str, list[float]]) -> str:
    here, cold, warm, start = (statistics.median(found[way]) for way in ("in process", "cold", "warm", "start"))
    numbers = f"{here:.3f} | {warm:.3f} | {warm / here:.3f} | {cold:.3f} | {cold / here:.3f} | {start:.3f}"
    return f"| {precision} | {numbers} |"


def memory_row(title: str, peaks: dict[str, float]) -> str:
    numbers = " | ".join(f"{peaks[kind]:.0f}" for kind in ("Pss", "Rss", "parent", "child"))
    return f"| {title} | {numbers} |"


def tables(video: str, rounds: int) -> str:
    lines = ["| CPU seconds | in process | warm child | × | cold child | × | of it start |", "|---" * 7 + "|"]
    for precision in PRECISIONS:
        done = fresh("--do", "cpu", precision, str(rounds), video)
        output, _ = done.communicate()
        if done.returncode:
            raise SystemExit(f"decoding failed ({done.returncode})")
        lines.append(cpu_row(precision, json.loads(output)))
        print(lines[-1], file=sys.stderr)
    lines += ["", "| peak MB of a question | PSS | RSS | of the process | of the child |", "|---" * 5 + "|"]
    for precision in PRECISIONS:
        for where, name in (("process", "in process"), ("child", "child")):
            lines.append(memory_row(f"{precision}, {name}", memory(video, precision, where)))
            print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


def child(what: str, precision: str, *rest: str) -> Any:
    return ask(rest[1], precision, rest[0]) if what == "ask" else cpu(rest[1], precision, int(rest[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--note", default="", help="a sentence for the header, such as what else was running")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--do", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.do:
        print(json.dumps(child(*given.do, given.video)))
        return
    with tempfile.TemporaryDirectory() as folder:
        video = given.video
        if video is None:
            from decode_files import make

            video = str(make("gop250", Path(folder), given.minutes).path)
        note = f" {given.note}" if given.note else ""
        values = {"day": date.today(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "name": Path(video).name}
        text = HEADER.format(rounds=given.rounds, note=note, **values) + "\n" + tables(video, given.rounds)
    given.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
