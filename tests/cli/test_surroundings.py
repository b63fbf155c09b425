"""The command line in odd surroundings: closed pipes, terminals without colour or room, Ctrl-C, absent packages."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fake_server import Fake, Heard, by_hash, serving
from gridprobe.cli import cli
from gridprobe.cli.doctor import Check, print_checks
from gridprobe.registry import install_command
from videos import numbered_video
from waiting import printing_children, wait_until

WITHOUT = """
import sys
import termios
for name in {absent!r}:
    sys.modules[name] = None
from gridprobe.cli import main
main()
"""
"""The command line where importing some packages fails."""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("surroundings") / "clip.mp4", 30)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A model on a server: nothing heavy is imported for it."""
    with serving(Fake()) as address:
        yield address


def question(clip: Path, model: object) -> list[str]:
    return ["ask", str(clip), "What is it?", "-o", "a", "-o", "b", "--k", "3", "--model", str(model)]


def gridprobe(*arguments: str, absent: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(absent=absent), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_c02_json_is_one_object_beside_warnings_and_progress(clip: Path, url: str) -> None:
    done = gridprobe(*question(clip, url), "--frames", "500", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["warnings"], "500 frames were wanted, 9 were sampled"


@pytest.mark.parametrize("last", [["--json"], []], ids=["json", "text"])
def test_c02_a_reader_that_has_left_is_no_traceback(clip: Path, url: str, last: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gridprobe", *question(clip, url), *last]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)

    assert done.returncode in (0, 1, 141), done.stderr
    assert not re.search(r"Traceback|Error|Exception", done.stderr), done.stderr


def test_c03_without_a_terminal_there_are_no_escape_codes_and_narrow_ones_are_kept_to(clip: Path, url: str) -> None:
    ask = question(clip, url)
    plain = gridprobe(*ask, COLUMNS="60", LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    forced = gridprobe(*ask, NO_COLOR="1", FORCE_COLOR="1", COLUMNS="60")

    assert plain.returncode == forced.returncode == 0, plain.stderr + forced.stderr
    assert plain.stdout.isascii() and "\x1b" not in plain.stdout + plain.stderr
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", forced.stdout), "NO_COLOR is stronger"
    assert max(map(len, plain.stdout.splitlines())) <= 60


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_lists_cut_no_name_and_no_address(columns: int, encoding: str) -> None:
    runner = CliRunner(charset=encoding, env={"COLUMNS": str(columns), "TERM": "dumb"})
    models, settings = (runner.invoke(cli, ["list", what]).stdout for what in ("models", "settings"))

    for words in ("checkpoint:FOLDER|OWNER/NAME", "http://localhost:8000/v1#MODEL;", "Qwen/Qwen3-VL-2B-Instruct;"):
        assert words in models.split()
    for line in (models + settings).splitlines():
        assert len(line) <= columns or len(line.split()) == 1 or "--set NAME" in line, line
        assert line == line.rstrip() and "…" not in line and "..." not in line


def test_without_torch_a_model_names_the_extra_and_the_build_for_a_cpu(clip: Path) -> None:
    done = gridprobe(*question(clip, "embedded"), absent=("torch", "transformers"))

    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"which is not installed; run: {install_command('local')}\n")


def test_doctor_cuts_no_address(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_checks([Check("local models", "absent", f"run: {install_command('local')}"), Check("disk", "ok", "[b]9[/b]")])

    printed = capsys.readouterr().out
    assert "https://download.pytorch.org/whl/cpu" in printed.split() and "[b]9[/b]" in printed
    assert " ".join(printed.split()).endswith(f"run: {install_command('local')} ✓ disk [b]9[/b]")


HANGS = """
import contextlib, threading
print(flush=True)
with contextlib.suppress(OSError):  # the decoding process cannot write a file
    open({!r}, "w").close()
threading.Event().wait()
"""
"""Stands in for PyAV in the decoding process, and for torch while a model is loaded."""


# C05 of tests/reliability.md, too: 130
@pytest.mark.parametrize("phase", ["load", "decode", "probe"])
def test_c04_ctrl_c_while_decoding_or_asking_leaves_nothing_behind(clip: Path, tmp_path: Path, phase: str) -> None:
    reached, over, environment = tmp_path / "reached", threading.Event(), dict(os.environ)

    def voice(heard: Heard, letters: Any) -> dict[str, float]:
        if phase == "probe" and [part for part in heard if not isinstance(part, str)] and "What is it?" in str(heard):
            reached.touch()
            over.wait()
        return by_hash(heard, letters)

    if phase != "probe":
        package = tmp_path / ("av" if phase == "decode" else "torch")
        package.mkdir()
        (package / "__init__.py").write_text(HANGS.format(str(reached)))
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    with serving(Fake(voice=voice)) as url:
        command = [sys.executable, "-m", "gridprobe", *question(clip, "embedded" if phase == "load" else url)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        try:
            here = partial(printing_children, process.pid) if phase == "decode" else reached.exists
            wait_until(lambda: here() or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the decoding process, too
            stdout, stderr = process.communicate()
        finally:
            over.set()
            process.kill()

    assert (process.returncode, stdout.strip()) == (130, ""), stderr  # the hanging package ends a line
    assert stderr.splitlines()[-1] == "gridprobe: interrupted" and "Traceback" not in stderr
    wait_until(lambda: not group(process.pid))  # the decoding process ends with its parent


def group(leader: int) -> list[str]:
    """The processes of a group that are still alive."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(leader)], capture_output=True, text=True).stdout
    return [line for line in found.splitlines() if line.strip() and "Z" not in line]


def test_c06_a_server_is_asked_without_torch(clip: Path, url: str) -> None:
    done = gridprobe(*question(clip, url), "--json", absent=("torch", "transformers"))

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choice"] in ("A", "B")


@pytest.mark.parametrize("missing", ["mcp", "uvicorn"])
def test_c06_mcp_on_a_bare_install_names_its_extra(missing: str) -> None:
    done = gridprobe("mcp", absent=(missing,))

    assert done.returncode == 1 and done.stderr.endswith("pip install 'gridprobe[mcp]'\n")


def test_c06_mcp_needs_nothing_that_its_extra_does_not_bring(url: str) -> None:
    """The web framework of `gridprobe serve` is in another extra."""
    done = gridprobe("mcp", "--model", url, absent=("fastapi", "prometheus_client"))

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("absent", "extra"), [("torch", "gridprobe[local]"), ("av", "PyAV")])
def test_c06_an_absent_package_is_named_with_the_way_to_install_it(
    clip: Path, tmp_path: Path, url: str, absent: str, extra: str
) -> None:
    (tmp_path / absent).mkdir()
    error = f"ModuleNotFoundError('No module named {absent}', name={absent!r})"
    (tmp_path / absent / "__init__.py").write_text(f"raise {error}")
    places = os.pathsep.join([str(tmp_path), *sys.path])
    done = gridprobe(*question(clip, "embedded" if absent == "torch" else url), PYTHONPATH=places)

    assert done.returncode == 1 and done.stdout == ""
    assert "Traceback" not in done.stderr and extra in done.stderr and "install" in done.stderr, done.stderr


def test_a18_no_name_reaches_the_terminal_unescaped(tmp_path: Path) -> None:
    evil = tmp_path / "x\x1b]0;owned\x07\r\nFAKE LINE\x9b2J.mp4"
    evil.write_bytes(b"no video")
    rows = tmp_path / "own.jsonl"
    row = {"id": "a\x1b[2J\nb", "video": evil.name, "question": "?\x1b[31m", "options": ["a", "b"], "answer": "A"}
    rows.write_text(json.dumps(row) + "\n")
    commands = (
        [*question(evil, "embedded")],
        ["plan", str(evil)],
        ["eval", "jsonl", "--data", str(rows), "--check"],
        ["eval", "jsonl", "--data", str(rows), "--model", "embedded", "--workers", "0", "--out", str(tmp_path / "run")],
        ["status", str(tmp_path / "run")],
        ["score", str(tmp_path / "run")],
        ["score", evil.name],
        ["ask", "clip.mp4", "?", evil.name],  # one argument too many, as by a pattern that names several files
        ["ask", "clip.mp4", "?", "--model", "embedded", "--preset", evil.name],
        ["list", evil.name],
        ["eval", evil.name, "--data", str(rows), "--check"],
    )
    process, results = gridprobe(evil.name), [CliRunner().invoke(cli, command) for command in commands]
    assert all(result.exception is None or isinstance(result.exception, SystemExit) for result in results)
    printed = [process.stdout + process.stderr, *(result.stdout + result.stderr for result in results)]
    for command, told in zip(([evil.name], *commands), printed, strict=True):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told), (command[0], told)
        assert not re.search(r"^FAKE LINE", told, flags=re.M), command[0]
        assert told and "Traceback" not in told, told


@pytest.mark.parametrize(
    "arguments", [["ask", "https://youtu.be/1", "Which?", "-m", "embedded"], ["ask", "--frmes"], ["list", "no"]]
)
def test_a_terminal_gets_errors_in_lines_that_end_between_words(arguments: list[str]) -> None:
    """Anything else gets them on one line, as a program would search them."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    program = [sys.executable, "-m", "gridprobe", *arguments]
    try:
        subprocess.run(program, stderr=slave, stdin=subprocess.DEVNULL, check=False)
        shown = os.read(master, 1 << 16).decode()
    finally:
        os.close(master)
        os.close(slave)
    plain = subprocess.run(program, capture_output=True, text=True, check=False).stderr

    lines = shown.splitlines()
    assert all(len(line) <= 60 or " " not in line for line in lines) and shown.split() == plain.split()
    assert max(map(len, plain.splitlines())) > 60
