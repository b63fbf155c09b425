"""144 frames of a long video: gridprobe against every installed rival, in one run. Prints and stores a table.

    python benchmarks/decode.py --rival-python /tmp/bench-venv/bin/python --many

Task     The frames on display at the middle of 144 equal intervals, as RGB, in memory.
Files    Made here: 1280×720, 25 frames a second, B-frames, moving textures, noise and cuts; about a minute is encoded
         and repeated by stream copy. The number of turns is coprime to 144, so the targets fall on 144 different places
         of the encoded minute. Every frame carries its number, counted from the start of its turn, as wide black and
         white blocks.
Right    A frame is right if the number in its pixels AND the time its reader gives are those of the frame wanted.
Time     Each run in a fresh process; imports do not count, opening the file does. The file is in the page cache. Rounds
         go through all contenders in a new order each; the table has the median of the rounds. CPU seconds are user
         and system time of all threads. Peak memory is VmHWM and includes the imports, given in brackets.
Limit    The cost of what must be decoded: per target its key frame, then reference frames only, up to the target.
         Measured with FFmpeg's decoder on one thread, CPU seconds divided by the number of cores.

Rivals need the environment of benchmarks/requirements.txt; those that cannot be imported are listed as not installed.
"""

import argparse
import bisect
import importlib.metadata
import inspect
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

FRAMES = 144
FPS = 25
WIDTH, HEIGHT = 1280, 720
BITS, BLOCK, STRIP = 16, WIDTH // 16, 96
CORES = os.cpu_count() or 1
TIMEOUT = 900
RECIPE = 2
"""Counts up when the files change, so that old ones are not taken for new."""
RESULTS = Path(__file__).parent / "results" / "decode.md"

Taken = tuple[Any, list[float]]
"""Frames as one array or a list of arrays, and the time their reader gives each."""


# ---------------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Kind:
    """One of the files, before it is made."""

    title: str
    codec: str
    gop: int
    share: float
    """Of the length asked for with --minutes."""
    options: dict[str, str]


KINDS = {
    "gop50": Kind("H.264, a key frame every 50 frames or sooner", "libx264", 50, 1.0, {"crf": "25"}),
    "gop250": Kind(
        "H.264, a key frame every 250 frames or sooner (x264's default)", "libx264", 250, 1.0, {"crf": "24"}
    ),
    "hevc": Kind(
        "HEVC, open groups of at most 250 frames (x265's default)",
        "libx265",
        250,
        1 / 6,
        {"crf": "22", "preset": "fast", "x265-params": "log-level=none"},
    ),
}


@dataclass(frozen=True)
class File:
    """A file that was made: `turns` times the same `turn` frames."""

    path: Path
    turns: int
    turn: int

    @property
    def frames(self) -> int:
        return self.turns * self.turn

    def wanted(self) -> list[int]:
        """The numbers, from the start of the file, of the frames on display. `frames` is odd, so none is a tie."""
        return [(2 * i + 1) * self.frames // (2 * FRAMES) for i in range(FRAMES)]


def make(name: str, folder: Path, minutes: float) -> File:
    """Make a file, or find it where an earlier run left it."""
    kind = KINDS[name]
    length = minutes * kind.share
    turns = max(1, round(length))
    while math.gcd(turns, FRAMES) != 1:
        turns += 1
    turn = min(round(length * 60 * FPS / turns) | 1, 1 << BITS)
    path = folder / f"{name}-{turns}x{turn}-{RECIPE}.mp4"
    if not path.exists():
        print(f"making {path.name} …", file=sys.stderr)
        once = folder / f"{name}-{turn}.part.mp4"
        encode(once, turn, kind)
        half = path.with_suffix(".part.mp4")
        repeat(once, half, turns, turn)
        once.unlink()
        half.rename(path)
    return File(path, turns, turn)


def pictures(count: int, *, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Iterator[np.ndarray]:
    """Planar 4:2:0 frames: two textures moving against each other, noise that is new in every frame, cuts, a number."""
    width, height = size
    rng = np.random.default_rng(7)

    def texture(octaves: range) -> np.ndarray:
        total = np.zeros((2 * height, 2 * width))
        for octave in octaves:
            small = rng.normal(size=(2 * height // 2**octave + 2, 2 * width // 2**octave + 2))
            rows = np.linspace(0, small.shape[0] - 1.001, 2 * height)
            columns = np.linspace(0, small.shape[1] - 1.001, 2 * width)
            r, c = rows.astype(int), columns.astype(int)
            fr, fc = (rows - r)[:, None], (columns - c)[None, :]
            top = small[r][:, c] * (1 - fc) + small[r][:, c + 1] * fc
            bottom = small[r + 1][:, c] * (1 - fc) + small[r + 1][:, c + 1] * fc
            total += (top * (1 - fr) + bottom * fr) * 2 ** (0.7 * octave)
        total -= total.min()
        return (total * 200 / total.max()).astype(np.int16) // 20 * 20  # steps: edges that can be followed

    textures = [texture(range(2, 8)) for _ in range(3)]
    noise = np.clip(rng.normal(0, 2.5, size=(height + 256, width + 256)), -10, 10).astype(np.int16)
    left = 0
    for number in range(count):
        if left == 0:  # a cut: another pair of textures, places and speeds
            left = int(rng.integers(90, 420))
            one, two = (textures[i] for i in rng.permutation(3)[:2])
            place = rng.uniform(0.2, 0.8, size=4)
            speed = rng.uniform(-0.004, 0.004, size=4)
        left -= 1
        place = np.where((place + speed < 0) | (place + speed > 1), place, place + speed)
        y1, y2 = (int(v * height) for v in place[:2])
        x1, x2 = (int(v * width) for v in place[2:])
        ny, nx = rng.integers(0, 256, size=2)
        luma = (2 * one[y1 : y1 + height, x1 : x1 + width] + two[y2 : y2 + height, x2 : x2 + width]) // 3 + 20
        luma += noise[ny : ny + height, nx : nx + width]
        picture = np.empty((height * 3 // 2, width), np.uint8)
        np.clip(luma, 0, 255, out=picture[:height], casting="unsafe")
        strip = height * STRIP // HEIGHT
        columns = np.arange(width) * BITS // width
        picture[:strip] = np.where((number >> columns) & 1, 235, 16)
        chroma = 90 + one[y1 : y1 + height : 2, x1 : x1 + width : 2] // 3
        picture[height:] = chroma.astype(np.uint8).reshape(-1, width).repeat(2, axis=0)[: height // 2]
        yield picture


def encode(path: Path, count: int, kind: Kind, *, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    import av

    with av.open(str(path), "w") as out:
        stream = out.add_stream(kind.codec, rate=FPS, options=kind.options)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.gop_size = kind.gop
        for picture in pictures(count, size=size):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
        out.mux(stream.encode(None))


def repeat(source: Path, target: Path, turns: int, turn: int) -> None:
    import av

    with av.open(str(target), "w") as out:
        stream = None
        for number in range(turns):
            with av.open(str(source)) as once:
                stream = stream or out.add_stream_from_template(once.streams.video[0])
                for packet in once.demux(once.streams.video[0]):
                    if packet.dts is None:
                        continue
                    shift = round(number * turn / FPS / packet.time_base)
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                    out.mux(packet)


def read_number(pixels: np.ndarray) -> int:
    """The number a frame shows, at any size from about 64 pixels wide."""
    height, width = pixels.shape[:2]
    tall, wide = height * STRIP / HEIGHT, width / BITS
    strip = pixels[math.ceil(tall * 0.25) : max(math.floor(tall * 0.75), math.ceil(tall * 0.25) + 1)].mean(axis=(0, 2))
    levels = [strip[math.ceil((b + 0.25) * wide) : math.floor((b + 0.75) * wide)].mean() for b in range(BITS)]
    return sum(1 << b for b, level in enumerate(levels) if level > 127)


# ----------------------------------------------------------------------------------------------------------- contenders
# Each imports what it needs and gives back the work to be timed.


def gridprobe(precision: str, side: int | None) -> Callable[[str], Taken]:
    import av  # noqa: F401

    from gridprobe.video import FrameSize, Limits, sample

    # multiple=1 is the video's own size, like the rivals; the product's default is at most 786 432 pixels.
    size = FrameSize(max_side=side) if side else FrameSize(multiple=1)
    options: dict[str, Any] = {"precision": precision}
    if "precision" not in inspect.signature(sample).parameters:
        if precision != "exact":
            raise ImportError("sample() has no precision parameter")
        options = {}

    def work(path: str) -> Taken:
        pool = sample(path, cells=FRAMES, size=size, limits=Limits(seconds=TIMEOUT), **options)
        return pool.pixels, list(pool.times)

    return work


def plain() -> Callable[[str], Taken]:
    """The way most people write it: seek to each target, decode forward, keep the frame."""
    import av

    def work(path: str) -> Taken:
        kept, times = [], []
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            duration = float(stream.duration * stream.time_base)
            for i in range(FRAMES):
                moment = (i + 0.5) * duration / FRAMES
                container.seek(int(moment / stream.time_base), stream=stream)
                for frame in container.decode(stream):
                    if frame.time + 1 / float(stream.average_rate) > moment:
                        kept.append(frame.to_ndarray(format="rgb24"))
                        times.append(frame.time)
                        break
        return kept, times

    return work


def indices(count: int) -> list[int]:
    return [int((i + 0.5) * count / FRAMES) for i in range(FRAMES)]


def opencv() -> Callable[[str], Taken]:
    import cv2

    def work(path: str) -> Taken:
        kept, times = [], []
        capture = cv2.VideoCapture(path)
        for index in indices(int(capture.get(cv2.CAP_PROP_FRAME_COUNT))):
            capture.set(cv2.CAP_PROP_POS_FRAMES, index)
            good, pixels = capture.read()
            if good:
                kept.append(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
                times.append(capture.get(cv2.CAP_PROP_POS_MSEC) / 1000)
        capture.release()
        return kept, times

    return work


def decord() -> Callable[[str], Taken]:
    import decord

    def work(path: str) -> Taken:
        reader = decord.VideoReader(path, num_threads=CORES)
        chosen = indices(len(reader))
        pixels = reader.get_batch(chosen).asnumpy()
        return pixels, [float(start) for start, _ in reader.get_frame_timestamp(chosen)]

    return work


def torchcodec(mode: str) -> Callable[[str], Taken]:
    from torchcodec.decoders import VideoDecoder

    def work(path: str) -> Taken:
        decoder = VideoDecoder(path, seek_mode=mode, num_ffmpeg_threads=CORES, dimension_order="NHWC")
        batch = decoder.get_frames_at(indices(decoder.metadata.num_frames))
        return batch.data.numpy(), batch.pts_seconds.tolist()

    return work


def limit() -> Callable[[str], Taken]:
    """Decode what must be decoded, on one thread. Where that is, is worked out before the clock starts."""
    import av

    plans: dict[str, list[tuple[int, int, int]]] = {}

    def plan(path: str) -> None:
        with av.open(path) as container:
            stream = container.streams.video[0]
            packets, unneeded = [], 0
            for packet in container.demux(stream):
                if packet.pts is not None:
                    packets.append((packet.pts, packet.is_keyframe))
                    unneeded += not is_reference(bytes(packet), hevc=stream.codec_context.name == "hevc")
        work.unneeded = unneeded / len(packets)  # type: ignore[attr-defined]
        shown = sorted(pts for pts, _ in packets)
        place = {pts: n for n, (pts, _) in enumerate(packets)}
        keys = [n for n, (_, key) in enumerate(packets) if key]
        plans[path] = []
        for index in indices(len(shown)):
            target = shown[index]
            at = bisect.bisect_right(keys, place[target]) - 1
            while (
                packets[keys[at]][0] > target
            ):  # shown before the key frame it follows in the file: needs the one before
                at -= 1
            plans[path].append((target, packets[keys[at]][0], place[target]))

    def work(path: str) -> Taken:
        kept, times, fed = [], [], 0
        groups: dict[int, dict[int, int]] = {}
        for target, key, position in plans[path]:
            groups.setdefault(key, {})[target] = position
        with av.open(path) as container:
            stream = container.streams.video[0]
            context = stream.codec_context
            context.thread_type = "NONE"
            for key, targets in groups.items():
                wanted, last = set(targets), max(targets, key=targets.__getitem__)  # last in the file, not on display
                for packet in from_key(container, stream, key):
                    context.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
                    found = context.decode(packet)
                    if packet.pts == last:
                        found += context.decode(None)
                    for frame in found:
                        fed += 1
                        if frame.pts in wanted:
                            kept.append(frame.to_ndarray(format="rgb24"))
                            times.append(float(frame.pts * stream.time_base))  # a flushed frame has no time base
                    if packet.pts == last:
                        break
                context.flush_buffers()
        work.decoded = fed  # type: ignore[attr-defined]
        return kept, times

    work.prepare = plan  # type: ignore[attr-defined]
    return work


def is_reference(packet: bytes, *, hevc: bool) -> bool:
    """Whether other frames may need this one, from the header of its first slice (MP4: units led by their length)."""
    at = 0
    while at + 4 < len(packet):
        head = packet[at + 4]
        if hevc and head >> 1 & 63 < 32:
            return bool(head >> 1 & 63 >= 16 or head >> 1 & 1)
        if not hevc and head & 31 in (1, 5):
            return bool(head >> 5 & 3)
        at += 4 + int.from_bytes(packet[at : at + 4], "big")
    return True


def from_key(container: Any, stream: Any, key: int) -> Iterator[Any]:
    """Packets from the key frame with this time stamp on."""
    back = 0
    while True:
        container.seek(key - back, stream=stream)
        started = False
        for packet in container.demux(stream):
            started = started or packet.pts == key
            if started:
                yield packet
            elif packet.pts is not None and packet.is_keyframe and packet.pts > key:
                break
        back = max(1, back * 2)


@dataclass(frozen=True)
class Contender:
    title: str
    prepare: Callable[[], Callable[[str], Taken]]
    rival: bool = True
    packages: tuple[str, ...] = ()
    own_python: bool = False
    """Runs in the rivals' environment."""


def _ours(precision: str, side: int | None) -> Contender:
    title = f"gridprobe {precision}, {f'{side} px' if side else 'full size'}"
    return Contender(title, lambda: gridprobe(precision, side), rival=False, packages=("gridprobe", "av", "numpy"))


LIMIT = "limit"
CONTENDERS = {
    **{
        f"ours-{precision}-{side or 'full'}": _ours(precision, side)
        for precision in ("exact", "auto", "keyframe")
        for side in (None, 224)
    },
    "pyav": Contender("PyAV, seek and decode", plain, packages=("av",)),
    "opencv": Contender("OpenCV, CAP_PROP_POS_FRAMES", opencv, packages=("opencv-python-headless",), own_python=True),
    "decord": Contender(f"decord get_batch, {CORES} threads", decord, packages=("decord",), own_python=True),
    "torchcodec-approximate": Contender(
        f"torchcodec get_frames_at, approximate, {CORES} threads",
        lambda: torchcodec("approximate"),
        packages=("torchcodec", "torch"),
        own_python=True,
    ),
    "torchcodec-exact": Contender(
        f"torchcodec get_frames_at, exact, {CORES} threads",
        lambda: torchcodec("exact"),
        packages=("torchcodec", "torch"),
        own_python=True,
    ),
    LIMIT: Contender(f"the limit: needed frames only, CPU of one thread ÷ {CORES}", limit, rival=False),
}


# ------------------------------------------------------------------------------------------------------ fresh processes


def memory(field: str) -> float:
    """A field of /proc/self/status in MB. Not ru_maxrss: that starts at the parent's size and survives exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def child(name: str, path: str) -> dict[str, Any]:
    contender = CONTENDERS[name]
    try:
        work = contender.prepare()
    except ImportError as error:
        return {"missing": str(error)}
    getattr(work, "prepare", lambda _: None)(path)
    base = memory("VmRSS")
    start, spent = time.perf_counter(), cpu()
    pixels, times = work(path)
    seconds, spent = time.perf_counter() - start, cpu() - spent
    return {
        "seconds": seconds,
        "cpu": spent,
        "peak": memory("VmHWM"),
        "base": base,
        "decoded": getattr(work, "decoded", None),
        "unneeded": getattr(work, "unneeded", None),
        "size": list(pixels[0].shape[1::-1]),
        "numbers": [read_number(frame) for frame in pixels],
        "times": times,
        "versions": {package: importlib.metadata.version(package) for package in contender.packages},
    }


def many_child(way: str, folder: str) -> list[dict[str, float]]:
    """500 short videos in one process: what is left behind? The control only opens, decodes and closes, with PyAV."""
    import av

    from gridprobe.video import FrameSize, sample

    def control(path: str) -> None:
        with av.open(path) as container:
            for frame in container.decode(video=0):
                frame.to_ndarray(format="rgb24", width=96, height=64)

    def ours(path: str) -> None:
        sample(path, cells=16, size=FrameSize(max_side=96))

    work = ours if way == "many" else control
    files = [str(path) for path in sorted(Path(folder).glob("tiny-*.mp4"))]
    rows = []
    start = time.perf_counter()
    for done in range(1, 501):
        work(files[done % len(files)])
        if done in (1, 50, 250, 500):
            descriptors, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            rows.append({"done": done, "rss": memory("VmRSS"), "peak": memory("VmHWM"), "fds": descriptors})
            rows[-1] |= {"threads": threads, "seconds": time.perf_counter() - start}
    return rows


def fresh(python: str, *arguments: str) -> Any:
    """Run this file as a child; what it prints last is its answer, a crash or a hang is one too."""
    try:
        done = subprocess.run(
            [python, __file__, "--child", *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {TIMEOUT} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:120]}
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---------------------------------------------------------------------------------------------------------- measurement


@dataclass
class Busy:
    """What the machine did: its own work, other processes, and time taken by other guests of the host."""

    total: float
    busy: float
    steal: float
    own: float

    @classmethod
    def now(cls) -> "Busy":
        fields = [int(v) for v in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        busy = sum(fields[i] for i in (0, 1, 2, 5, 6))
        return cls(sum(fields) / tick, busy / tick, fields[7] / tick, cpu())

    def since(self, start: "Busy") -> tuple[float, float]:
        """The shares of all cores that other processes and the host (steal) took."""
        total = max(self.total - start.total, 1e-9)
        others = max(0.0, (self.busy - start.busy) - (self.own - start.own)) / total
        return others, (self.steal - start.steal) / total


def wait_for_quiet(quiet: float) -> None:
    """Up to two minutes, until others leave the machine alone for two seconds."""
    for _ in range(60):
        before = Busy.now()
        time.sleep(2)
        if sum(Busy.now().since(before)) <= quiet:
            return


def warm(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


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


def compare(file: File, pythons: dict[bool, str], rounds: int, at_most: float, quiet: float) -> dict[str, list[Any]]:
    """Rounds over all contenders, in a new order each; none begins after `at_most` seconds.

    A run during which others took more than `quiet` of the cores is thrown away and done again, twice at most, whoever
    it was: the only ground is what others did. The last try counts in any case, and the table marks it.
    """
    warm(file.path)
    answers: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
    order, start = list(CONTENDERS), time.perf_counter()
    shuffle = random.Random(1)
    for _ in range(rounds):
        if time.perf_counter() - start > at_most:
            break
        shuffle.shuffle(order)
        for name in order:
            if answers[name] and "seconds" not in answers[name][-1]:
                continue
            for thrown in range(3):
                wait_for_quiet(quiet)
                before = Busy.now()
                answer = fresh(pythons[CONTENDERS[name].own_python], name, str(file.path))
                others, steal = Busy.now().since(before)
                answer |= {"others": others, "steal": steal, "thrown": thrown, "disturbed": others + steal > quiet}
                shown = f"{answer['seconds']:.1f} s, {answer['cpu']:.1f} CPU s" if "seconds" in answer else str(answer)
                print(f"  {CONTENDERS[name].title}: {shown}; others {others:.0%}, steal {steal:.0%}", file=sys.stderr)
                if not answer["disturbed"] or "seconds" not in answer:
                    break
            answers[name].append(answer)
    return answers


def machine(answers: dict[str, list[Any]]) -> str:
    runs = [run for given in answers.values() for run in given if "seconds" in run]
    text = f"Others took at most {max(run['others'] for run in runs):.0%} of the cores during a run that counts, "
    text += f"the host (steal) at most {max(run['steal'] for run in runs):.0%}; "
    text += f"{sum(run['thrown'] for run in runs)} disturbed runs were thrown away and done again"
    kept = sum(run["disturbed"] for run in runs)
    return text + (f", {kept} stayed disturbed (†)." if kept else ".")


def section(kind: Kind, file: File, answers: dict[str, list[Any]]) -> str:
    good = {n: [a for a in given if "seconds" in a] for n, given in answers.items()}
    wall = {n: statistics.median(a["seconds"] for a in given) for n, given in good.items() if given}
    spent = {n: statistics.median(a["cpu"] for a in given) for n, given in good.items() if given}
    if LIMIT in wall:
        wall[LIMIT] = spent[LIMIT] / CORES
    rivals = [n for n in wall if CONTENDERS[n].rival]
    best = min(rivals, key=wall.__getitem__) if rivals else None
    rounds = max(map(len, good.values()))
    megabits = file.path.stat().st_size * 8 / (file.frames / FPS) / 1e6
    decoded = good[LIMIT][0]["decoded"] if good.get(LIMIT) else None
    lines = [
        f"## {kind.title}",
        "",
        f"{file.frames / FPS / 60:.1f} minutes ({file.frames} frames, {file.turns} × {file.turn}), {WIDTH}×{HEIGHT}, "
        f"{megabits:.1f} Mbit/s. {'Median of ' + str(rounds) + ' rounds' if rounds > 1 else 'One round'}. "
        f"{machine(answers)} Fastest rival: {CONTENDERS[best].title if best else 'none installed'}."
        + (
            f" No other frame needs {good[LIMIT][0]['unneeded']:.0%} of the frames; the limit decodes {decoded}."
            if decoded
            else ""
        ),
        "",
        "| way | wall s (range) | × fastest rival | × limit | CPU s | × its CPU | peak MB (imports) | size | right "
        "| worst error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(CONTENDERS, key=lambda n: wall.get(n, math.inf)):
        contender = CONTENDERS[name]
        title = f"**{contender.title}**" if contender.title.startswith("gridprobe") else contender.title
        if name not in wall:
            lines.append(f"| {title} | {absent(contender, answers[name][-1])} | | | | | | | | |")
            continue
        runs = good[name]
        right, worst = zip(*(judge(file, run) for run in runs), strict=True)
        walls, size, frames = [run["seconds"] for run in runs], runs[0]["size"], len(runs[0]["times"])
        cells = [
            title + (" †" if any(run["disturbed"] for run in runs) else ""),
            f"{wall[name]:.1f}" + (f" ({min(walls):.1f}–{max(walls):.1f})" if len(runs) > 1 and name != LIMIT else ""),
            f"{wall[name] / wall[best]:.2f}" if best else "",
            f"{wall[name] / wall[LIMIT]:.2f}" if LIMIT in wall else "",
            f"{spent[name]:.1f}",
            f"{spent[name] / spent[best]:.2f}" if best else "",
            f"{max(run['peak'] for run in runs):.0f} ({runs[0]['base']:.0f})",
            f"{size[0]}×{size[1]}",
            f"{min(right)}/{FRAMES}" + (f" from {frames} frames" if frames != FRAMES else ""),
            f"{max(worst):.2f} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def absent(contender: Contender, answer: dict[str, Any]) -> str:
    if "failed" in answer:
        return f"failed: {answer['failed']}"
    return "not installed" if contender.rival else str(answer["missing"])


def many(folder: Path) -> str:
    kind = Kind("", "libx264", 50, 0, {"preset": "veryfast"})
    for number in range(5):
        path = folder / f"tiny-{number}.mp4"
        if not path.exists():
            encode(path, 75 + 25 * number, kind, size=(320, 180))
    lines = [
        "## 500 short videos in one process",
        "",
        "Five files of 3 to 7 seconds, 320×180, each sampled 100 times (16 cells, 96 px). The control opens, decodes "
        "and closes the same files with PyAV alone.",
        "",
        "| way | videos | RSS MB | peak MB | open descriptors | threads | seconds so far |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, title in (("many", "**gridprobe**"), ("control", "PyAV control")):
        rows = fresh(sys.executable, way, str(folder))
        if isinstance(rows, dict):
            lines.append(f"| {title} | failed: {rows['failed']} | | | | | |")
            continue
        for row in rows:
            sizes = f"{row['rss']:.1f} | {row['peak']:.1f} | {row['fds']} | {row['threads']}"
            lines.append(f"| {title} | {row['done']} | {sizes} | {row['seconds']:.1f} |")
    return "\n".join(lines) + "\n"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def header(versions: dict[str, str], note: str) -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        f"`python benchmarks/decode.py {shlex.join(sys.argv[1:])}`, {date.today()}, {CORES} cores ({processor()}), "
        f"{memory_gb:.0f} GiB, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "",
        f"{FRAMES} frames, those on display at the middle of {FRAMES} equal intervals, as RGB. Every contender in a "
        "fresh process, rounds interleaved, imports not counted, file in the page cache. A frame is right if the "
        "number in its pixels and the time given are both those of the frame wanted. Peak memory includes the "
        f"imports and the result ({FRAMES * WIDTH * HEIGHT * 3 / 2**20:.0f} MB in full size). All rivals deliver full "
        "size. Key frames (keyframe, and auto where one is near) are by "
        "design other frames than those wanted. The limit is measured with FFmpeg's own decoder, so it "
        "holds for FFmpeg's software decoders.",
        "",
    ]
    return "\n".join([*lines, note, ""] if note else lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival-python", default=sys.executable, help="Python of the rivals' environment")
    parser.add_argument("--files", type=Path, help="folder that keeps the files between runs (3.5 GB for an hour)")
    parser.add_argument("--minutes", type=float, default=60, help="length of the H.264 files; HEVC has a sixth")
    parser.add_argument("--quiet", type=float, default=0.1, help="share of the cores others may take during a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-most", type=float, default=math.inf, help="begin no further round of a file after this")
    parser.add_argument(
        "--only", nargs="*", choices=KINDS, default=list(KINDS), help="which files; none with --many alone"
    )
    parser.add_argument("--many", action="store_true", help="also 500 short videos in one process")
    parser.add_argument("--note", default="", help="a sentence for the header, such as what else was running")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, path = arguments.child
        print(json.dumps(many_child(name, path) if name in ("many", "control") else child(name, path)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.files or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: make(name, folder, arguments.minutes) for name in arguments.only}
        pythons = {False: sys.executable, True: arguments.rival_python}
        versions: dict[str, str] = {}
        sections = []
        for name, file in files.items():
            print(f"{file.path.name}:", file=sys.stderr)
            answers = compare(file, pythons, arguments.rounds, arguments.at_most, arguments.quiet)
            for given in answers.values():
                versions |= {k: v for answer in given for k, v in answer.get("versions", {}).items()}
            sections.append(section(KINDS[name], file, answers))
        if arguments.many:
            sections.append(many(folder))
    text = "\n".join([header(versions, arguments.note), *sections])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
