"""Decoding in a child process: the same frames, and whatever happens to the child is one line for the caller.

Faults are put into the child as a false `av` package: a child has its parent's sys.path, and imports PyAV late.
"""

import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gridprobe.errors import UsageError, VideoError
from gridprobe.progress import Event, listening
from gridprobe.video import FrameSize, Limits, child, sample, sample_in_child
from videos import patched
from waiting import wait_until

SMALL = FrameSize(max_side=256)


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


def refused(path: Path, **options: object) -> str:
    with pytest.raises(VideoError) as caught:
        sample_in_child(path, cells=9, size=SMALL, **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("precision", ["exact", "keyframe"])
def test_the_same_as_without_a_child(faststart: Path, tmp_path: Path, precision: str) -> None:
    path = patched(faststart, tmp_path / "damaged é.mp4", start=0.5, length=0.02)
    options = {"cells": 50, "sampling": "linspace", "precision": precision, "size": SMALL}
    here, there = sample(path, **options), sample_in_child(path, **options)  # type: ignore[arg-type]
    assert np.array_equal(here.pixels, there.pixels)
    assert (here.keys, here.warnings, here.substituted) == (there.keys, there.warnings, there.substituted)
    assert here.info is not None and there.info is not None and asdict(here.info) == asdict(there.info)


def test_errors_and_progress_come_through(clip: Path, tmp_path: Path) -> None:
    assert refused(tmp_path / "none.mp4") == "no such file"
    with pytest.raises(UsageError, match="cells must be a whole number"):
        sample_in_child(clip, cells=0)
    with pytest.raises(UsageError, match="memory and cpu must be above 0"):
        sample_in_child(clip, cells=4, memory=0)
    seen: list[Event] = []
    with listening(seen.append):
        sample_in_child(clip, cells=5, size=SMALL)
    assert seen == [("decode", done, 5) for done in range(6)]


CRASH = "import os, signal\nos.kill(os.getpid(), signal.{})"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import ctypes\nctypes.string_at(0)", "the decoder crashed (SIGSEGV); the file is damaged or hostile"),
        (CRASH.format("SIGABRT"), "the decoder crashed (SIGABRT); the file is damaged or hostile"),
        (CRASH.format("SIGKILL"), "the decoding process was killed, perhaps because the machine ran out of memory"),
        ("import os\nos._exit(3)", "the decoding process failed (exit code 3)"),
        ("import os\nos._exit(0)", "the decoding process failed (exit code 0)"),
        ("raise RuntimeError('no\\x1b\\n luck')", "the decoding process failed ( luck)"),
        ("x = bytearray(2 << 30)", "needs more memory than 1 GiB; raise the limit (memory=)"),
        ("open('/dev/null').close()\nraise MemoryError", "needs more memory than 1 GiB; raise the limit (memory=)"),
    ],
)
def test_a_crash_is_one_line_and_the_next_call_works(clip: Path, fault: Fault, code: str, reason: str) -> None:
    """V27."""
    fault(code)
    assert refused(clip, memory=1 << 30) == reason
    fault.undo()
    assert len(sample_in_child(clip, cells=4, size=SMALL)) == 4


@pytest.fixture
def time_passes_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Stops the parent's clock until something is the case; then the child's time is over, however slow it started."""

    def put(true: Callable[[], bool]) -> None:
        monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=lambda: 1e6 * true()))
        monkeypatch.setattr(child, "GRACE", 0.05)

    return put


@pytest.mark.parametrize("code", ["while True: pass", "import threading\nthreading.Event().wait()", "signal.pause()"])
def test_a_call_that_never_returns_is_stopped(
    clip: Path, tmp_path: Path, fault: Fault, time_passes_when: Callable[[Callable[[], bool]], None], code: str
) -> None:
    """V26, and the deadline inside a single call: no packet loop is there to look at the clock."""
    fault(f"import signal\nopen({str(tmp_path / 'reached')!r}, 'w').close()\n{code}")
    time_passes_when((tmp_path / "reached").exists)
    text = refused(clip, limits=Limits(seconds=0.05), cpu=1000)
    assert text.startswith("decoding took longer than 0.05 s; raise the limit")
    assert (tmp_path / "reached").exists()


def test_processor_time_is_limited(clip: Path, fault: Fault) -> None:
    fault("while True: pass")
    assert refused(clip, cpu=1) == "decoding took more than 1 s of processor time; raise the limit (cpu=)"


def test_memory_is_limited_for_the_real_decoder(made: Path) -> None:
    """Frames of 64 megapixels do not fit into what PyAV itself leaves free."""
    from videos import numbered_video

    path = numbered_video(made / "large.avi", 1, size=(8192, 8000), codec="mjpeg", pixel_format="yuvj420p")
    assert "memory" in refused(path, memory=300 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        '{"shape": [9, 64, 256, 3]}',
        '{"shape": [1, 1, 1, 3], "info": {}, "times": [0], "warnings": [], "substituted": 0}',
        '{"shape": [1e400, 1, 1, 3]}',
        '{"shape": "x"}',
        '{"surprise": 1}',
    ],
)
def test_an_answer_is_not_trusted(clip: Path, fault: Fault, answer: str) -> None:
    fault(f"import os\nprint('noise [[[', flush=True)\nprint({answer!r}, flush=True)\nos._exit(0)")
    assert refused(clip) == "the decoding process returned an invalid answer"


def test_a_false_file_size_is_seen(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = child._ask
    monkeypatch.setattr(child, "_ask", lambda *args: {**real(*args), "shape": [9, 64, 255, 3]})
    assert refused(clip) == "the decoding process returned an invalid answer"
    monkeypatch.setattr(child, "_ask", lambda *args: {**(a := real(*args)), "info": {**a["info"], "codec": 5}})
    assert refused(clip) == "the decoding process returned an invalid answer"


def traces() -> tuple[int, int, list[str]]:
    """Open descriptors, threads, and child processes, zombies among them."""
    children = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(" ".join(children).split())


def test_nothing_is_left_behind(clip: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_in_child(clip, cells=2, size=SMALL)
    before = traces()
    sample_in_child(clip, cells=2, size=SMALL)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        sample_in_child(clip, cells=2, size=SMALL)
    fault("import os\nos._exit(3)")
    refused(clip)
    wait_until(lambda: traces() == before)


def test_modules_in_the_current_folder_are_not_imported(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert len(sample_in_child(clip, cells=2, size=SMALL)) == 2


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
        text = refused(clip, limits=Limits(seconds=0.05))
    finally:
        status = Path(f"/proc/{log.read_text().split()[0]}/status").read_text()
        os.kill(int(status.split("TracerPid:")[1].split()[0]), signal.SIGKILL)  # now the disk answers
    assert "took longer than 0.05 s" in text and "tracing stop" in status, "the child is still there"
    for thread in threading.enumerate():
        if thread.name == "bury":
            thread.join()
