"""144 frames of a long video: gridprobe against every installed rival, in one run. Prints and stores a table.

    python speed/decode.py --rival-python /tmp/bench-venv/bin/python

Task     The frames on display at the middle of 144 equal intervals, as RGB, in memory. decode_files.py makes the files,
         decode_ways.py has the contenders.
Right    A frame is right if the number in its pixels AND the time its reader gives are those of the frame wanted.
Time     Each run in a fresh process; imports do not count, opening the file does. The file is in the page cache. Rounds
         go through all contenders in a new order each; the table has the median of the rounds. CPU seconds are user
         and system time of all threads, steadier on a shared machine. Peak memory is VmHWM, imports included.
Limit    The cost of what must be decoded: per target its key frame, then reference frames only, up to the target.
         Measured with FFmpeg's decoder on one thread, CPU seconds divided by the number of cores.
Many     500 short videos in one process: what is left behind?

Rivals need the environment of speed/requirements.txt; those that cannot be imported are listed as not installed.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from decode_files import FPS, FRAMES, HEIGHT, KINDS, WIDTH, File, Kind, encode, make, read_number
from decode_ways import CONTENDERS, CORES, TIMEOUT, Limit

RESULTS = Path(__file__).parent / "results" / "decode.md"

# Fresh processes.


def memory(field: str) -> float:
    """A field of /proc/self/status in MB. Not ru_maxrss: that starts at the parent's size and survives exec."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def child(name: str, path: str) -> dict[str, Any]:
    try:
        work = CONTENDERS[name].prepare()
    except ImportError as error:
        return {"missing": str(error)}
    if isinstance(work, Limit):
        work.prepare(path)
    start, spent, base = time.perf_counter(), time.process_time(), memory("VmRSS")
    pixels, times = work(path)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - spent,
        "peak": memory("VmHWM"),
        "base": base,
        "decoded": getattr(work, "decoded", None),
        "size": list(pixels[0].shape[1::-1]),
        "numbers": [read_number(frame) for frame in pixels],
        "times": times,
        "versions": {package: importlib.metadata.version(package) for package in CONTENDERS[name].packages},
    }


def many_child(folder: str) -> list[list[float]]:
    from gridprobe.video import FrameSize, sample

    files, rows = sorted(Path(folder).glob("tiny-*.mp4")), []
    for done in range(1, 501):
        sample(files[done % len(files)], num_frames=16, size=FrameSize(max_side=96))
        if done in (5, 50, 250, 500):
            rows.append([done, memory("VmRSS"), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))])
    return rows


def fresh(python: str, *arguments: str) -> Any:
    """Run this file as a child; what it prints last is its answer, a crash or a hang is one too."""
    command = [python, __file__, "--child", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {TIMEOUT} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:120]}
    return json.loads(done.stdout.strip().splitlines()[-1])


# Measurement.


def compare(file: File, rival_python: str, rounds: int) -> dict[str, list[Any]]:
    """Rounds over all contenders, in a new order each."""
    with file.path.open("rb") as opened:
        while opened.read(1 << 24):  # into the page cache
            pass
    answers: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
    order, shuffle = list(CONTENDERS), random.Random(1)
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            if answers[name] and "seconds" not in answers[name][-1]:
                continue
            answer = fresh(rival_python if CONTENDERS[name].elsewhere else sys.executable, name, str(file.path))
            shown = f"{answer['seconds']:.1f} s, {answer['cpu']:.1f} CPU s" if "seconds" in answer else str(answer)
            print(f"  {CONTENDERS[name].title}: {shown}", file=sys.stderr)
            answers[name].append(answer)
    return answers


def judge(file: File, answer: dict[str, Any]) -> tuple[int, float]:
    """How many frames are right, and how far off the worst is, in seconds.

    Frames are compared one to one. A reader that gives fewer (a key frame wanted twice appears once) is judged by the
    frame nearest to each wanted one.
    """
    numbers, times = answer["numbers"], answer["times"]
    right, worst = 0, 0.0
    for i, wanted in enumerate(file.wanted()):
        if len(times) != FRAMES:
            i = min(range(len(times)), key=lambda j: abs(times[j] - wanted / FPS))
        reported = times[i] * FPS
        # The pixels give the number within a turn; the reported time only says which turn.
        shown = numbers[i] + file.turn * round((reported - numbers[i]) / file.turn)
        right += shown == wanted and abs(reported - wanted) < 0.5
        worst = max(worst, abs(shown - wanted) / FPS, (abs(reported - wanted) - 0.5) / FPS)
    return right, worst


def section(kind: Kind, file: File, answers: dict[str, list[Any]]) -> str:
    good = {n: [a for a in given if "seconds" in a] for n, given in answers.items()}
    wall = {n: statistics.median(a["seconds"] for a in given) for n, given in good.items() if given}
    spent = {n: statistics.median(a["cpu"] for a in given) for n, given in good.items() if given}
    wall["limit"] = spent["limit"] / CORES
    best = min((n for n in wall if CONTENDERS[n].rival), key=wall.__getitem__)
    megabits = file.path.stat().st_size * 8 / (file.frames / FPS) / 1e6
    lines = [
        f"## {kind.title}",
        "",
        f"{file.frames / FPS / 60:.1f} minutes ({file.frames} frames, {file.turns} × {file.turn}), {WIDTH}×{HEIGHT}, "
        f"{megabits:.1f} Mbit/s. Rounds: {max(map(len, good.values()))}. Fastest rival: {CONTENDERS[best].title}. "
        f"The limit decodes {good['limit'][0]['decoded']} frames.",
        "",
        "| way | wall s (range) | × best rival | × limit | CPU s | × its CPU | peak MB (imports) | size | right "
        "| off by |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(CONTENDERS, key=lambda n: wall.get(n, math.inf)):
        if name not in wall:
            failure = answers[name][-1]
            text = f"failed: {failure['failed']}" if "failed" in failure else "not installed"
            lines.append(f"| {CONTENDERS[name].title} | {text} |" + " |" * 8)
            continue
        runs = good[name]
        right, worst = zip(*(judge(file, run) for run in runs), strict=True)
        walls, frames = [run["seconds"] for run in runs], len(runs[0]["times"])
        span = f" ({min(walls):.1f}–{max(walls):.1f})" if len(runs) > 1 and name != "limit" else ""
        cells = [
            CONTENDERS[name].title,
            f"{wall[name]:.1f}{span}",
            f"{wall[name] / wall[best]:.2f}",
            f"{wall[name] / wall['limit']:.2f}",
            f"{spent[name]:.1f}",
            f"{spent[name] / spent[best]:.2f}",
            f"{max(run['peak'] for run in runs):.0f} ({runs[0]['base']:.0f})",
            "×".join(map(str, runs[0]["size"])),
            f"{min(right)}/{FRAMES}" + (f" from {frames} frames" if frames != FRAMES else ""),
            f"{max(worst):.2f} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def many(folder: Path) -> str:
    for number in range(5):
        path = folder / f"tiny-{number}.mp4"
        if not path.exists():
            encode(path, 75 + 25 * number, Kind("", "libx264", 50, 0, {"preset": "veryfast"}), size=(320, 180))
    rows = fresh(sys.executable, "many", str(folder))
    lines = [
        "## 500 short videos in one process",
        "",
        "| videos | RSS MB | open descriptors | threads |",
        "|---|---|---|---|",
    ]
    return (
        "\n".join([*lines, *(f"| {done} | {rss:.1f} | {fds} | {threads} |" for done, rss, fds, threads in rows)]) + "\n"
    )


def header(answers: dict[str, list[Any]], note: str) -> str:
    versions = {k: v for given in answers.values() for a in given for k, v in a.get("versions", {}).items()}
    return (
        f"`python speed/decode.py {shlex.join(sys.argv[1:])}`, {date.today()}, {CORES} cores, load average "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + ".\n\nWhat is measured, and how, stands at the head of `speed/decode.py`. Peak memory includes the "
        f"result ({FRAMES * WIDTH * HEIGHT * 3 / 2**20:.0f} MB in full size). Key frames (keyframe, and auto where one "
        f"is near) are by design other frames than those wanted.{f' {note}' if note else ''}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival-python", default=sys.executable, help="Python of the rivals' environment")
    parser.add_argument("--files", type=Path, help="folder that keeps the files between runs (2.2 GB for an hour)")
    parser.add_argument("--minutes", type=float, default=60, help="length of the H.264 files; HEVC has a sixth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="which files")
    parser.add_argument("--note", default="", help="a sentence for the header, such as what else was running")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, path = arguments.child
        print(json.dumps(many_child(path) if name == "many" else child(name, path)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.files or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        answers, sections = {}, []
        for name in arguments.only:
            file = make(name, folder, arguments.minutes)
            print(f"{file.path.name}:", file=sys.stderr)
            answers = compare(file, arguments.rival_python, arguments.rounds)
            sections.append(section(KINDS[name], file, answers))
        text = "\n".join([header(answers, arguments.note), *sections, many(folder)])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
