"""Every verb prints in cp1252, ASCII and UTF-8, to a pipe and at 80 columns, whatever questions and names contain."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridprobe.cli import cli
from gridprobe.registry import COMMANDS as VERBS
from gridprobe_world import demo as gridprobe_demo
from videos import numbered_video

pytestmark = pytest.mark.usefixtures("decode_here")

ENCODINGS = ("cp1252", "ascii", "utf-8")
IN_TURN = ["cp1252", pytest.param("ascii", marks=pytest.mark.release), "utf-8"]
ODD = "Łódź – 2×☃ 東京?"
"""Characters that are in cp1252, that are not, and that are two columns wide."""
HERE = ("--k", "3", "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, one_thread: None) -> Path:
    """A folder with a video, questions of one's own and three runs over them, the last one open."""
    folder = tmp_path_factory.mktemp("enc")
    numbered_video(folder / "Łódź☃.mp4", 60)
    rows = [{"id": f"q{n}", "video": "Łódź☃.mp4", "question": ODD, "options": ["ja ☃", "nein"], "answer": "A",
             "bins": {"ort": "Łódź"}} for n in range(2)]  # fmt: skip
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    same = ("eval", "jsonl", "--data", folder / "mine.jsonl", "--model", tiny_checkpoint, "--workers", "0", *HERE)
    for name, more in (
        ("run☃", ("--effort", "full")),
        ("all", ("--selector", "all")),
        ("open", ("--with", "open=true")),
    ):
        done = run("utf-8", *same, "--out", folder / name, *more)
        assert done.exit_code == 0, done.output
    return folder


def run(encoding: str, *arguments: object) -> Result:
    """The command with its output in this encoding."""
    environment = {"GRIDPROBE_MODEL": "", "COLUMNS": "80"}
    return CliRunner(charset=encoding, env=environment).invoke(cli, [str(each) for each in arguments])


MODEL, VIDEO = ("--model", "TINY"), "HERE/Łódź☃.mp4"
QUESTION = (ODD, "-o", "ja ☃", "-o", "nein")
COMMANDS: dict[str, tuple[str, ...]] = {
    "ask": ("ask", VIDEO, *QUESTION, *MODEL, *HERE, "--verbose"),
    "ask open": ("ask", VIDEO, ODD, *MODEL, *HERE, "--report", "HERE/ask.html"),
    "ask json": ("ask", VIDEO, *QUESTION, *MODEL, *HERE, "--json"),
    "calibrate": ("calibrate", "jsonl", "--data", "HERE/mine.jsonl", *MODEL, *HERE, "--epsilon", "0.9", "--dry-run"),
    "compare": ("compare", VIDEO, *QUESTION, *MODEL, *HERE, "--selectors", "gridprobe,uniform", "--frames", "2"),
    "demo": ("demo", "--out", "HERE/demo☃"),
    "doctor": ("doctor",),
    "cache": ("cache",),
    "eval": (
        "eval",
        "jsonl",
        "--data",
        "HERE/mine.jsonl",
        "--out",
        "HERE/run☃",
        *MODEL,
        "--workers",
        "0",
        "--effort",
        "full",
        *HERE,
    ),
    "score --keyframes": ("score", "HERE/run☃", "--keyframes", "HERE/frames☃.json"),
    "score --predictions": ("score", "HERE/run☃", "--predictions", "HERE/predictions.json"),
    "help": ("help", "ask"),
    "score --judge": ("score", "HERE/open", "--judge", "embedded:nano", "--device", "cpu"),
    **{f"list {what}": ("list", what) for what in ("models", "selectors", "presets", "settings", "benchmarks")},
    "mcp": ("mcp", "--http", "--host", "0.0.0.0"),
    "plan": ("plan", VIDEO, "--k", "3"),
    "plan benchmark": ("plan", "jsonl", "--data", "HERE/mine.jsonl", *MODEL, "--k", "3"),
    "report": ("report", "HERE/run☃", "-o", "HERE/report☃.html"),
    "score": ("score", "HERE/run☃", "HERE/all"),
    "score all": ("score", "HERE/run☃", "HERE/all", "--all"),
    "serve": ("serve", "--host", "0.0.0.0"),
    "status": ("status", "HERE/run☃"),
    "profile": ("profile", "HERE/nowhere☃"),
    "find": ("find", "a ring", "HERE/nowhere☃"),
    "index": ("index", "HERE/nowhere☃", "--index", "HERE/index☃", "--encoder", "embedded"),
    "watch": ("watch", VIDEO, "--out", "HERE/watch☃", "--frames", "16"),
    "eval --check": ("eval", "jsonl", "--data", "HERE/mine.jsonl", "--check"),
}
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FAILING = {"score --predictions": 2, "mcp": 2, "serve": 2, "profile": 2, "find": 2, "index": 1}
"""Verbs that here say in a sentence why they cannot: no official format, no key, no folder."""


def test_every_verb_is_here() -> None:
    assert {words[0] for words in COMMANDS.values()} == set(VERBS)


@pytest.mark.parametrize("encoding", IN_TURN)
def test_every_verb_prints_in_every_encoding(encoding: str, place: Path, tiny_checkpoint: Path) -> None:
    for name, words in COMMANDS.items():
        if name == "demo":
            continue

        here = [str(tiny_checkpoint) if each == "TINY" else each.replace("HERE", str(place)) for each in words]
        result = run(encoding, *here)

        assert result.exit_code == FAILING.get(name, 0), (name, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit), name
        assert result.stdout_bytes.decode(encoding) == result.stdout, name  # every byte is valid
        wide = [line for line in result.stdout.splitlines() if len(line) > 80 and str(place) not in line]
        assert not wide or encoding != "utf-8" or name in ("ask json", "help"), (name, wide)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[gridprobe_demo.DemoRow]:
    """The demo's answers, made once."""
    from gridprobe import load_model

    folder = tmp_path_factory.mktemp("demo")
    gridprobe_demo.write_both(folder)
    return list(gridprobe_demo.compare(folder, load_model("embedded")))


@pytest.mark.release
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_demo_prints_in_every_encoding(
    encoding: str, rows: list[gridprobe_demo.DemoRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("gridprobe_world.command")  # the package's attribute of that name is the command
    monkeypatch.setattr(module, "load_model", lambda name: None)
    monkeypatch.setattr(gridprobe_demo, "write_both", lambda out: None)
    monkeypatch.setattr(gridprobe_demo, "compare", lambda out, model: iter(rows))

    result = run(encoding, "demo", "--out", tmp_path / "demo☃")

    assert result.exit_code == 0, result.output
    assert result.stdout_bytes.decode(encoding) == result.stdout
    assert not [line for line in result.stdout.splitlines() if len(line) > 80 and "demo" not in line]


# C03 of tests/reliability.md
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, ("score", "RUN")),
        ({"PYTHONIOENCODING": "cp1252"}, ("score", "RUN", "--all")),
        (C_LOCALE, ("list", "presets")),
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            ("ask", "Łódź☃.mp4", "?", "-o", "a", "-o", "☃"),
        ),
    ],
)
def test_real_processes_with_a_poor_encoding(environment: dict[str, str], words: tuple[str, ...], place: Path) -> None:
    command = [sys.executable, "-m", "gridprobe", *(str(place / "all") if each == "RUN" else each for each in words)]

    done = subprocess.run(command, capture_output=True, env={**os.environ, **environment}, cwd=place)

    assert b"Traceback" not in done.stderr and b"Error" not in done.stderr, done.stderr.decode("cp1252")
    assert done.returncode == (2 if words[0] == "ask" else 0)  # embedded does not know the words of the question
