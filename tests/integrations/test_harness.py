"""Prompts of another program: shown as they are, their options found, failures counted."""

import json
import sys
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gridprobe import MockModel, ask
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Request
from gridprobe.options import Options
from gridprobe.question import MAX_OPTIONS, Question
from gridprobe_serve import lmms_eval_manifest
from gridprobe_serve.lmms import GridProbeChat, GridProbeSimple, Harness, HarnessRequest
from toy_runs import make_video
from videos_of_arrays import gray_pool

pytestmark = pytest.mark.usefixtures("decode_here")

PROMPT = "Which city comes first?\nA. Oslo\nB. Rome\nAnswer with the letter."


class TestFromPrompt:
    @pytest.mark.parametrize(
        ("prompt", "text", "options"),
        [
            (PROMPT, "Which city comes first?", ("Oslo", "Rome")),
            ("Q?\n(A) x\n(B) y\n(C) z\nBest option: (", "Q?", ("x", "y", "z")),
            ("Q?\nA) x\nB) y", "Q?", ("x", "y")),
            ("Q?\n  A: x\n  B: y", "Q?", ("x", "y")),
            ("Q?\nA. x\n  more of x\nB. y\nThe answer is:", "Q?", ("x\n  more of x", "y")),
            ("A. This is no option.\nQ?\nA. x\nB. y", "A. This is no option.\nQ?", ("x", "y")),
            ("Example:\nA. a\nB. b\nNow:\nA. x\nB. y", "Example:\nA. a\nB. b\nNow:", ("x", "y")),
            ("A.x\nB.y", "A.x\nB.y", ("x", "y")),
        ],
    )
    def test_options_are_found(self, prompt: str, text: str, options: tuple[str, ...]) -> None:
        found = Question.from_prompt(prompt)

        assert (found.text, found.options, found.prompt) == (text, options, prompt)

    @pytest.mark.parametrize(
        "prompt", ["Describe the video.", "Q?\nA. only one", "Q?\nB. x\nC. y", "['A. x', 'B. y']", ""]
    )
    def test_what_has_no_options_is_refused(self, prompt: str) -> None:
        with pytest.raises(UsageError, match="no options were found in the prompt"):
            Question.from_prompt(prompt)

    def test_no_more_than_the_alphabet(self) -> None:
        lines = [f"{chr(65 + place)}. x{place}" for place in range(MAX_OPTIONS)]

        assert len(Question.from_prompt("\n".join(["Q?", *lines, "[. y"])).options) == MAX_OPTIONS

    def test_a_template_does_not_replace_it(self) -> None:
        model = MockModel(lambda request: {"A": 0.9, "B": 0.1})

        ask(gray_pool(4), Question.from_prompt(PROMPT), model=model, k=2, template="mlvu", effort="quick")

        assert [request.prompt for request in model.requests] == [PROMPT]


def answer(request: Request) -> dict[str, float]:
    if "fails" in request.prompt:
        raise ModelError("the model was told to fail")
    return {"A": 0.2, "B": 0.8} if "Rome" in request.prompt else {"A": 0.8, "B": 0.2}


def harness(out: Path | None = None, **changes: Any) -> tuple[Harness, MockModel]:
    model = MockModel(answer, name="toy")
    settings = Options(**{"k": 2, "effort": "quick", "template": "mlvu", **changes})
    return Harness(settings.resolve(model=model).loaded(), out=out), model


def test_answers_come_in_the_order_of_the_prompts_and_are_recorded(tmp_path: Path) -> None:
    one, two = (str(make_video(tmp_path / name, shade)) for name, shade in (("one", 10), ("two", 200)))
    mine, model = harness(tmp_path / "answers.jsonl")
    other = PROMPT.replace("Rome", "Lima")
    asked = [HarnessRequest("1", one, PROMPT), HarnessRequest("2", two, PROMPT), HarnessRequest("3", one, other)]

    assert mine.answers(asked) == ["B", "B", "A"]
    assert [request.prompt for request in model.requests] == [PROMPT, other, PROMPT]  # a video's prompts together
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [(line["id"], line["choice"]) for line in lines] == [("1", "B"), ("3", "A"), ("2", "B")]


def test_few_failures_are_empty_answers_and_many_are_an_error(tmp_path: Path) -> None:
    video = str(make_video(tmp_path / "one"))
    good = [HarnessRequest(str(number), video, PROMPT) for number in range(19)]
    bad = HarnessRequest("x", video, f"fails\n{PROMPT}")
    mine, _ = harness()

    assert mine.answers([*good, bad]) == ["B"] * 19 + [""] and mine.failures == ["x: the model was told to fail"]
    with pytest.raises(ModelError, match="1 of 2 questions failed; the first was x: the model was told to fail"):
        mine.answers([good[0], bad])
    with pytest.raises(ModelError, match=r"1 of 1 questions failed; the first was 1: .*gone\.mp4"):
        mine.answers([HarnessRequest("1", str(tmp_path / "gone.mp4"), PROMPT)])


def test_rotations_are_refused(tmp_path: Path) -> None:
    mine, _ = harness(rotations=2)

    with pytest.raises(ModelError, match="has one order of options"):
        mine.answers([HarnessRequest("1", str(make_video(tmp_path / "one")), PROMPT)])


def test_ids_must_differ(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two prompts have the same id"):
        harness()[0].answers([HarnessRequest("1", "x", PROMPT), HarnessRequest("1", "x", PROMPT)])


class TestLmmsEvalClasses:
    """Our side of lmms-eval's interface; tests/integrations/test_lmms_eval.py runs the program itself."""

    def model(self, kind: Any, docs: list[dict[str, Any]]) -> Any:
        made = object.__new__(kind)
        made.harness, made.task_dict = harness()[0], {"task": {"test": docs}}
        return made

    def test_the_manifest_names_both_classes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        theirs: Any = ModuleType("lmms_eval.models.registry_v2")
        theirs.ModelManifest = SimpleNamespace
        for name in ("lmms_eval", "lmms_eval.models"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, theirs.__name__, theirs)

        manifest = lmms_eval_manifest()

        assert resolve_name(manifest.simple_class_path) is GridProbeSimple
        assert resolve_name(manifest.chat_class_path) is GridProbeChat

    def test_simple_and_chat_requests(self, tmp_path: Path) -> None:
        video = str(make_video(tmp_path / "one"))
        docs = [{"video": video, "prompt": PROMPT}]
        simple: Any = (PROMPT, {}, lambda doc: [doc["video"]], 0, "task", "test")
        content = [{"type": "video", "url": video}, {"type": "text", "text": PROMPT}]
        chat: Any = ("", lambda doc: [{"role": "user", "content": content}], {}, 0, "task", "test")

        assert self.model(GridProbeSimple, docs).generate_until([SimpleNamespace(args=simple)]) == ["B"]
        assert self.model(GridProbeChat, docs).generate_until([SimpleNamespace(args=chat)]) == ["B"]
        assert GridProbeSimple.is_simple and not GridProbeChat.is_simple

    def test_pictures_are_refused_with_an_exit_code(self) -> None:
        request: Any = (PROMPT, {}, lambda doc: [object(), object()], 0, "task", "test")

        with pytest.raises(SystemExit, match="gridprobe: a question must be about one video file, got 2 visuals"):
            self.model(GridProbeSimple, [{}]).generate_until([SimpleNamespace(args=request)])

    def test_mistakes_end_the_program(self) -> None:
        with pytest.raises(SystemExit, match="gridprobe: name the model"):
            GridProbeSimple()
        with pytest.raises(SystemExit, match="gridprobe: unknown setting 'kk'"):
            GridProbeSimple("embedded", kk=3)
        for method in ("loglikelihood", "generate_until_multi_round"):
            with pytest.raises(SystemExit, match="gridprobe: this task"):
                getattr(self.model(GridProbeSimple, []), method)([])
