"""Decoding in a child process: the same frames, and whatever happens to the child is one line for the caller.

Faults are put into the child as a false `av` package: a child has its parent's sys.path, and imports PyAV late.
"""

import json
import os
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest

import gridprobe as gp
import toy_runs
from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import DecoderKilled, UsageError, VideoError
from gridprobe.video import FrameCache, FrameSize, Video, VideoLimits, decoder_child, decoder_pool, sample
from gridprobe.video.decoder_pool import Child, stop_idle
from gridprobe_eval import read_records
from gridprobe_eval.benchmarks import Benchmark, Item
from gridprobe_eval.reader import read_run
from videos import bars, numbered_video, patched, turn_by_matrix
from waiting import printing_children, wait_until

SMALL = FrameSize(max_side=256)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def new_children() -> Iterator[None]:
    """No test gets a child that another one started."""
    stop_idle()
    yield
    stop_idle()


class Fault:
    """Replaces PyAV, in children to come, by some code; `undo` brings it back."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def __call__(self, code: str) -> None:
        (self._folder / "av").mkdir()
        (self._folder / "av" / "__init__.py").write_text(code)
        self._monkeypatch.setattr(sys, "path", [str(self._folder), *sys.path])

    def undo(self) -> None:
        self._monkeypatch.undo()


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(tmp_path, monkeypatch)


def sample_in_child(path: Path, **options: Any) -> gp.FramePool:
    return sample(path, **{"num_frames": 9, "size": SMALL, "decode_in": "child", **options})


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(VideoError) as caught:
        sample_in_child(path, **options)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def idle_pids() -> list[int]:
    return [child._process.pid for child in decoder_pool._idle]


def assert_same(here: gp.FramePool, there: gp.FramePool) -> None:
    assert np.array_equal(here.pixels, there.pixels)
    assert (here.keys, here.warnings, here.substituted) == (there.keys, there.warnings, there.substituted)
    assert here.info is not None and there.info is not None and asdict(here.info) == asdict(there.info)


@pytest.mark.parametrize("precision", ["exact", "keyframe"])
def test_the_same_as_without_a_child(faststart: Path, tmp_path: Path, precision: str) -> None:
    path = patched(faststart, tmp_path / "damaged é.mp4", start=0.5, length=0.02)
    options: dict[str, Any] = {"num_frames": 50, "sampling": "linspace", "precision": precision}
    here, there = Video(path, **options), Video(path, **options, decode_in="child")
    assert_same(here.pool(SMALL), there.pool(SMALL))
    assert_same(here.frames([3, 30, 20], SMALL), there.frames([3, 30, 20], SMALL))
    assert_same(here.frames([7, 8, 45]), there.frames([7, 8, 45]))
    assert_same(here.lazy(SMALL), there.lazy(SMALL))


def test_a_turned_video_is_the_same(clip: Path, tmp_path: Path) -> None:
    turned = turn_by_matrix(Path(shutil.copy(clip, tmp_path / "turned.mp4")), 90)
    segments = ((0.1, 0.6), (0.8, 1.4))
    here, there = (
        Video(turned, num_frames=5, segments=segments, decode_in=where).pool(SMALL) for where in ("process", "child")
    )
    assert here.info is not None and here.info.rotation
    assert_same(here, there)


def test_a_folder_of_pictures_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    for number in range(5):
        Image.fromarray(bars(number, (64, 48))).save(tmp_path / "pictures" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    here, there = Video("pictures", num_frames=4), Video("pictures", num_frames=4, decode_in="child")
    assert_same(here.pool(SMALL), there.pool(SMALL))
    assert_same(here.frames([2, 1]), there.frames([2, 1]))
    Image.fromarray(bars(7, (64, 48))).save(tmp_path / "pictures" / "9.png")
    with pytest.raises(VideoError, match="pictures: the pictures changed while they were in use"):
        there.frames([3], FrameSize(max_side=32))


def test_frames_from_the_cache_on_disk_are_the_same(clip: Path, tmp_path: Path) -> None:
    """A plan that one process has written serves the other kind, too."""
    pools = []
    for decode_in in ("child", "process", "child"):
        video = Video(clip, num_frames=9, cache=FrameCache(tmp_path, 10**8), decode_in=decode_in)
        pools.append(video.pool(SMALL))
    assert_same(pools[0], pools[1])
    assert_same(pools[1], pools[2])


def test_large_results_stay_in_shared_memory_and_can_be_written_to(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = sample_in_child(clip).pixels
    monkeypatch.setattr(decoder_pool, "MAP_FROM", 1)
    mapped = sample_in_child(clip).pixels
    assert small.base is None and mapped.base is not None and np.array_equal(small, mapped)
    mapped[:] = 0
    assert mapped.flags.writeable and np.array_equal(sample_in_child(clip).pixels, small)


def test_shared_memory_cannot_be_cut(clip: Path) -> None:
    """The parent would crash with SIGBUS when it reads beyond the end."""
    with decoder_pool._shared_memory(100) as memory, pytest.raises(PermissionError):
        os.ftruncate(memory, 1)


def test_errors_and_progress_come_through(clip: Path, tmp_path: Path) -> None:
    assert refused(tmp_path / "none.mp4") == "no such file"
    with pytest.raises(UsageError, match="num_frames must be a whole number"):
        sample_in_child(clip, num_frames=0)
    with pytest.raises(UsageError, match='decode_in must be "child" or "process"'):
        sample_in_child(clip, decode_in="thread")
    with pytest.raises(UsageError, match="process must be a number above 0"):
        VideoLimits(process=0)
    seen: list[ProgressEvent] = []
    with listening(seen.append):
        sample_in_child(clip, num_frames=5)
    assert seen[0] == ("decode", 0, 5) and seen[-1] == ("decode", 5, 5) and seen == sorted(set(seen))


def test_progress_is_sent_no_more_often_than_it_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(decoder_child, "PROGRESS_SECONDS", 10)
    here, there = socket.socketpair()
    with here, there:
        send = decoder_child._progress_sender(there)
        for now in range(102):
            send(ProgressEvent("decode", now, 101))
        sent = [json.loads(line)["done"] for line in here.recv(1 << 16).splitlines()]
    assert sent == [*range(0, 101, 10), 101]


def test_a_child_starts_without_what_decoding_does_not_need() -> None:
    """Numpy and Pillow would take half of the start and 15 MB."""
    late = {"numpy", "PIL", "importlib.metadata", "av"}
    code = decoder_pool.START.rpartition("from gridprobe")[0] + (
        f"import gridprobe.video.decoder_child; print(*{late} & sys.modules.keys())"
    )
    command = [sys.executable, "-I", "-S", "-c", code, json.dumps(sys.path), str(decoder_pool.PACKAGE)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


def test_a_child_reports_no_progress_that_nobody_listens_to(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []
    parsed = decoder_pool._parsed

    def noted(line: bytes) -> dict[str, Any]:
        lines.append(line)
        return parsed(line)

    monkeypatch.setattr(decoder_pool, "_parsed", noted)
    sample_in_child(clip)
    assert lines and not [line for line in lines if b"done" in line]


def test_a_child_serves_the_next_request_too(clip: Path, tmp_path: Path) -> None:
    sample_in_child(clip)
    first = idle_pids()
    with pytest.raises(VideoError):  # an error that the child reports does not end it
        sample_in_child(clip, stream=7)
    sample_in_child(clip)
    assert len(first) == 1 and idle_pids() == first
    sample_in_child(clip, limits=VideoLimits(process=3 << 30))  # other limits need another child
    assert len(idle_pids()) == 2


def test_a_child_that_died_while_idle_is_replaced(clip: Path) -> None:
    sample_in_child(clip)
    (pid,) = idle_pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not decoder_pool._idle[0].alive)
    assert len(sample_in_child(clip)) == 9 and idle_pids() != [pid]


def test_two_threads_have_a_child_each(clip: Path) -> None:
    both, pids = threading.Barrier(2), []

    def listener(event: ProgressEvent) -> None:
        if event.done == 0:
            both.wait()  # neither goes on before the other has begun

    def work() -> None:
        with listening(listener):
            pids.append(len(sample_in_child(clip)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pids == [9, 9] and len(idle_pids()) == 2


CRASH = "import os, signal\nos.kill(os.getpid(), signal.{})"
KILLED = "the decoding process was killed ({}), perhaps because the machine ran out of memory; try again"
FULL = "needs more memory than 1 GiB; raise the limit (VideoLimits.process)"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import ctypes\nctypes.string_at(0)", "the decoder crashed (SIGSEGV); the file is damaged or hostile"),
        (CRASH.format("SIGABRT"), "the decoder crashed (SIGABRT); the file is damaged or hostile"),
        (CRASH.format("SIGKILL"), KILLED.format("SIGKILL")),
        (CRASH.format("SIGTERM"), KILLED.format("SIGTERM")),
        ("import os\nos._exit(3)", "the decoding process failed (exit code 3)"),
        ("import os\nos._exit(0)", "the decoding process failed (exit code 0)"),
        ("raise RuntimeError('no\\x1b\\n luck')", "the decoding process failed ( luck)"),
        ("x = bytearray(2 << 30)", FULL),
        ("open('/dev/null').close()\nraise MemoryError", FULL),
    ],
)
def test_a_crash_is_one_line_and_the_next_call_works(clip: Path, fault: Fault, code: str, reason: str) -> None:
    """V27."""
    fault(code)
    assert refused(clip, limits=VideoLimits(process=1 << 30)) == reason
    assert idle_pids() == []
    fault.undo()
    assert len(sample_in_child(clip, num_frames=4)) == 4


class Killer:
    """Sends a signal to the children of the first requests about some video, just before each is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        """The children that were asked about the video."""
        self._signals: dict[str, list[signal.Signals]] = {}
        real = Child.ask

        def ask(child: Child, request: dict[str, Any], **options: Any) -> dict[str, Any]:
            name = Path(request["path"]).stem
            if name in self._signals:
                self.asked.append(child._process.pid)
                if self._signals[name]:
                    os.kill(child._process.pid, self._signals[name].pop(0))
            return real(child, request, **options)

        monkeypatch.setattr(Child, "ask", ask)

    def __call__(self, video: str, *signals: signal.Signals) -> None:
        self._signals[video] = list(signals)


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(monkeypatch)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_request_whose_child_dies_is_repeated_once_in_a_new_child(
    clip: Path, killer: Killer, how: signal.Signals
) -> None:
    """Not in an idle one: what damaged the first may have damaged that one, too."""
    pixels = sample_in_child(clip).pixels
    (used,), idle = idle_pids(), Child(str(clip), VideoLimits().process)
    decoder_pool._idle.append(idle)
    idle.usable = True
    killer("clip", how)
    assert np.array_equal(sample_in_child(clip).pixels, pixels)
    first, second = killer.asked[:2]
    assert first == used and second not in (used, idle._process.pid)


@pytest.mark.parametrize(
    ("signals", "kind"),
    [
        ((signal.SIGKILL, signal.SIGKILL), DecoderKilled),
        ((signal.SIGSEGV, signal.SIGTERM), DecoderKilled),
        ((signal.SIGSEGV, signal.SIGSEGV), VideoError),
        ((signal.SIGKILL, signal.SIGSEGV), VideoError),
    ],
)
def test_a_second_death_decides_whether_the_video_is_to_blame(
    clip: Path, killer: Killer, signals: tuple[signal.Signals, ...], kind: type[VideoError]
) -> None:
    killer("clip", *signals)
    with pytest.raises(VideoError) as caught:
        sample_in_child(clip)
    assert type(caught.value) is kind and caught.value.transient == (kind is DecoderKilled)
    assert len(killer.asked) == len(set(killer.asked)) == 2 and idle_pids() == []


def test_a_repeated_request_has_the_time_that_is_left(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, seconds = 0.0, []

    def ask(child: Child, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        nonlocal now
        now += 7
        seconds.append(options["seconds"])
        os.kill(child._process.pid, signal.SIGKILL)
        child._process.wait()
        raise DecoderKilled("killed")

    monkeypatch.setattr(Child, "ask", ask)
    monkeypatch.setattr(decoder_pool, "time", SimpleNamespace(monotonic=lambda: now))
    with pytest.raises(DecoderKilled):
        sample_in_child(clip, limits=VideoLimits(seconds=10))
    assert seconds == [10, 3]


def test_a_killed_decoder_fails_no_question_for_good(clip: Path, tmp_path: Path, killer: Killer) -> None:
    """All five of the video fail, which does not end the run; a resume asks them, and only them, again."""
    videos = {name: Path(shutil.copy(clip, tmp_path / f"{name}.mp4")) for name in ("killed", "fine")}
    items = [
        Item(f"{name}{n}", gp.Question("Is it?", ["a", "b"], answer="A", id=f"{name}{n}"), path, name)
        for name, path in videos.items()
        for n in range(5 if name == "killed" else 1)
    ]

    def run() -> str:
        options: dict[str, Any] = {"limits": VideoLimits(cache=0), "max_failures": 0}
        model = gp.MockModel(lambda request: {"A": 0.7, "B": 0.3})
        benchmark = Benchmark("toy", "toy", tuple(items))
        with toy_runs.evaluation(benchmark, tmp_path / "run", model=model, **options) as evaluation:
            evaluation.run()
            return str(evaluation.counts)

    killer("killed", signal.SIGKILL, signal.SIGKILL)
    assert run() == "0 done, 0 failed, 6 to do"
    first = read_run(tmp_path / "run")
    assert [result.outcome for result in first.results] == ["failed"] * 5 + ["answered"]
    assert all(result.error.startswith("DecoderKilled: ") for result in first.results[:5])
    assert "5 failed questions may succeed now; the command that began the run asks them again" in first.notes
    assert run() == "1 done, 0 failed, 5 to do"
    second = read_run(tmp_path / "run")
    assert {result.outcome for result in second.results} == {"answered"} and second.notes == ()
    assert run() == "6 done, 0 failed, 0 to do"


def test_a_crash_while_asking_leaves_the_model_loaded(
    clip: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V27 as a worker sees it: one session fails with a sentence, the next one uses the same model."""
    question = gp.Question("Which?", ["a", "b"])
    model = gp.MockModel(lambda request: {"A": 0.7, "B": 0.3})
    options: dict[str, Any] = {"model": model, "k": 3, "limits": VideoLimits(cache=0)}
    fault("import ctypes\nctypes.string_at(0)")
    with pytest.raises(VideoError, match=r"clip\.mp4: the decoder crashed \(SIGSEGV\)"):
        gp.ask(clip, question, **options)
    stop_idle()
    fault.undo()
    assert gp.ask(clip, question, **options).choice == "A"
    monkeypatch.setattr("gridprobe.options.DECODE_IN", "process")
    assert gp.ask(clip, question, **options).choice == "A"


CRASHES_ON_ONE = """
import ctypes, sys
sys.path.remove({folder!r})
del sys.modules["av"]
import av
def opened(url, *given, real=av.open, **options):
    return ctypes.string_at(0) if "crashes" in url else real(url, *given, **options)
av.open = opened
"""


def outcomes_of(clip: Path, tmp_path: Path, bad: str) -> dict[str, str]:
    """What became of a question about each of three videos, in a run in this process."""
    videos = {name: Path(shutil.copy(clip, tmp_path / f"{name}.mp4")) for name in ("one", bad, "two")}
    items = [
        Item(name, gp.Question("Is it?", ["a", "b"], answer="A", id=name), path, name) for name, path in videos.items()
    ]
    with toy_runs.evaluation(
        Benchmark("toy", "toy", tuple(items)),
        tmp_path / "run",
        model=gp.MockModel(lambda request: {"A": 0.7, "B": 0.3}),
        limits=VideoLimits(cache=0),
        max_failures=1,
    ) as evaluation:
        evaluation.run()
    return {name: each["outcome"] for name, each in read_records(tmp_path / "run").best.items()}


def test_a_crash_fails_the_questions_of_its_video_and_no_others(clip: Path, tmp_path: Path, fault: Fault) -> None:
    """V27 in `eval`: the worker, here this process, goes on with the model it has loaded."""
    fault(CRASHES_ON_ONE.format(folder=str(tmp_path)))
    assert outcomes_of(clip, tmp_path, "crashes") == {"one": "answered", "crashes": "failed", "two": "answered"}
    error = read_records(tmp_path / "run").best["crashes"]["error"]
    assert "the decoder crashed (SIGSEGV)" in error["message"]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a child has printed something: the one trace that it can leave."""
    outputs: list[IO[bytes]] = []
    original = decoder_pool._start

    def start(errors: IO[bytes], *arguments: Any, **options: Any) -> Any:
        outputs.append(errors)
        return original(errors, *arguments, **options)

    monkeypatch.setattr(decoder_pool, "_start", start)
    return lambda: any(os.fstat(output.fileno()).st_size for output in outputs if not output.closed)


@pytest.fixture
def time_passes_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Stops the parent's clock until something is the case; then the child's time is over, however slow it started."""

    def put(true: Callable[[], bool]) -> None:
        class Polling(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                return super().select(0.05)

        monkeypatch.setattr(decoder_pool, "DefaultSelector", Polling)
        monkeypatch.setattr(decoder_pool, "time", SimpleNamespace(monotonic=lambda: 1e6 * true()))

    return put


@pytest.mark.parametrize("code", ["while True: pass", "import threading\nthreading.Event().wait()", "signal.pause()"])
def test_a_call_that_never_returns_is_stopped(
    clip: Path,
    fault: Fault,
    printed: Callable[[], bool],
    time_passes_when: Callable[[Callable[[], bool]], None],
    code: str,
) -> None:
    """V26, and the deadline inside a single call: no packet loop is there to look at the clock."""
    fault(f"import signal\nprint('reached', flush=True)\n{code}")
    time_passes_when(printed)
    assert refused(clip, limits=VideoLimits(seconds=5000)).startswith(
        "decoding took longer than 5000 s; raise the limit"
    )


HANGS_ON_ONE = """
import signal, sys
sys.path.remove({folder!r})
del sys.modules["av"]
import av
def opened(url, *given, real=av.open, **options):
    if "hangs" in url:
        print("reached", flush=True)
        signal.pause()
    return real(url, *given, **options)
av.open = opened
"""


def test_a_timeout_fails_the_questions_of_its_video_and_no_others(
    clip: Path, tmp_path: Path, fault: Fault, printed: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V26 in `eval`. The clock jumps for the thread that waits for the hanging child, and stands still for others."""
    waits, real = threading.local(), Child.ask

    def ask(self: Child, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        waits.here = "hangs" in request["path"]
        return real(self, request, **options)

    class Polling(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            return super().select(0.05)

    clock = SimpleNamespace(monotonic=lambda: 1e6 * (getattr(waits, "here", False) and printed()))
    monkeypatch.setattr(Child, "ask", ask)
    monkeypatch.setattr(decoder_pool, "DefaultSelector", Polling)
    monkeypatch.setattr(decoder_pool, "time", clock)
    fault(HANGS_ON_ONE.format(folder=str(tmp_path)))
    assert outcomes_of(clip, tmp_path, "hangs") == {"one": "answered", "hangs": "failed", "two": "answered"}
    error = read_records(tmp_path / "run").best["hangs"]["error"]
    assert error["class"] == "VideoError" and "decoding took longer than" in error["message"]


def test_processor_time_is_limited(clip: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault("while True: pass")
    monkeypatch.setattr(decoder_pool, "usable_cores", lambda: 0.001)
    assert refused(clip, limits=VideoLimits(seconds=1000)) == (
        "decoding took more than 1 s of processor time; raise the limit (VideoLimits.seconds)"
    )


def test_memory_is_limited_for_the_real_decoder(made: Path) -> None:
    """Frames of 64 megapixels do not fit into what PyAV itself leaves free; small ones do."""
    limits = VideoLimits(process=200 << 20)
    small = numbered_video(made / "small.avi", 1, codec="mjpeg", pixel_format="yuvj420p")
    assert len(sample(small, num_frames=1, limits=limits, decode_in="child")) == 1
    large = numbered_video(made / "large.avi", 1, size=(8192, 8000), codec="mjpeg", pixel_format="yuvj420p")
    assert "memory" in refused(large, limits=limits)


TAKEN_OVER = """
import os, socket, subprocess, sys
from pathlib import Path
here = Path({folder!r})
sys.path.remove(str(here))
del sys.modules["av"]
import av

def connect():
    with socket.socket() as client:
        client.connect(("127.0.0.1", {port}))

attempts = {{
    "read its video": lambda: (here / "clip.mp4").read_bytes(),
    "read another video": lambda: (here / "other.mp4").read_bytes(),
    "listed a folder": lambda: os.listdir(here),
    "read a file": lambda: Path("/etc/passwd").read_bytes(),
    "read a program": lambda: Path(sys.executable).read_bytes(),
    "opened its own descriptors": lambda: Path(f"/proc/self/fd/{{sys.stdout.fileno()}}").read_bytes(),
    "read its memory": lambda: Path("/proc/self/mem").open("rb"),
    "wrote": lambda: Path(here, "written").write_text("x"),
    "emptied": lambda: os.truncate(here / "other.mp4", 0),
    "changed": lambda: os.chmod(here / "other.mp4", 0o777),
    "linked": lambda: os.link(here / "other.mp4", here / "linked"),
    "removed": lambda: Path(here, "other.mp4").unlink(),
    "connected": connect,
    "sent": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port})),
    "ran": lambda: subprocess.run([sys.executable, "-c", "0"], check=True),
    "replaced itself": lambda: os.execv(sys.executable, [sys.executable, "-c", "0"]),
    "forked": lambda: os.fork() or os._exit(0),
    "signalled": lambda: os.kill(os.getppid(), 0),
    "read the key": lambda: os.environ["GRIDPROBE_KEY"],
    "read the parent's key": lambda: Path(f"/proc/{{os.getppid()}}/environ").read_bytes(),
}}

def attack(*_, **options):
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
            done.append(name)
        except (OSError, KeyError):
            pass
    raise ImportError("it " + ", ".join(done))

av.open = attack
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_decoder_that_is_taken_over_can_only_read_its_video(
    clip: Path, tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_KEY", "secret")
    for name in ("clip.mp4", "other.mp4"):
        shutil.copy(clip, tmp_path / name)
    if decoder_pool.sandbox() != ["no_new_privs", "landlock", "seccomp"]:
        pytest.skip("this kernel has no Landlock or seccomp")
    stop_idle()
    with socket.create_server(("127.0.0.1", 0)) as server:
        fault(TAKEN_OVER.format(port=server.getsockname()[1], folder=str(tmp_path)))
        with pytest.raises(VideoError, match=r"\(it read its video\)"):
            sample_in_child(tmp_path / "clip.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["av", "clip.mp4", "other.mp4"]
    assert (tmp_path / "other.mp4").read_bytes() == clip.read_bytes()


def test_a_child_serves_one_video_only(clip: Path, tmp_path: Path) -> None:
    """What one video has taken over never decodes another."""
    other = Path(shutil.copy(clip, tmp_path / "other.mp4"))
    pids = []
    for path in (clip, other, clip, other):
        sample_in_child(path)
        pids.append(idle_pids()[-1])
    assert pids[:2] == pids[2:] and pids[0] != pids[1]
    sample_in_child(Path(shutil.copy(clip, tmp_path / "third.mp4")))
    assert len(idle_pids()) == decoder_pool.MAX_IDLE and pids[0] not in idle_pids(), "the oldest made room"


def test_a_video_that_was_replaced_gets_a_new_child(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    refused(path)
    shutil.copy(clip, path)
    first = sample_in_child(path)
    numbered_video(tmp_path / "new.mp4", 9).rename(path)
    assert len(first) == len(sample_in_child(path)) == 9 and len(idle_pids()) == 1


def test_pictures_that_are_links_and_of_all_kinds_can_be_read(tmp_path: Path) -> None:
    from PIL import Image

    folders = [tmp_path / "kept", tmp_path / "shown"]
    for folder in folders:
        folder.mkdir()
    for number, suffix in enumerate(("png", "jpg", "webp", "bmp")):
        name = f"{number}.{suffix}"
        Image.fromarray(bars(number, (64, 48))).save(folders[0] / name)
        (folders[1] / name).symlink_to(folders[0] / name)
    here, there = (Video(folders[1], num_frames=4, decode_in=where).pool(SMALL) for where in ("process", "child"))
    assert_same(here, there)


def test_a_child_has_no_keys_of_its_parent(clip: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPROBE_KEY", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    fault("import os; raise ImportError(' '.join(sorted(os.environ)))")
    with pytest.raises(VideoError) as caught:
        sample_in_child(clip)
    names = str(caught.value).partition("(")[2].partition(")")[0].split()
    assert "LC_ALL" in names and set(names) <= {*decoder_pool.ENVIRONMENT, "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"}


@pytest.mark.parametrize(
    ("do", "change"),
    [
        ("check", {"file": {"path": 1}}),
        ("check", {"file": "x"}),
        ("check", {"decoder": 5}),
        ("open", {"stream": "[[["}),
        ("open", {"stream": '{"info": {}}'}),
        ("open", {"stream": None}),
        ("open", {"used": "x"}),
        ("read", {"index": {"pts": [1, 2, 3]}, "surprise": 1, "more": 10**400}),
        ("read", {"index": {"pts": [2, 1]}}),
        ("read", {"index": {"pts": list(range(10))}}),
        ("read", {"index": {"pts": [1.5]}}),
        ("read", {"index": {"pts": [1], "lost": "x"}}),
        ("read", {"index": {"pts": [1], "surprise": 1}}),
    ],
)
def test_a_reply_is_not_trusted(clip: Path, monkeypatch: pytest.MonkeyPatch, do: str, change: dict[str, Any]) -> None:
    real = Child.ask

    def false(self: Child, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        reply = real(self, request, **options)
        return {**reply, **change} if request["do"] == do else reply

    monkeypatch.setattr(Child, "ask", false)
    if "surprise" in change:  # unknown names beside the reply are of no interest
        assert len(sample_in_child(clip)) == 3
    else:
        assert refused(clip) == "the decoding process returned an invalid answer"


def traces() -> tuple[int, int, list[str]]:
    """Open descriptors, threads, and child processes, zombies among them."""
    found = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(" ".join(found).split())


def test_nothing_is_left_behind(clip: Path, fault: Fault) -> None:
    before = traces()
    pool = sample_in_child(clip, num_frames=2)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        sample_in_child(clip, num_frames=2)
    assert idle_pids() == []  # a child whose request was given up is not used again
    fault("import os\nos._exit(3)")
    refused(clip)
    stop_idle()
    wait_until(lambda: traces() == before)
    assert len(pool.pixels) == 2


def run(code: str, *, before: str = "", **options: Any) -> "subprocess.Popen[str]":
    """A program that does not guard its main part, read from standard input as a notebook's cells are."""
    paths = [before, str(ROOT / "src"), *sys.path] if before else [str(ROOT / "src"), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        **options,
    )
    assert process.stdin is not None
    process.stdin.write(code)
    process.stdin.close()
    process.stdin = None
    return process


SAMPLE = "from gridprobe.video import sample\nprint(len(sample({!r}, num_frames=4, decode_in='child')), flush=True)\n"


def test_a_program_without_a_guard(clip: Path) -> None:
    """Once with idle children at its end, once in a process forked off after a child was started."""
    fork = "import os\nif pid := os.fork(): os.waitpid(pid, 0)\n"
    process = run(SAMPLE.format(str(clip)) + fork + SAMPLE.format(str(clip)))
    assert process.communicate() == ("4\n4\n4\n", "") and process.returncode == 0


def test_neither_process_imports_what_the_other_is_for(clip: Path, fault: Fault) -> None:
    fault("import sys\nraise RuntimeError(sorted({'torch', 'transformers'} & set(sys.modules)))")
    assert refused(clip) == "the decoding process failed (RuntimeError: [])"
    fault.undo()
    process = run(SAMPLE.format(str(clip)) + "import sys; print({'av', 'torch'} & set(sys.modules))")
    assert process.communicate() == ("4\nset()\n", "")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_with_its_parent(clip: Path, tmp_path: Path, how: signal.Signals) -> None:
    """Even while it hangs inside a call: neither thread nor loop of the child would notice. SIGINT is Ctrl-C."""
    (tmp_path / "av").mkdir()
    wait = "import re\nprint('reached', flush=True)\nre.match('(a*)*b', 'a' * 60)"
    (tmp_path / "av" / "__init__.py").write_text(wait)
    process = run(SAMPLE.format(str(clip)), before=str(tmp_path), start_new_session=True)
    wait_until(lambda: printing_children(process.pid) != [])
    (child,) = printing_children(process.pid)
    os.killpg(process.pid, how)
    _, errors = process.communicate()
    wait_until(lambda: _is_gone(child))
    assert errors.endswith("KeyboardInterrupt\n") if how == signal.SIGINT else process.returncode == -how


def _is_gone(pid: int) -> bool:
    """Whether it ended; nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_modules_in_the_current_folder_are_not_imported(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert len(sample_in_child(clip, num_frames=2)) == 2


def test_names_are_relative_to_the_folder_of_the_moment(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_in_child(clip)  # the child was started elsewhere
    shutil.copy(clip, tmp_path / "copy.mp4")
    monkeypatch.chdir(tmp_path)
    pool = sample_in_child(Path("copy.mp4"))
    assert pool.info is not None and pool.info.path == "copy.mp4"
    assert refused(Path("none.mp4")) == "no such file"


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_disk_that_does_not_answer(
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    time_passes_when: Callable[[Callable[[], bool]], None],
) -> None:
    """V26 as written: a read of the video takes an hour, and not even SIGKILL ends the child meanwhile."""
    stalling, log = tmp_path / "python", tmp_path / "reads"
    log.touch()
    options = f"-D -f -o {log} -e trace=read,pread64 -e inject=read,pread64:delay_enter=3600000000"
    stalling.write_text(f'#!/bin/sh\nexec strace {options} -P "{clip}" {sys.executable} "$@"\n')
    stalling.chmod(stalling.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(stalling))
    time_passes_when(lambda: "read" in log.read_text())
    try:
        text = refused(clip, limits=VideoLimits(seconds=5000))
    finally:
        status = Path(f"/proc/{log.read_text().split()[0]}/status").read_text()
        os.kill(int(status.split("TracerPid:")[1].split()[0]), signal.SIGKILL)  # now the disk answers
    assert "took longer than 5000 s" in text and "tracing stop" in status, "the child is still there"
    for thread in threading.enumerate():
        if thread.name == "reap":
            thread.join()
