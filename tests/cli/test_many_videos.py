"""`gridprobe ask` about several videos or a folder of them, and `gridprobe.ask_many` behind it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gridprobe as gp
from gridprobe._util import report
from gridprobe.cli import cli
from gridprobe.cli.console import progress
from gridprobe.errors import ServerUnavailable
from gridprobe.models import LazyModel
from gridprobe.models.base import Model, Request
from videos import numbered_video

OPTIONS = ("-o", "red", "-o", "blue", "--k", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos, one that is damaged, and a file that is none."""
    folder = tmp_path_factory.mktemp("talks")
    numbered_video(folder / "a.mp4", 30)
    (folder / "b.mp4").write_bytes(b"not a video at all")
    numbered_video(folder / "c.MKV", 30)
    (folder / "notes.txt").write_text("notes")
    (folder / "._a.mp4").write_bytes(b"what macOS leaves behind")
    return folder


@pytest.fixture
def model() -> gp.MockModel:
    return gp.MockModel(lambda request: {"A": 1.0, "B": 3.0})


def run(*arguments: object) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", "COLUMNS": "80"}).invoke(cli, ["ask", *map(str, arguments)])


def test_every_video_comes_with_its_answer_or_its_error(folder: Path, model: gp.MockModel) -> None:
    videos = [folder / name for name in ("c.MKV", "b.mp4", "a.mp4")]

    pairs = list(gp.ask_many(videos, "Which colour?", options=["red", "blue"], model=model, k=3))

    assert [video for video, _ in pairs] == videos
    (_, first), (_, error), (_, last) = pairs
    assert isinstance(first, gp.Answer) and isinstance(last, gp.Answer)
    assert (first.text, last.text) == ("blue", "blue")
    assert isinstance(error, gp.VideoError) and "b.mp4" in str(error)


def test_several_questions_give_a_pair_each_and_equal_ask(folder: Path, model: gp.MockModel) -> None:
    questions = [gp.Question("Which?", ["red", "blue"]), gp.Question("Is it?", ["yes", "no"])]

    pairs = list(gp.ask_many([folder / "a.mp4"], questions, model=model, k=3))

    alone = [gp.ask(folder / "a.mp4", question, model=model, k=3) for question in questions]
    answers = [answer for _, answer in pairs if isinstance(answer, gp.Answer)]
    assert [each.text for each in answers] == [each.text for each in alone] == ["blue", "no"]
    assert [each.selection.indices for each in answers] == [each.selection.indices for each in alone]


def test_the_model_is_loaded_once(folder: Path, model: gp.MockModel, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def load(self: LazyModel, **options: object) -> Model:
        loads.append(self.name)
        return model

    monkeypatch.setattr(LazyModel, "load", load)
    videos = [folder / "a.mp4", folder / "c.MKV"]

    assert len(list(gp.ask_many(videos, "Which?", options=["red", "blue"], model="some/model", k=3))) == 2
    assert loads == ["some/model"]


def test_arguments_are_checked_at_once_and_a_lost_server_ends_the_work(folder: Path, model: gp.MockModel) -> None:
    def gone(request: Request) -> dict[str, float]:
        raise ServerUnavailable("the server is gone")

    with pytest.raises(gp.UsageError, match=r"a list of videos, got 'talk.mp4'"):
        gp.ask_many("talk.mp4", "Which?", model=model)
    with pytest.raises(gp.UsageError, match="has its own options"):
        gp.ask_many([], gp.Question("Which?", ["a", "b"]), options=["a", "b"], model=model)
    with pytest.raises(gp.UsageError, match="k must be a whole number"):
        gp.ask_many([], "Which?", options=["a", "b"], model=model, k=0)
    with pytest.raises(ServerUnavailable):
        list(gp.ask_many([folder / "a.mp4"], "Which?", options=["a", "b"], model=gp.MockModel(gone), k=3))


def test_a_folder_of_videos_gives_a_line_each_and_a_failed_one_is_named(folder: Path, tiny_checkpoint: Path) -> None:
    result = run(folder, "Which colour?", *OPTIONS, "--model", tiny_checkpoint)

    first, last = result.stdout.splitlines()
    assert first.startswith(f"{folder / 'a.mp4'}  ") and last.startswith(f"{folder / 'c.MKV'}  ")
    assert all("%" in line and "frames" in line for line in (first, last))
    assert result.exit_code == 1
    assert result.stderr.count("gridprobe: ") == 1 and str(folder / "b.mp4") in result.stderr


def test_named_videos_as_json_lines(folder: Path, tiny_checkpoint: Path) -> None:
    videos = [folder / "c.MKV", folder / "a.mp4"]

    result = run(*videos, "Which colour?", *OPTIONS, "--model", tiny_checkpoint, "--json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and [row["video"]["path"] for row in rows] == [str(video) for video in videos]


def test_with_a_file_of_questions_every_argument_is_a_video(
    folder: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"question": q, "options": ["a", "b"]}) + "\n" for q in ("One?", "Two?")))
    page = tmp_path / "all.html"

    more = ("--questions", questions, "--model", tiny_checkpoint, "--k", 3, "--report", page)
    result = run(folder / "a.mp4", folder / "c.MKV", *more, "-q")

    assert [line.split("  ")[:2] for line in result.stdout.splitlines()] == [
        [str(folder / name), question] for name in ("a.mp4", "c.MKV") for question in ("One?", "Two?")
    ]
    assert page.read_text().count("<article") == 4


def test_pictures_are_one_video_also_where_videos_are_next_to_them(
    folder: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    from PIL import Image

    for number in range(3):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "a.mp4").write_bytes((folder / "a.mp4").read_bytes())

    result = run(tmp_path, "Which colour?", *OPTIONS, "--model", tiny_checkpoint, "--json")

    assert json.loads(result.stdout)["video"]["container"] == "folder"
    said = f"{tmp_path} holds pictures and videos; the pictures are taken, as one video; for the videos write "
    assert said + str(tmp_path / "*.mp4") in result.stderr


@pytest.mark.parametrize("flag", ["--map", "--clip", "--save-frames", "--subtitles"])
def test_what_is_for_one_video_is_refused(flag: str, folder: Path, tmp_path: Path) -> None:
    result = run(folder, "Which?", *OPTIONS, "--model", "x/y", flag, tmp_path / "out.mp4")

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{flag} is for one video, but there are 3" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_question_without_quotation_marks_is_no_list_of_videos(folder: Path) -> None:
    result = run(folder / "a.mp4", "Which", "colour", "is", "it?", "--model", "x/y")

    assert result.exit_code == 2 and "give either one QUESTION" in result.stderr and "no video 'Which'" in result.stderr


def test_of_many_videos_only_their_number_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridprobe.cli.console.QUIET_SECONDS", 0)
    with progress("videos"):
        report("decode", 1, 9)
        report("videos", 1, 3)

    assert capsys.readouterr().err == "videos done: 1 of 3\n"


def terminal_output(program: str, file: Path) -> tuple[str, str]:
    """What a program prints to a file, and to the terminal that is its standard error."""
    ours, theirs = pty.openpty()
    with file.open("w") as output:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        subprocess.run([sys.executable, "-c", program], stdout=output, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    return file.read_text(), b"".join(iter(lambda: read_some(ours), b"")).decode()


def read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux says so at the end of a terminal
        return b""


def test_results_reach_their_file_while_bars_are_on_the_terminal(tmp_path: Path) -> None:
    program = "from gridprobe.cli.console import progress\nwith progress():\n    print('{}', flush=True)"

    in_file, shown = terminal_output(program, tmp_path / "answers.jsonl")

    assert in_file == "{}\n" and "{}" not in shown
