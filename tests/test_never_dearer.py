"""A question takes no more than showing all frames, for every family, size of video and grid."""

from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import gridprobe as gp
from auto_checkpoints import TINY, make_auto_checkpoint, new_enough, usual_of
from gridprobe import MockModel
from gridprobe.models import CostModel, Request, cost_model_of
from gridprobe.models.base import Capabilities, Cost
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, price_roughly
from gridprobe.options import Options
from gridprobe.report.view import AnswerView
from gridprobe.video import FramePool, VideoInfo
from gridprobe_eval.planning import TYPICAL, Models, Offer, offers, price_grid
from test_pipeline import SCHEMA
from videos_of_arrays import gray_pool

SIZES = ((50, 50), (126, 224), (448, 252), (640, 360), (1280, 720), (3840, 2160))
OPEN = gp.Question("What happens after the door has been closed?")
FEW = gp.Question("Is it day?", ["yes", "no"])


def info_of(width: int, height: int) -> VideoInfo:
    return VideoInfo(
        "v.mp4", "mp4", "h264", width, height, 0, 25.0, 600.0, 15000, 600.0, 15000, 0.0, "yuv420p", False, "PyAV", "f"
    )


def offered(model: CostModel, width: int, height: int, k: int, question: gp.Question = TYPICAL) -> dict[str, Offer]:
    info = info_of(width, height)
    return {each.name: each for each in offers(Options(k=k), info, Models(model, model), question=question)}


def check(model: CostModel, width: int, height: int, k: int, question: gp.Question = TYPICAL) -> None:
    """The overview and the focused pass take no more than all frames; a map may come on top."""
    found = offered(model, width, height, k, question)
    (first, most), (_, baseline) = found["auto"].tflops, found["all frames"].tflops
    setup = Options(k=k, effort="full").resolve(model=model)
    _, stages, _ = price_grid(setup, question, info_of(width, height), kept=(1,))
    with_map = 0.0 if found["auto"].frames[0] else stages.probes.tflops
    if model.capabilities.attention_map:
        with_map = min(with_map, 0.05 * baseline)
    assert first <= baseline * (1 + 1e-9)
    assert most <= (baseline + with_map) * (1 + 1e-9), f"{most / baseline:.3f} of all frames, with a map {with_map}"


@new_enough
@pytest.mark.parametrize("family", usual_of(TINY))
def test_no_family_pays_more_than_for_all_frames(family: str, tmp_path: Path) -> None:
    model = cost_model_of(str(make_auto_checkpoint(family, tmp_path)))
    for width, height in SIZES[::2]:
        for k in (4, 7):
            check(model, width, height, k)


WHERE: dict[str, dict[str, Any]] = {
    "local": {"kv_reuse": True, "attention_map": True},
    "local, without a KV cache": {},
    "server that samples": {"logprobs": False},
}


@pytest.mark.parametrize(
    "size", [pytest.param(name, marks=pytest.mark.release if place else ()) for place, name in enumerate(QWEN3_VL)]
)
@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
def test_no_released_model_pays_more_than_for_all_frames(size: str, where: dict[str, Any]) -> None:
    capabilities = Capabilities(**where, generates=True, frame_multiple=32)
    model = CostModel(size, capabilities, partial(price_roughly, QWEN3_VL[size]))
    for width, height in SIZES:
        for k in (4, 5, 12, 16):
            for question in (TYPICAL, FEW):
                check(model, width, height, k, question)


@pytest.mark.parametrize("tokens", [64, 256, 730, 1176])
@pytest.mark.parametrize("kv_reuse", [True, False])
def test_pictures_of_a_fixed_price_are_shown_on_sheets_or_once(tokens: int, kv_reuse: bool) -> None:
    def price(request: Request) -> Cost:
        count = 40 + tokens * len(request.units) + len(request.prompt) // 4
        computed = len(request.prompt) // 4 if request.visible_frames is not None else count
        return Cost(1, count, 0, computed * (3e9 + 6e4 * count))

    capabilities = Capabilities(kv_reuse=kv_reuse, attention_map=kv_reuse, generates=True, tokens_per_image=tokens)
    for k in (4, 5, 12, 16):
        for width, height in SIZES[::2]:
            check(CostModel("fixed", capabilities, price), width, height, k)


@pytest.mark.parametrize("size", ["", "nano"])
@pytest.mark.parametrize(
    "side", [50, *(pytest.param(each, marks=pytest.mark.release) for each in (100, 224, 448)), 320]
)
def test_the_bill_of_the_embedded_models_is_no_higher(size: str, side: int) -> None:
    pixels = np.random.default_rng(side).integers(0, 256, (16, side, side, 3), dtype=np.uint8)
    pool = FramePool(pixels, tuple(float(i) for i in range(16)), source=f"noise{side}")
    question = gp.Question("Which colour does the cross have?", ["red", "green", "blue", "white"])
    model = gp.load_model(f"embedded:{size}" if size else "embedded")
    for preset in ("default", "gridworld"):
        answer = gp.ask(pool, question, model=model, k=4, preset=preset, exit_confidence=1.0)
        assert answer.cost.total.share_of(answer.cost.baseline) <= 1.0
        assert answer.reached.by == ("focus" if side > 100 else "all")  # their small frames have 64 pixels


def test_small_frames_are_shown_once_at_full_size() -> None:
    model = MockModel(lambda request: {"A": 0.6, "B": 0.4})
    answer = gp.ask(gray_pool(16), FEW, model=model, k=4)

    (request,) = model.requests
    assert len(request.frames) == 16 and answer.reached.by == "all" and answer.shown_native == 16
    assert answer.cost.total == answer.cost.focus == answer.cost.baseline
    assert answer.warnings == () and answer.evidence == ()
    described = answer.to_dict()
    jsonschema.validate(described, SCHEMA)
    assert described["reached"]["by"] == "all" and described["settings"]["effort"] == "all"
    assert "all 16 frames at full size in one pass" in AnswerView(answer).reached


def test_the_map_of_all_frames_is_read_from_their_pass() -> None:
    model = MockModel(lambda request: {"A": 0.9, "B": 0.1})
    answer = gp.ask(gray_pool(16), FEW, model=model, k=4, show_map=True)

    others = model.requests[1:]
    assert all(request.visible_frames is not None for request in others), "no frame is shown again"
    assert answer.reached.by == "all" and answer.selection.scores is not None


def test_the_answering_model_is_the_one_that_sees_all_frames() -> None:
    first, second = (MockModel(lambda request: {"A": 0.6, "B": 0.4}, name=name) for name in ("first", "second"))
    answer = gp.ask(gray_pool(16), FEW, model=first, answer_model=second, k=4)

    assert answer.reached.by == "all" and not first.requests and len(second.requests) == 1


@pytest.mark.parametrize("limit", [{"max_frames": 4}, {"max_tokens": 1100}])
def test_a_limit_that_forbids_all_frames_leaves_the_overview(limit: dict[str, Any]) -> None:
    model = MockModel(lambda request: {"A": 0.6, "B": 0.4})
    answer = gp.ask(gray_pool(16, width=320, height=320), FEW, model=model, k=4, **limit)

    assert answer.reached.by == "overview" and len(model.requests) == 1
    assert any("all frames at full size are over" in text for text in answer.warnings)


def test_an_answer_that_costs_more_says_so() -> None:
    model = MockModel(lambda request: {"A": 0.6, "B": 0.4})
    answer = gp.ask(gray_pool(16), FEW, model=model, k=4, effort="full")

    assert answer.cost.total.share_of(answer.cost.baseline) > 1.05
    assert any("times what one pass over all frames" in text for text in answer.warnings)


def test_fewer_frames_are_kept_where_more_would_cost_more_than_all() -> None:
    model = MockModel(lambda request: {"A": 0.6, "B": 0.4})
    answer = gp.ask(gray_pool(16, width=448, height=448), FEW, model=model, k=4, frames=16)

    assert answer.reached.by == "focus" and answer.selection.kept < 16
    assert answer.cost.total.share_of(answer.cost.baseline) <= 1.0
    assert any(f"{answer.selection.kept} of 16 frames kept" in text for text in answer.warnings)
