"""Whole questions with models of other families, from Python and from the command line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import gridprobe as gp
from auto_checkpoints import TINY, new_enough, usual_of
from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.models import Choose, FrameGroup, Model, Request, View, choose
from gridprobe.models.transformers.prompt import time_text
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import contact_sheet
from gridprobe_world.dataset import items, pool_of
from videos import numbered_video

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
ITEM = items(1)[0]
POOL = pool_of(ITEM, cells=16, size=64)


@pytest.mark.parametrize("family", usual_of(TINY))
def test_overview_probes_context_and_focus(family: str, auto_model: Callable[[str], Model]) -> None:
    question, model = ITEM.asked.question, auto_model(family)

    answer = gp.ask(POOL, question, model=model, k=4, frames=3, effort="full", context="small")

    assert answer.choice in question.labels and answer.reached.by == "focus"
    assert answer.selection.evidence is not None and answer.selection.evidence.kind == "attention"
    assert answer.shown_native == answer.selection.kept == 3
    assert answer.cost.overview.calls == 1 and answer.cost.probe.calls == 1 and answer.cost.focus.calls == 1
    assert answer.cost.focus.visual_tokens > 0 < answer.cost.overview.flops
    assert answer.models[1] == model.identity


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_a_focused_pass_goes_on_from_the_overview(family: str, auto_model: Callable[[str], Model]) -> None:
    model = auto_model(family)

    answer = gp.ask(POOL, ITEM.asked.question, model=model, k=4, frames=3, effort="full", context="overview")

    focus = answer.cost.focus
    assert answer.reached.by == "focus" and answer.shown_native == 3
    assert 0 < focus.flops_computed <= focus.flops and focus.flops_reused > 0


@pytest.mark.parametrize("family", ["internvl", "llava_onevision", "smolvlm", "qwen2_5_vl"])
def test_a_contact_sheet_is_the_picture_it_is(family: str, auto_model: Callable[[str], Model]) -> None:
    model, frames = auto_model(family), POOL.take(range(4))
    picture = FramePool(contact_sheet(frames.pixels, 2)[None], (0.0,), source="sheet")
    sheet = FrameGroup(frames, View(FrameSize(), timestamps="none", sheet=2))
    whole = FrameGroup(picture, View(FrameSize(), timestamps="none"))

    one, other = choose(model, [Request("?", Choose(("A", "B")), (group,)) for group in (sheet, whole)])

    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert one.cost.tokens == other.cost.tokens and one.cost.flops == other.cost.flops


def test_the_times_of_a_contact_sheet_stand_before_it() -> None:
    assert time_text((12.34,)) == "Time: 12.3s" and time_text(()) == ""
    assert time_text((0.0, 4.25)) == "Times from left to right, top to bottom: 0.0s, 4.2s"


def test_where_pictures_cost_the_same_an_overview_on_sheets_saves_most_of_all_frames(
    auto_model: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = auto_model("internvl")
    monkeypatch.setattr(
        model, "capabilities", replace(model.capabilities, tokens_per_image=256)
    )  # as a released one would have; this one is tiny

    answer = gp.ask(POOL, ITEM.asked.question, model=model, k=4, effort="quick")

    assert answer.settings["overview"]["sheet"] == 3
    assert answer.cost.overview.visual_tokens * 8 == answer.cost.baseline.visual_tokens  # 2 sheets for 16 frames


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("clip") / "clip.mp4", 50)


@pytest.mark.parametrize("family", ["internvl", "llava_onevision", "smolvlm"])
def test_the_command_line_gives_answer_map_and_bill(
    family: str, clip: Path, auto_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    image = tmp_path / "map.png"
    words = [
        "ask",
        clip,
        "What is it?",
        "-o",
        "a",
        "-o",
        "b",
        "--k",
        3,
        "--model",
        auto_folder(family),
        "--device",
        "cpu",
    ]

    shown = CliRunner().invoke(cli, [*map(str, words), "--effort", "full", "--map", str(image)])
    told = CliRunner().invoke(cli, [*map(str, words), "--effort", "full", "--json"])

    assert shown.exit_code == told.exit_code == 0, shown.output + told.output
    assert image.stat().st_size > 1000 and "% of the compute of showing all" in shown.stdout
    answer = json.loads(told.stdout)
    assert answer["choice"] in "AB" and answer["models"]["answerer"].startswith(f"{family}@")
    assert answer["cost"]["tflops"] > 0 and len(answer["selection"]["map"]) > 0


def test_pairs_are_refused_from_the_start(auto_model: Callable[[str], Model]) -> None:
    with pytest.raises(UsageError, match=r'^this model cannot fuse frames in pairs; use packing="single"'):
        gp.ask(POOL, ITEM.asked.question, model=auto_model("internvl"), k=4, preset="paper")
