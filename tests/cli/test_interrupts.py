"""C04: Ctrl-C ends the command with one line and exit code 130, whenever it comes.

What Python does before our first function cannot be helped: there Ctrl-C ends it by the signal, or with a traceback.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import gridprobe
from gridprobe.cli import cli
from gridprobe.cli.help import Root
from gridprobe_world import demo

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(gridprobe.__file__).parents[1]), "GRIDPROBE_MODEL": ""}
ENDED = (130, "gridprobe: interrupted\n")
AT_EVENT = """
import os, signal, sys
left = int(sys.argv.pop(1))
from gridprobe import __main__ as program

def count(frame, event, argument):
    global left
    left -= 1
    if left == 0:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(count)
program.main()
"""
"""Sends Ctrl-C at an event of that number: a call of any function, or its return."""
AT_EXIT = """
import atexit, os, signal
from gridprobe import __main__ as program
if {early}:
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
try:
    program.main()
finally:
    if not {early}:
        atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
"""Sends Ctrl-C while Python ends; what is registered last runs first."""
WAYS = {
    "module": ["-m", "gridprobe"],
    "script": ["-c", "import sys; from gridprobe.__main__ import main; sys.exit(main())"],  # the installed command
}


def run(program: str, *arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("event", [60, 1_000, 10_000, 40_000, 80_000, 120_000, 160_000, 200_000])
def test_ctrl_c_at_any_call_of_a_function(event: int) -> None:
    assert run(AT_EVENT, event, "list", "models") == ENDED


def test_ctrl_c_while_python_ends() -> None:
    """Until our exit handler, which is the last one, it ends the process; from then on it is ignored."""
    assert run(AT_EXIT.format(early=False), "--version") == ENDED
    assert run(AT_EXIT.format(early=True), "--version") == (0, "")


def test_while_a_verb_works_ctrl_c_is_an_exception_so_that_it_can_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []

    @click.command()
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            ends.append("cleaned up")

    monkeypatch.setattr(Root, "get_command", lambda *_: work)
    handler = signal.signal(signal.SIGINT, lambda *_: ends.append("ended at once"))
    try:
        result = CliRunner().invoke(cli, ["list"])
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)

    assert (result.exit_code, result.stderr) == (130, "gridprobe: interrupted\n")
    assert ends == ["cleaned up", "ended at once"], "afterwards the handler is back"


def test_ctrl_c_while_torch_is_imported(tmp_path: Path) -> None:
    """Its C++ code cannot pass on an exception: the process is aborted, or goes on as if nothing had come."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])}

    command = [sys.executable, "-m", "gridprobe", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, done.stderr) == ENDED


def test_where_ctrl_c_is_ignored_it_stays_ignored() -> None:
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{AT_EVENT}"

    assert run(ignoring, 10_000, "list", "models") == (0, "")


def interrupted(way: str, seconds: float, *arguments: object) -> tuple[int, str, str]:
    """The exit code and the output of a command that is interrupted after that time."""
    command = [sys.executable, *WAYS[way], *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True) as process:
        threading.Timer(seconds, process.send_signal, [signal.SIGINT]).start()
        output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def is_in_order(code: int, output: str, errors: str) -> bool:
    """Whether the command was interrupted, or finished, as it should; or Python was, before it came to `main`."""
    if code in (0, 130):
        return "Traceback" not in errors and "ignored" not in errors and (code == 0) == ("interrupted" not in errors)
    return not output and "gridprobe: " not in errors and not re.search(r'__main__.py", line \d+, in main', errors)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_at_many_moments(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 20 ms of the start, and every half second of a question about the demo's video; two minutes of CPU."""
    monkeypatch.setattr(demo, "SECONDS", 60)
    demo.write(tmp_path / "demo.mp4")
    question = demo.questions()["needle"]
    options = [word for option in question.options for word in ("-o", option)]
    ask = ("ask", tmp_path / "demo.mp4", question.text, *options, "--preset", "gridworld")

    ends = [(number / 50, *interrupted(way, number / 50, "--version")) for number in range(30)]
    ends += [(number / 2, *interrupted(way, number / 2, *ask)) for number in range(1, 17)]

    assert [end for end in ends if not is_in_order(*end[1:])] == []
