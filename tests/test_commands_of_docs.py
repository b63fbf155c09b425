"""Every command of gridprobe in the README and the docs runs as it is written, page by page, in order, in one folder.

What cannot be had here is replaced: names of models by a tiny checkpoint, a server by one of ours, folders of
benchmarks by a few made-up rows in their layout. Numbers of questions are smaller, so that this takes a minute or two.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmark_files import write_parquet
from fake_server import Fake, serving
from gridprobe.cli import cli
from videos import numbered_video
from waiting import wait_until

pytestmark = pytest.mark.release
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.S | re.M)
FEWER = {"count=40": "count=2", "count=1600": "count=8", "-n 400": "-n 8"}
TOO_FEW = {"--check": "the official release has 2700", "calibrate": "at least", "skew": "needs 20 shared questions"}
"""Commands that fail here as they should, because a few made-up questions are not enough, and what they say."""
SUFFIXES = cycle([".mp4", ".mkv", ".webm", ".avi", ".mov"])


def commands(page: Path) -> list[str]:
    """The lines of a page that start with gridprobe, or with a program of ours that is run by python."""
    blocks = [code for language, code in FENCE.findall(page.read_text()) if language in ("", "sh")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if re.match(r"gridprobe \w|python paper/", line)]


def talk(folder: Path, suffix: str) -> Path:
    """A video with any of these suffixes."""
    folder.mkdir(parents=True, exist_ok=True)
    if suffix == ".webm":
        return numbered_video(folder / f"talk{suffix}", 60, codec="libvpx")
    return numbered_video(folder / f"talk{suffix}", 60)


def video_mme(folder: Path) -> None:
    """Two questions of Video-MME, made up, about two videos."""
    video = {"duration": "short", "domain": "Knowledge", "sub_category": "Astronomy", "task_type": "Counting Problem"}
    options = ["A. One.", "B. Two.", "C. Three.", "D. Four."]
    rows = [
        {**video, "video_id": f"00{n}", "videoID": f"v{n}", "url": f"https://www.youtube.com/watch?v=v{n}"}
        | {"question_id": f"00{n}-1", "question": "How many?", "options": options, "answer": "C"}
        for n in (1, 2)
    ]
    write_parquet(folder / "videomme" / "test-00000-of-00001.parquet", rows)
    (folder / "data").mkdir()
    for row in rows:
        numbered_video(folder / "data" / f"{row['videoID']}.mp4", 60)


def own_questions(folder: Path) -> None:
    """The files of questions that the pages name."""
    question = {"question": "Which city comes first?", "options": ["Oslo", "Rome", "Lima"], "answer": "B"}
    (folder / "questions.jsonl").write_text(json.dumps(question) + "\n" + json.dumps({"question": "Who?"}) + "\n")
    for name in ("mine.jsonl", "my.jsonl"):
        rows = [{"id": f"q{n}", "video": "talk.mp4", **question} for n in range(4)]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Fake()) as address:
        yield address


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages assume: videos, questions, benchmarks, and two runs."""
    folder = tmp_path_factory.mktemp("docs")
    for suffix in (".mp4", ".mkv", ".webm", ".avi", ".mov"):
        talk(folder, suffix)
    talk(folder / "Videos", ".mp4")
    video_mme(folder / "Video-MME")
    own_questions(folder)
    return folder


def as_run_here(line: str, place: Path, model: Path, url: str) -> str:
    """The line with what cannot be had here replaced."""
    for written, here in FEWER.items():
        line = line.replace(written, here)
    line = line.replace("http://localhost:8000/v1#Qwen/Qwen3-VL-8B-Instruct", f"{url}#fake")
    line = re.sub(r"Qwen/Qwen3-VL-\w+-Instruct|(?<=-m )M\b", str(model), line)
    line = re.sub(r"/data/Video-MME|(?<=--data )D\b", str(place / "Video-MME"), line)
    return line.replace("~/Videos", str(place / "Videos")).replace("talk.mp4", f"talk{next(SUFFIXES)}")


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_runs(
    page: Path, place: Path, url: str, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("GRIDPROBE_DEVICE", "cpu")
    if page.name == "results.md":
        _runs_of_results(tiny_checkpoint)
    for line in commands(page):
        words = shlex.split(as_run_here(line, place, tiny_checkpoint, url))
        if words[1] in ("serve", "mcp"):
            _starts_and_stops(words[1:])
            continue
        code, output = _run(words)
        reasons = [reason for word, reason in TOO_FEW.items() if word in words]
        assert reasons[0] in output if reasons else code == 0, f"{line}\n{output}"


def _run(words: list[str]) -> tuple[int, str]:
    """A command's exit code, and what it printed."""
    if words[0] == "gridprobe":
        result = CliRunner().invoke(cli, words[1:])
        return result.exit_code, result.output
    done = subprocess.run([sys.executable, str(ROOT / words[1]), *words[2:]], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _runs_of_results(model: Path) -> None:
    """The runs that the page of results reads."""
    for name in ("all", "gridprobe", "uniform", "k-6", "k-8", "k-12", "k-16"):
        k = name.removeprefix("k-") if name.startswith("k-") else "3"
        selector = name if name in ("all", "uniform") else "gridprobe"
        arguments = ["--data", "Video-MME", "--model", str(model), "--k", k, "--selector", selector]
        arguments += ["--out", f"runs/{name}", "--workers", "0", *(["--frames", "4"] if name == "uniform" else [])]
        arguments += ["--effort", "full"] if selector == "gridprobe" else []  # frames this small would be shown once
        result = CliRunner().invoke(cli, ["eval", "video-mme", *arguments])
        assert result.exit_code == 0, result.output


def _starts_and_stops(words: list[str]) -> None:
    """A server says where it is, or waits for its client, and ends in order."""
    port = ["--port", "0"] if words[0] == "serve" else []
    command = [sys.executable, "-m", "gridprobe", *words, *port]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stderr
        if words[0] == "mcp":
            process.stdin.close()
            process.stdin = None
            assert process.wait(120) == 0, process.stderr.read()
            return
        lines = iter(process.stderr.readline, "")
        wait_until(lambda: "http://" in next(lines, "http://"))
        process.send_signal(signal.SIGINT)
        assert process.wait(120) in (0, 130), process.stderr.read()
