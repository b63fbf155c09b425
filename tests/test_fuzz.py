"""Every crash that fuzzing found is tried again, and the fuzzer itself finds what it should."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from fuzz import CORPUS, Hang, attempt, kind_of, title
from fuzz_targets import TARGETS, Requests, Target, opened

PROGRAM = Path(fuzz.__file__)


@pytest.mark.filterwarnings("default")  # as the program runs
@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_good_and_no_case_of_the_corpus_fails(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path) as (target, seeds):
        for kind, data in seeds.items():
            target.run(kind, data)
            assert not isinstance(target, Requests) or target.status in (200, 202), kind
        for file in sorted((CORPUS / name).glob("*--*")):
            assert kind_of(file) in seeds, f"{file.name} has no seed"
            assert attempt(target, kind_of(file), file.read_bytes()) is None, file.name


def test_every_file_of_the_corpus_belongs_to_a_target() -> None:
    files = [file.relative_to(CORPUS) for file in CORPUS.rglob("*") if file.is_file()]
    assert files and all(file.parts[0] in TARGETS and "--" in file.name for file in files)


class Broken(Target):
    """Fails in every way that a target can fail."""

    def seeds(self) -> dict[str, bytes]:
        return {"a": b"seed"}

    def run(self, name: str, data: bytes) -> None:
        if data == b"raises":
            raise ZeroDivisionError
        while data == b"hangs":
            pass
        if data == b"dies":
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_crash_and_a_hang_are_failures(tmp_path: Path) -> None:
    target = Broken(tmp_path)

    assert attempt(target, "a", b"good") is None
    crash = attempt(target, "a", b"raises")
    assert isinstance(crash, ZeroDivisionError) and title(crash) == "ZeroDivisionError-test_fuzz-run"
    assert isinstance(attempt(target, "a", b"hangs", seconds=0.1), Hang)


def test_a_death_is_a_failure_with_the_case_that_caused_it(tmp_path: Path) -> None:
    program = f"""
import sys; sys.path[:0] = {[str(PROGRAM.parent), str(PROGRAM.parent.parent / "src")]!r}
import fuzz, fuzz_targets, importlib.util, pathlib
spec = importlib.util.spec_from_file_location("broken", {__file__!r}); module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module); fuzz_targets.TARGETS["broken"] = module.Broken
fuzz.mutated = lambda *_: b"dies"
if "--work" in sys.argv:
    fuzz.main()
fuzz.CORPUS, fuzz.__file__ = pathlib.Path({str(tmp_path)!r}), __file__
print(fuzz.fuzz("broken", seconds=1, cases=1, seed=0))
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False)

    assert "exit--9" in done.stdout, done.stderr
    assert (tmp_path / "broken" / "exit--9--a").read_bytes() == b"dies"


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_bounded_run_finds_nothing(name: str) -> None:
    command = [sys.executable, str(PROGRAM), "--target", name, "--cases", "2000", "--seconds", "3000", "--seed", "11"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{name}: 2000 cases, 0 failures" in done.stdout, done.stdout + done.stderr
