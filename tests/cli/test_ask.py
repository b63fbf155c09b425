"""The options of `ask`, `eval` and `plan` that say how far a question is taken."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.options import PRESETS, Options
from gridprobe.plan import Plan
from videos import numbered_video

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ask") / "clip.mp4"
    numbered_video(path, 100, size=(640, 384))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, clip: Path) -> Path:
    file = tmp_path_factory.mktemp("mine") / "mine.jsonl"
    (file.parent / clip.name).symlink_to(clip)
    row = {"id": "q1", "video": clip.name, "question": "What?", "options": ["a", "b"], "answer": "A"}
    file.write_text(json.dumps(row) + "\n")
    return file


def run(*arguments: object) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", "COLUMNS": "80"}).invoke(cli, [*map(str, arguments)])


def setup_of(monkeypatch: pytest.MonkeyPatch, *more: object) -> dict[str, Any]:
    """What `gridprobe ask` with these options would do; nothing is opened or loaded."""
    made: list[Plan] = []

    def noted(setup: Plan, _: object) -> None:
        made.append(setup)
        raise UsageError("stop here")

    monkeypatch.setattr(Plan, "open", noted)
    result = run("ask", "clip.mp4", "What?", "-o", "a", "-o", "b", "--model", "x/y", *more)
    assert made, result.output
    return made[0].describe()


@pytest.mark.parametrize("preset", list(PRESETS))
def test_what_is_not_given_is_left_to_the_preset(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Options.from_preset(preset).resolve(model="x/y").describe()

    assert setup_of(monkeypatch, "--preset", preset) == plain


def test_the_published_method_stays_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    found = setup_of(monkeypatch, "--preset", "paper")

    assert (found["effort"], found["overview"], found["context"]) == ("focus", None, None)
    assert found["selector"]["probes"] == "fresh" and found["selector"]["budget"]["name"] == "shape"


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        (("--effort", "quick"), ("effort",), "quick"),
        (("--effort", "focus"), ("overview",), None),
        (("--set", "refine=true"), ("refine",), True),
        (("--set", "probes=fresh"), ("selector", "probes"), "fresh"),
        (("--exit-confidence", "0.9"), ("exit", "threshold"), 0.9),
        (("--exit-confidence", "calibrated"), ("exit",), None),
        (("--set", "rotations=2"), ("rotations",), 2),
        (("--set", "context=none"), ("context",), None),
        (("--frames", "5"), ("selector", "budget", "frames"), 5),
        (("--k", "3"), ("sampling", "k"), 3),
        (("--set", "show=collage"), ("show",), "collage"),
    ],
)
def test_each_option_reaches_the_setup(
    options: tuple[str, ...], path: tuple[str, ...], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = setup_of(monkeypatch, *options)
    for name in path:
        found = found[name]

    assert found == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--exit-confidence", "2"), "a number from 0 to 1"),
        (("--exit-confidence", "often"), "a number from 0 to 1"),
        (("--effort", "much"), "'much' is not one of"),
        (("--set", "probes=memory"), "one of fresh, attention, when, got 'memory'"),
        (("--set", "rotations=0"), "rotations"),
        (("--set", "refine=true", "--preset", "paper"), "effort=focus takes none"),
    ],
)
def test_mistakes_are_one_sentence(options: tuple[str, ...], message: str) -> None:
    result = run("ask", "clip.mp4", "What?", "-o", "a", "-o", "b", "--model", "x/y", *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and "Traceback" not in result.stderr


def test_json_alone_makes_no_map_after_an_exit(clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    asked = (
        "ask",
        clip,
        "What?",
        "-o",
        "a",
        "-o",
        "b",
        "--k",
        3,
        "--model",
        tiny_checkpoint,
        "--exit-confidence",
        0,
        "--json",
    )
    bare, drawn = (json.loads(run(*asked, *more).stdout) for more in ((), ("--map", tmp_path / "map.png")))

    assert bare["reached"]["by"] == drawn["reached"]["by"] == "overview"
    assert bare["selection"]["map"] is None and drawn["selection"]["map"] is not None
    assert bare["choice"] == drawn["choice"]


def test_people_see_how_the_answer_was_reached(clip: Path, tiny_checkpoint: Path) -> None:
    asked = ("ask", clip, "What?", "-o", "a", "-o", "b", "--k", 3, "--model", tiny_checkpoint)
    exit, other = run(*asked, "-v", "--exit-confidence", 0), run(*asked, "-v", "--exit-confidence", 1)

    for result in (exit, other):
        assert result.exit_code == 0, result.output
        assert "row by row" in result.stdout and max(map(len, result.stdout.splitlines())) <= 80
    assert "Answered from the overview of all 9 frames" in exit.stdout
    assert "at full size among all others small" in other.stdout and "overview: " in other.stdout


def test_eval_takes_the_same_options(data: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    asked = ("eval", "jsonl", "--data", data, "--model", tiny_checkpoint, "--k", 3, "--workers", 0)
    options = {
        "plain": (),
        "given": ("--effort", "full", "--set", "probes=fresh", "--set", "rotations=2"),
        "set": ("--set", "effort=quick"),
        "paper": ("--preset", "paper"),
    }
    setups = {}
    for name, more in options.items():
        result = run(*asked, *more, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        setups[name] = json.loads((tmp_path / name / "spec.json").read_text())["setup"]

    assert {name: setup["effort"] for name, setup in setups.items()} == {
        "plain": "auto",
        "given": "full",
        "set": "quick",
        "paper": "focus",
    }
    assert setups["given"]["selector"]["probes"] == "fresh" and setups["given"]["rotations"] == 2
    assert setups["paper"]["context"] is None and setups["paper"]["selector"]["budget"]["name"] == "shape"


def test_plan_takes_the_same_options(data: Path, clip: Path, tiny_checkpoint: Path) -> None:
    asked = ("plan", "jsonl", "--data", data, "--model", tiny_checkpoint, "--k", 3, "--json")
    calls = {
        way: json.loads(run(*asked, "--set", f"probes={way}", "--effort", "focus").stdout)["probes"]["calls"]
        for way in ("fresh", "attention")
    }
    sizes = json.loads(run("plan", clip, "--k", 3, "--preset", "gridworld", "--json").stdout)

    assert calls == {"fresh": 6, "attention": 1}
    assert sizes["cells"] == 9


def test_frames_and_clip_are_saved(clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    asked = ("ask", clip, "What?", "-o", "a", "-o", "b", "--k", 3, "--model", tiny_checkpoint, "--selector", "uniform")
    outputs = (
        "--frames",
        2,
        "--save-frames",
        tmp_path / "frames",
        "--clip",
        tmp_path / "c.mp4",
        "--map",
        tmp_path / "m.jpg",
    )

    result = run(*asked, *outputs)

    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "frames").iterdir())) == 3
    assert (tmp_path / "m.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    for words in ("frames saved to", "clip saved to", "map saved to"):
        assert words in result.stderr


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (("--map", "m.gif"), "must end in .png, .jpg, .jpeg"),
        (("--clip", "c.avi"), "must end in .mp4, .mov, .mkv"),
        (("--clip", "missing/c.mp4"), "does not exist"),
        (("--save-frames", "missing/frames"), "does not exist"),
        (("--save-frames", "."), "not empty"),
        (("--report", "."), "not a regular file"),
    ],
)
def test_outputs_are_checked_before_any_work(
    output: tuple[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "something").write_text("x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "open", lambda *_: pytest.fail("the video was opened"))

    result = run("ask", "clip.mp4", "What?", "-o", "a", "-o", "b", "--model", "x/y", *output)

    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_one_answer_for_pictures_and_clips(tmp_path: Path) -> None:
    rows = [{"question": text, "options": ["a", "b"]} for text in ("One?", "Two?")]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for option, name in (("--map", "m.png"), ("--clip", "c.mp4"), ("--save-frames", "new")):
        result = run("ask", "v.mp4", "--questions", tmp_path / "q.jsonl", "--model", "x/y", option, tmp_path / name)
        assert result.exit_code == 2 and f"{option} is for one answer, but there are 2 questions" in result.stderr


def test_an_answer_is_short_the_map_is_shown_on_request_and_quiet_prints_the_answer_alone(
    clip: Path, tiny_checkpoint: Path
) -> None:
    asked = ("ask", clip, "What?", "-o", "a", "-o", "b", "--k", 3, "--model", tiny_checkpoint)
    plain, detailed, alone = run(*asked), run(*asked, "-v"), run(*asked, "-q")

    assert len(plain.stdout.splitlines()) <= 12 < len(detailed.stdout.splitlines())
    assert "row by row" not in plain.stdout and "row by row" in detailed.stdout
    assert "% of the compute" in plain.stdout and "frames" in plain.stdout
    assert alone.stdout.splitlines() == [plain.stdout.splitlines()[1].split()[0]] and not alone.stderr
    assert "TFLOPs" not in plain.stdout and "skew" not in plain.stdout
    assert "TFLOPs" in detailed.stdout and "skew" in detailed.stdout
    assert max(map(len, detailed.stdout.splitlines())) <= 80


def test_known_answers_are_judged_and_counted(clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": f"{n}?", "options": ["a", "b"], "answer": n} for n in "AB"]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"question": "?", "options": ["a", "b"]}])))
    asked = ("ask", clip, "--questions", tmp_path / "q.jsonl", "--k", 3, "--model", tiny_checkpoint)

    shown, machine = run(*asked), run(*asked, "--json")
    answers = [json.loads(line) for line in machine.stdout.splitlines()]
    right = sum(answer["choice"] == truth for answer, truth in zip(answers, "AB", strict=False))

    assert [answer["truth"] for answer in answers] == ["A", "B", None]
    assert [answer["right"] for answer in answers] == [
        a["choice"] == t for a, t in zip(answers, "AB", strict=False)
    ] + [None]
    assert {answer["answer"] for answer in answers} <= {"a", "b"}  # the text of the model's choice, as before
    total = f"{right} of 2 right; the right answer of 1 is not known"
    assert shown.stdout.splitlines()[-1] == total and total in machine.stderr
    assert shown.stdout.count("%, right\n") == right and shown.stdout.count("wrong: it is ") == 2 - right


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_ask_prints_in_every_encoding(clip: Path, tiny_checkpoint: Path, encoding: str) -> None:
    asked = [
        "ask",
        str(clip),
        "Où…?",
        "-o",
        "Zürich – 1",
        "-o",
        "漢字",
        "--k",
        "3",
        "--model",
        str(tiny_checkpoint),
        "-v",
    ]
    result = CliRunner(env={"GRIDPROBE_MODEL": "", "COLUMNS": "80"}, charset=encoding).invoke(cli, asked)

    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert encoding == "utf-8" or result.stdout.isascii()


def test_questions_are_split_at_line_feeds_only(clip: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Q06: U+2028, U+0085 and a form feed may stand in a question."""
    row = {"question": "Which\u2028one\u0085is\u000b it?", "options": ["left", "right"]}
    (tmp_path / "q.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8")

    done = run("ask", clip, "--questions", tmp_path / "q.jsonl", "--k", 2, "--model", tiny_checkpoint, "--json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["question"] == row["question"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[" * 100_000, "line 2: not a JSON object (the JSON is nested too deeply)"),
        ('{"question": ' + "9" * 5000 + "}", "line 2: not a JSON object (a whole number has too many digits)"),
        ('{"question": "Q?", "options": [1e999, 2]}', "line 2: the option A must be text"),
        ('{"question": "Q?", "id": ' + "9" * 4000 + "}", "line 2: a question's id must be text"),
        ('{"question": "Q?", "options": ["a", "b"], "answer": [[]]}', "line 2: the answer"),
    ],
)
def test_a_strange_line_of_questions_is_one_sentence(clip: Path, tmp_path: Path, line: str, told: str) -> None:
    """Q06."""
    (tmp_path / "q.jsonl").write_text('{"question": "Q?", "options": ["a", "b"]}\n' + line)

    refused = run("ask", clip, "--questions", tmp_path / "q.jsonl", "--model", "x/y")

    assert refused.exit_code == 1 and told in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1 and isinstance(refused.exception, SystemExit)
