"""Every example runs as a user would run it; the one for lmms-eval, which is not installed here, is compiled."""

import csv
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gridprobe as gp
from fake_server import Fake, serving
from gridprobe.question import Question
from gridprobe_serve.store import ENDINGS
from gridprobe_world import demo
from gridprobe_world.embedded import WEIGHTS

pytestmark = pytest.mark.release
EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
SOURCE = str(EXAMPLES.parent / "src")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The video of the demo, a minute long."""
    path = tmp_path_factory.mktemp("videos") / "gridworld.mp4"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SECONDS", 60)
        demo.write(path)
    return path


@pytest.fixture
def question() -> Question:
    return demo.questions()["needle"]


def run(name: str, *arguments: object, folder: Path, code: str | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "GRIDPROBE_CACHE": "off", "OMP_NUM_THREADS": "1"}
    program = ["-c", code] if code else [str(EXAMPLES / name)]
    done = subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def right(question: Question) -> str:
    return question.options["ABCDEFGH".index(question.answer or "")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_compiles_is_short_and_is_listed(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    compile(text, script.name, "exec")

    most = 200 if "200_lines" in script.name else 30
    assert len([line for line in text.splitlines() if line.strip()]) <= most
    assert f"]({script.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_the_method_in_200_lines_of_transformers_equals_ours(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same letters to 1e-3 and the same kept frames, whether the overview is sure or not."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    plain = importlib.import_module("gridprobe_in_200_lines")
    monkeypatch.setattr(plain, "SMALL", 64)  # as in the preset gridworld
    reader = plain.Reader(str(WEIGHTS / "micro"))
    model = gp.load_model("embedded", device="cpu", dtype="float32")
    ways = set()
    for question in demo.questions().values():
        ours = gp.ask(video, question, model=model, preset="gridworld", precision="exact", k=8, profile="off")
        theirs = plain.ask(reader, str(video), question.text, list(question.options), k=8)
        sure = ours.reached.by == "overview"
        ways.add(sure)
        assert theirs.probabilities == pytest.approx(ours.posterior.probabilities, abs=1e-3)
        assert theirs.choice == ours.choice and theirs.kept == ([] if sure else list(ours.selection.indices))
    assert ways == {True, False}


def test_a_folder(video: Path, question: Question, tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(video.read_bytes())
    (tmp_path / "b.MKV").write_bytes(b"no video")
    (tmp_path / "notes.txt").write_bytes(b"not asked about")

    assert all(f'"{suffix}"' in (EXAMPLES / "ask_folder.py").read_text() for suffix in ENDINGS)
    printed = run(
        "ask_folder.py", tmp_path, question.text, *question.options, "--preset", "gridworld", folder=tmp_path
    )  # fmt: skip

    good, bad = csv.DictReader(printed.splitlines())
    assert (good["video"], good["answer"], good["error"]) == ("a.mp4", right(question), "")
    assert (bad["video"], bad["answer"]) == ("b.MKV", "") and "b.MKV" in bad["error"]


def test_an_own_selector(video: Path, question: Question, tmp_path: Path) -> None:
    printed = run("own_selector.py", video, question.text, *question.options, folder=tmp_path)

    motion, ours = printed.splitlines()
    assert motion.startswith("motion ") and motion.count(",") == 7
    assert ours.startswith(f"gridprobe {right(question)} ")


def test_a_server(video: Path, question: Question, tmp_path: Path) -> None:
    with serving(Fake()) as url:
        printed = run(
            "ask_vllm.py", video, question.text, *question.options, "--server", url, "--k", 3, folder=tmp_path
        )  # fmt: skip

    assert printed.startswith(f"model: {url}#fake") and "\nread from frames at: " in printed


def test_tools_for_agents(video: Path, question: Question, tmp_path: Path) -> None:
    printed = run("ask_mcp.py", video.parent, video.name, question.text, *question.options, folder=tmp_path)

    assert "ask_video" in printed.splitlines()[0] and f"'answer': '{right(question)}'" in printed


def test_the_notebook(tmp_path: Path) -> None:
    cells = json.loads((EXAMPLES / "first_question.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")

    printed = run("first_question.ipynb", folder=tmp_path, code=code).splitlines()

    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    assert (tmp_path / "answer.png").exists() and printed[1].startswith("cyan ")
    assert "% of the compute of all frames" in printed[2]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    answers = {line.split()[0]: line.split()[1] for line in printed[3:]}
    assert "Eight evenly spaced ones miss the triangle" in text and answers["uniform"] != "cyan"
    assert "all\nframes small are enough" in text and answers["all-small"] == answers["gridprobe"] == "cyan"
    assert "session" not in text.lower() or "Session" in code
