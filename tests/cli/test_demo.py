"""The embedded model on the command line: as the default of `ask`, and in `gridprobe demo`."""

import importlib
import io
import json
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from embedded_models import make_models
from gridprobe import MockModel
from gridprobe.answer import AnswerCost
from gridprobe.cli import cli
from gridprobe.models import Request
from gridprobe.models.base import Cost
from gridprobe_world import demo
from gridprobe_world.dataset import script
from gridprobe_world.questions import PART_FAMILIES, ask_about, ask_part
from gridprobe_world.world import TEST_SEEDS, generate
from videos import numbered_video

pytestmark = pytest.mark.usefixtures("decode_here")

KNOWN = ("What colour is the circle?", "-o", "red", "-o", "blue")
STRANGE = ("What colour is the dog?", "-o", "red", "-o", "blue")
demo_module = importlib.import_module("gridprobe_world.command")  # the package's attribute of that name is the command


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "clip.mp4"
    numbered_video(path, 30)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("embedded"))


@pytest.fixture(autouse=True)
def found(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", models)


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", "COLUMNS": "80", **environment}).invoke(cli, [*map(str, arguments)])


def said(result: Result) -> list[str]:
    """Notices and errors without progress, which a busy machine may show."""
    return [line for line in result.stderr.splitlines() if line.startswith("gridprobe:")]


class TestAsk:
    def test_without_a_model_the_embedded_one_answers_and_says_so(
        self, clip: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gridprobe_world.embedded.LOW_MASS", 0.0)  # random weights are unsure of letters

        result = run("ask", clip, *KNOWN, "--k", 3, "--json")

        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["models"]["answerer"].startswith("embedded:micro@")
        (notice,) = said(result)
        for words in ("no model was named", "only gridworld", "--model", "GRIDPROBE_MODEL"):
            assert words in notice

    def test_unknown_words_are_refused_in_one_sentence(self, clip: Path) -> None:
        result = run("ask", clip, *STRANGE)

        assert (result.exit_code, result.stdout) == (2, "")
        (sentence,) = said(result)
        for words in ("only gridworld", '"dog"', "--model", "GRIDPROBE_MODEL", "--model embedded"):
            assert words in sentence

    def test_words_of_subtitles_and_of_a_file_of_questions_count(self, clip: Path, tmp_path: Path) -> None:
        (tmp_path / "s.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
        rows = [{"question": "What appears first?", "options": ["bar", thing]} for thing in ("ring", "cat")]
        (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))

        spoken = run("ask", clip, *KNOWN, "--subtitles", tmp_path / "s.srt")
        listed = run("ask", clip, "--questions", tmp_path / "q.jsonl")

        assert spoken.exit_code == listed.exit_code == 2
        assert '"hello"' in spoken.stderr and '"cat"' in listed.stderr

    def test_a_model_that_does_not_answer_with_letters_is_refused(self, clip: Path) -> None:
        result = run("ask", clip, *KNOWN, "--k", 3)

        assert (result.exit_code, result.stdout) == (2, "")
        assert "of its probability on the option letters" in result.stderr

    @pytest.mark.parametrize("way", ["option", "environment"])
    def test_asked_for_by_name_it_guesses_with_a_warning(self, way: str, clip: Path) -> None:
        named, environment = (("--model", "embedded"), {}) if way == "option" else ((), {"GRIDPROBE_MODEL": "embedded"})

        result = run("ask", clip, *STRANGE, "--k", 3, "--json", *named, **environment)

        assert result.exit_code == 0, result.output
        assert said(result) == []
        warnings = json.loads(result.stdout)["warnings"]
        assert sum('met "dog", which it has never seen, and guesses' in warning for warning in warnings) == 1

    def test_a_package_without_models_says_so(
        self, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", tmp_path)

        result = run("ask", clip, *KNOWN)

        assert (result.exit_code, result.stdout) == (1, "")
        assert "missing from this installation" in result.stderr and "GRIDPROBE_MODEL" in result.stderr


class TestOtherVerbs:
    def test_list_names_them(self) -> None:
        names = [line.split()[0] for line in run("list", "models").stdout.splitlines() if line[:1].strip()]

        assert {"embedded[:micro|nano]", "checkpoint:FOLDER|OWNER/NAME"} <= set(names)

    def test_list_names_the_preset_that_fits_them(self) -> None:
        assert "gridworld" in run("list", "presets").stdout

    @pytest.mark.parametrize("state", ["ok", "absent", "broken"])
    def test_doctor_looks_for_them(self, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if state == "absent":
            monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", tmp_path / "models")
        if state == "broken":
            monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", tmp_path)

        result = run("doctor", "--json")

        assert result.exit_code == (state == "broken")
        assert {check["name"]: check["state"] for check in json.loads(result.stdout)}["embedded models"] == state


def test_the_script_is_the_first_of_the_test_split_that_fits() -> None:
    def fits(seed: int) -> bool:
        needle = ask_about(generate(np.random.default_rng(seed), 1), 0, "needle", random.Random(f"{seed}:needle:0"))
        brief = needle is not None and sum(end - start for start, end in needle.evidence) < 0.02
        return brief and list(demo.questions(seed)) == list(demo.KINDS)

    assert next(seed for seed in TEST_SEEDS if fits(seed)) == demo.SEED


def test_the_fine_question_is_about_the_first_script_of_its_part() -> None:
    assert TEST_SEEDS[0] == demo.FINE_SEED and next(iter(PART_FAMILIES["fine"])) == demo.FINE
    asked = ask_part(script(demo.FINE_SEED, "fine"), 0, demo.FINE, random.Random(f"{demo.FINE_SEED}:{demo.FINE}:0"))
    times = [(i + 0.5) / demo.FINE_K**2 for i in range(demo.FINE_K**2)]

    assert demo.fine_question() == asked.question
    assert any(start <= time < end for start, end in asked.evidence for time in times)


def test_the_published_way_is_the_published_method() -> None:
    setup = demo.PUBLISHED.resolve(model="embedded").describe()

    assert (setup["overview"], setup["context"], setup["selector"]["probes"]) == (None, None, "fresh")
    assert setup["selector"]["budget"]["name"] == "shape" and setup["selector"]["view"]["pixels"]["max_side"] == 96


def knowing(right: bool, *, sure: float = 0.999) -> MockModel:
    """A model that knows every answer, or none."""
    asked = [*demo.questions().values(), demo.fine_question()]
    answers = {question.prompt: question.answer for question in asked}

    def answer(request: Request) -> Mapping[str, float]:
        chosen = next(label for label in request.labels if (label == answers[request.prompt]) == right)
        rest = (1 - sure) / (len(request.labels) - 1)
        return {label: sure if label == chosen else rest for label in request.labels}

    return MockModel(answer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SECONDS", 36)
        patch.setattr(demo, "FINE_SECONDS", 36)
        demo.write_both(path)
    return path


def sides(request: Request) -> set[int | None]:
    return {group.view.pixels.max_side for group in request.groups}


class TestDemo:
    def test_random_weights_from_end_to_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"SECONDS": 36, "FINE_SECONDS": 36, "SIDE": 96, "KINDS": ("needle", "holistic")}.items():
            monkeypatch.setattr(demo, name, value)

        result = run("demo", "--out", tmp_path / "new" / "demo")

        assert result.exit_code == 0, result.output
        names = {file.name for file in (tmp_path / "new" / "demo").iterdir()}
        assert names == {"gridworld.mp4", "fine.mp4", "report.html"}
        page = (tmp_path / "new" / "demo" / "report.html").read_text()
        assert "data:image/jpeg" in page and "<svg" in page and "http://" not in page.replace("http://www.w3.org", "")
        assert all(words in page for name, words in demo.WAYS.items() if name != "ours")
        assert len(re.findall(r"\b(yes|no)\b", table_of(result.stdout))) == 12  # three questions, four ways
        assert "option letters" in result.stdout
        assert "trained on such videos only" in result.stdout
        assert f"gridprobe ask {tmp_path}/new/demo/gridworld.mp4 'Pick" in result.stdout

    @pytest.mark.parametrize("right", [True, False])
    def test_right_and_wrong_are_told_apart(self, right: bool, folder: Path) -> None:
        shown = show(list(demo.compare(folder, knowing(right))))

        table = table_of(shown)
        assert len(re.findall(r"\byes\b", table)) == (24 if right else 0)
        assert len(re.findall(r"\bno\b", table)) == (0 if right else 24)
        assert ("wrong: it is cyan" in shown) is not right
        assert table.count("6/6" if right else "0/6") == 4

    def test_compute_is_a_share_of_all_frames_at_native_size(self, folder: Path) -> None:
        row = next(demo.compare(folder, knowing(True)))
        spent = {"ours": 11.0, "published": 33.0, "small": 10.0, "native": 100.0}
        costs = {name: AnswerCost(Cost(), Cost(flops=each), Cost(flops=100.0)) for name, each in spent.items()}
        priced = replace(row, **{name: replace(getattr(row, name), cost=cost) for name, cost in costs.items()})

        (line,) = [line for line in table_of(show([priced])).splitlines() if line.startswith("Pick")]
        assert re.findall(r"(\d+)%", line) == ["11", "33", "10", "100"]

    @pytest.mark.parametrize("width", [40, 80, 132])
    @pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
    @pytest.mark.parametrize("sure", [0.999, 0.6])
    def test_it_fits_the_terminal(self, width: int, encoding: str, sure: float, folder: Path) -> None:
        shown = show(list(demo.compare(folder, knowing(False, sure=sure))), width, encoding)

        assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
        assert encoding == "utf-8" or shown.isascii()
        if width >= 80:
            words = ("wrong: it is cyan", "ours", "published", "all small", "all native", "question", "0/6")
            for word in words:
                assert word in shown

    def test_nothing_is_asked_twice(self, folder: Path) -> None:
        model = knowing(True)

        rows = list(demo.compare(folder, model))

        assert [row.kind for row in rows] == [*demo.KINDS, "fine"]
        pools = [144] * len(demo.KINDS) + [demo.FINE_K**2]
        assert [row.native.selection.kept for row in rows] == [row.small.selection.kept for row in rows] == pools
        assert all(row.ours.reached.by == "overview" and row.published.reached.overview is None for row in rows)
        assert all(row.published.settings["selector"]["probes"] == "fresh" for row in rows)
        # Published probes; overview, which is all small, its attention, and K frames by themselves; all native. A flat
        # map keeps all frames, so the published focused pass asks nothing new.
        assert len(model.requests) == 5 * (24 + 2 + 12 + 1) + (16 + 2 + 8 + 1)

    def test_every_way_shows_frames_of_its_size(self, folder: Path) -> None:
        model = knowing(True, sure=0.6)

        list(demo.compare(folder, model))

        shown = [sides(request) for request in model.requests]
        assert {64} in shown and {96} in shown and {None} in shown  # overview, published probes, native frames
        assert {None, 64} in shown  # our focused pass: kept frames among all others small

    def test_a_folder_that_cannot_be_made_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        result = run("demo", "--out", tmp_path / "file" / "demo")

        assert result.exit_code == 2 and "choose another with --out" in result.stderr


def table_of(shown: str) -> str:
    return shown[shown.index("\nquestion") : shown.index("yes, no: right or wrong")]


def show(rows: list[demo.DemoRow], width: int = 80, encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    with io.TextIOWrapper(buffer, encoding=encoding) as stream:
        demo_module._show(Console(file=stream, width=width), rows)
        stream.flush()
        return buffer.getvalue().decode(encoding)
