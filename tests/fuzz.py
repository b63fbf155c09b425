"""Fuzzing by plain mutation of seeds that are made here: no input may crash gridprobe or make it hang.

    python tests/fuzz.py [--seconds 60] [--seed 0] [--target containers …]

A case fails if it raises anything but a GridProbeError, is answered with 5xx other than 502, 503 and 507, takes more
than 20 seconds of CPU, or ends the process. Every failure is printed and saved in tests/corpus/TARGET/, once for each
place in the code; tests/test_fuzz.py replays the corpus. A target runs in a process of its own.
"""

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from fuzz_targets import TARGETS, Target, opened
from gridprobe.errors import GridProbeError
from mutation import mutated

CORPUS = Path(__file__).parent / "corpus"
CPU_SECONDS = 20.0
MEMORY = 8 << 30
GRACE = 300.0
"""Seconds that a target's process may take beyond its time: for its seeds, and for the last case."""


class Hang(BaseException):
    """A case took too much CPU time."""


class Attempt:
    """A context manager that keeps what its block raises, except the errors of ours and the user's Ctrl-C."""

    failure: BaseException | None = None

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
            return False
        self.failure = None if isinstance(error, GridProbeError) else error
        return True


SPARE = 10.0
"""Seconds of CPU before the kernel ends the process; a garbage collection can hold Python up for some tenths."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise Hang after so many seconds of CPU; where Python gets no turn, the kernel ends the process a bit later."""

    def on_time(*_: object) -> None:
        raise Hang(f"more than {seconds:g} s of CPU")

    before = signal.signal(signal.SIGPROF, on_time)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 2 * seconds + SPARE), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def attempt(target: Target, kind: str, data: bytes, *, seconds: float = CPU_SECONDS) -> BaseException | None:
    """What is wrong with how a case is handled; None if nothing is."""
    trial = Attempt()
    with trial, cpu_limit(seconds):
        target.run(kind, data)
    return trial.failure


def title(error: BaseException) -> str:
    """The kind of an error and the last place of gridprobe in its traceback, for a file name."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/gridprobe/" in frame.filename] or frames
    where = f"{Path(ours[-1].filename).stem}-{ours[-1].name}" if ours else "nowhere"
    return re.sub(r"[^A-Za-z0-9_-]", "", f"{type(error).__name__}-{where}")


def work(name: str, folder: Path, *, seconds: float, cases: int | None, seed: int) -> None:
    """Try cases of one target, and print a line of JSON for each failure and at the end."""
    chance, count, known = random.Random(f"{name} {seed}"), 0, set[str]()
    with opened(name, folder / "work") as (target, seeds):
        end = time.monotonic() + seconds
        while count < cases if cases is not None else time.monotonic() < end:
            kind = chance.choice(sorted(seeds))
            data = mutated(seeds[kind], chance, tuple(seeds.values()))
            (folder / "data").write_bytes(data)
            (folder / "kind").write_text(kind)
            count += 1
            failure = attempt(target, kind, data)
            if failure is not None and (found := title(failure)) not in known:
                known.add(found)
                words = "".join(traceback.format_exception(failure)[-12:])
                print(json.dumps({"title": found, "file": save(name, found, kind, data), "words": words}), flush=True)
    print(json.dumps({"cases": count}), flush=True)


def save(target: str, title: str, kind: str, data: bytes) -> str:
    """Keep a case in the corpus, and return its path."""
    path = CORPUS / target / f"{title}--{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def kind_of(file: Path) -> str:
    """The seed of a file of the corpus."""
    return file.name.rpartition("--")[2]


def fuzz(name: str, *, seconds: float, cases: int | None, seed: int) -> tuple[int, list[dict[str, Any]]]:
    """Run one target in a process of its own; returns the number of cases, and the failures."""
    with tempfile.TemporaryDirectory() as place:
        given = [
            "--seconds",
            str(seconds),
            "--seed",
            str(seed),
            *(["--cases", str(cases)] if cases is not None else []),
        ]
        command = [sys.executable, __file__, "--work", place, "--target", name, *given]
        done: subprocess.CompletedProcess[str] | None = None
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds + GRACE, check=False)
            lines = done.stdout.splitlines()
        except subprocess.TimeoutExpired as error:
            lines = error.stdout.decode().splitlines() if error.stdout else []
        found = [json.loads(line) for line in lines]
        failures = [each for each in found if "title" in each]
        if done is None or done.returncode:
            how = "deadlock" if done is None else f"exit-{done.returncode}"
            file = Path(place, "kind")
            saved = save(name, how, file.read_text(), Path(place, "data").read_bytes()) if file.exists() else "no case"
            failures.append({"title": how, "file": saved, "words": f"the process ended ({how})"})
    return next((each["cases"] for each in found if "cases" in each), 0), failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--cases", type=int, help="so many for each target, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    how = {"seconds": given.seconds, "cases": given.cases, "seed": given.seed}
    if given.work is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["GRIDPROBE_CACHE"] = os.environ["GRIDPROBE_CALIBRATION"] = "off"
        work(given.target[0], given.work, **how)
        return
    failed = 0
    for name in given.target:
        count, failures = fuzz(name, **how)
        print(
            f"{name}: {count or 'an unknown number of'} cases, {len(failures)} failures (seed {given.seed})", flush=True
        )
        for each in failures:
            print(f"\n{each['title']}: {each['file']}\n{each['words']}", flush=True)
        failed += len(failures)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
