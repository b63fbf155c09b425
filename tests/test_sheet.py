"""Contact sheets: several small frames in one picture, for models that spend the same number of tokens on each."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.models import Choose, FrameGroup, Request, View, choose
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.options import Options
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import contact_sheet
from scoring import like, noise_pool
from videos_of_arrays import gray_pool

QUESTION = gp.Question("Which is right?", ["one", "two", "three"])


class Fixed(MockModel):
    """A mock model that spends the same number of tokens on every picture."""

    def __init__(self, answer: Callable[[Request], dict[str, float]]) -> None:
        super().__init__(answer)
        self.capabilities = replace(self.capabilities, tokens_per_image=256)


def even(request: Request) -> dict[str, float]:
    return dict.fromkeys(request.labels, 1.0)


def asked(frames: FramePool, view: View, **more: object) -> Request:
    return Request("Question: ?", Choose(("A", "B")), (FrameGroup(frames, view),), **more)  # type: ignore[arg-type]


def test_frames_stand_in_reading_order_and_empty_places_are_black() -> None:
    frames = np.stack([np.full((2, 3, 3), level, np.uint8) for level in (10, 20, 30)])

    sheet = contact_sheet(frames, 2)

    assert sheet.shape == (4, 6, 3)
    assert sheet[:, :, 0].tolist() == [[10] * 3 + [20] * 3] * 2 + [[30] * 3 + [0] * 3] * 2


def test_a_sheet_is_one_unit_with_the_times_of_its_frames() -> None:
    request = asked(gray_pool(6, width=64, height=32), View(FrameSize(), sheet=2))
    first, second = request.units

    assert (first.members, second.members) == ((0, 1, 2, 3), (4, 5))
    assert request.times_of(first) == (0.0, 10.0, 20.0, 30.0) and request.times_of(second) == (40.0, 50.0)
    assert request.groups[0].size(32) == (128, 64)
    shared = request.by_frame(np.array([[0.5, 0.25]]))
    assert shared is not None and shared.tolist() == [[0.5, 0.5, 0.5, 0.5, 0.25, 0.25]]


@pytest.mark.parametrize("timestamps", ["none", "paper"])
def test_a_sheet_without_true_times_has_none(timestamps: gp.models.Timestamps) -> None:
    request = asked(gray_pool(4), View(FrameSize(), timestamps=timestamps, sheet=2))

    assert request.times_of(request.units[0]) == ()


def test_the_engine_sees_a_sheet_as_the_picture_it_is(tiny_model: Qwen3VL) -> None:
    frames = noise_pool(8, width=64, height=32)
    view = View(FrameSize(), timestamps="none")
    pictures = np.stack([contact_sheet(frames.pixels[i : i + 4], 2) for i in (0, 4)])
    whole = FramePool(pictures, (0.0, 1.0), source="pictures")

    sheets, same = asked(frames, View(FrameSize(), timestamps="none", sheet=2)), asked(whole, view)

    plain = like(tiny_model, plain=True)
    for engine in (tiny_model, plain):
        for a, b in zip(choose(engine, [sheets])[0].logprobs, choose(engine, [same])[0].logprobs, strict=True):
            assert a == pytest.approx(b, abs=1e-5)
    assert tiny_model.cost(sheets) == tiny_model.cost(same)


def test_attention_to_a_sheet_is_shared_by_its_frames(tiny_model: Qwen3VL) -> None:
    request = asked(noise_pool(6, width=64, height=32), View(FrameSize(), sheet=2), attention=True)

    (posterior,) = choose(tiny_model, [request])

    assert posterior.attention is not None and len(posterior.attention) == 6
    assert len(set(posterior.attention[:4])) == 1 and len(set(posterior.attention)) == 2


@pytest.mark.parametrize(("tokens", "side"), [(None, 1), (28, 1), (64, 2), (81, 2), (256, 3), (729, 5), (100_000, 8)])
def test_a_picture_holds_as_many_frames_as_make_each_as_cheap_as_in_qwen(tokens: int | None, side: int) -> None:
    model = MockModel(even)
    model.capabilities = replace(model.capabilities, tokens_per_image=tokens)

    assert View(FrameSize(), sheet=0).suiting(model).sheet == side
    assert View(FrameSize(), "pairs", sheet=0).suiting(model).sheet == 1
    assert View(FrameSize(), sheet=4).suiting(model).sheet == 4, "what was chosen stays"


def test_overview_probes_and_context_are_sheets_where_the_model_needs_them() -> None:
    model = Fixed(even)

    answer = gp.ask(gray_pool(144), QUESTION, model=model, effort="full", probes="fresh", frames=4)

    overview, probes, focus = model.requests[0], model.requests[1:25], model.requests[-1]
    assert (len(overview.units), len(overview.frames)) == (16, 144)
    assert {len(probe.units) for probe in probes} == {2}
    kept, others = focus.groups
    assert (kept.view.sheet, others.view.sheet) == (1, 3), "kept frames stand alone"
    assert answer.settings["overview"]["sheet"] == answer.settings["context"]["sheet"] == 3
    assert answer.selection.kept == 4


def test_all_small_is_shown_in_sheets_too() -> None:
    setup = Options().resolve(model=Fixed(even), selector="all-small").loaded()

    assert setup.shown.sheet == 3


def test_sheets_can_be_chosen_or_refused() -> None:
    assert Options(sheet=1).resolve(model=Fixed(even)).loaded().overview == View(FrameSize(max_side=224), sheet=1)
    with pytest.raises(UsageError, match="1 to 8 frames side by side, got 9"):
        Options(sheet=9)
    with pytest.raises(UsageError, match="packing=pairs needs sheet=1"):
        Options(sheet=2, packing="pairs")
