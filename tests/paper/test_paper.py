"""The published method to the letter: times and compute as in the authors' chain, and the preset of their code."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.importance import Grid, ImportanceMap, ShapeRule, top
from gridprobe.models import Choose, FrameGroup, Request, View, cost_model_of
from gridprobe.options import Options
from gridprobe.video import FramePool, FrameSize, Pending
from videos_of_arrays import gray_pool, levels

QUESTION = gp.Question("Which is right?", ["one", "two", "three"])
PAPER = Options.from_preset("paper")


def blank(frames: int, width: int = 1920, height: int = 1080) -> FramePool:
    """Frames of a size, without pixels."""
    shape = (frames, height, width, 3)
    pixels = Pending(lambda rows: np.zeros((len(rows), *shape[1:]), np.uint8), shape)
    return FramePool(pixels, tuple(float(i) for i in range(frames)), "blank")


# Times.


def official_times(frames: int) -> list[str]:
    """qwen_vl_utils repeats an odd last frame; the processor numbers frames at 24 fps and takes the means of pairs."""
    times = [number / 24 for number in range(frames + frames % 2)]
    return [f"{(first + second) / 2:.1f}" for first, second in zip(times[::2], times[1::2], strict=True)]


@pytest.mark.parametrize("frames", range(1, 145))
def test_every_pairs_time_is_the_published_one(frames: int) -> None:
    units = FrameGroup(blank(frames), View(FrameSize(), "pairs", "paper")).units(0)

    assert [f"{unit.time:.1f}" for unit in units] == official_times(frames)


def test_an_odd_last_frame_at_its_own_time_would_differ_in_18_of_72() -> None:
    odd = range(1, 145, 2)

    assert sum(f"{(frames - 1) / 24:.1f}" != official_times(frames)[-1] for frames in odd) == 18


# Compute: Figure 1b. 1080p, 280 tokens of text.


@pytest.mark.parametrize(("k", "printed"), [(12, 820), (24, 3424), (32, 3229)])
def test_all_frames_at_each_k_cost_what_the_paper_shows(k: int, printed: float) -> None:
    model = cost_model_of("Qwen/Qwen3-VL-2B-Instruct")
    text = "x" * (270 * 4)  # the gauge counts four characters as a token
    request = Request(text, Choose(("A", "B")), (FrameGroup(blank(k * k), PAPER.full_view),))

    cost = model.cost(request)

    assert cost.tflops_paper == pytest.approx(printed, rel=0.02 if k == 12 else 0.002)  # a few videos are of 720p
    assert cost.tokens < 128_000


def test_without_a_total_k_32_would_not_fit_the_context() -> None:
    model = cost_model_of("Qwen/Qwen3-VL-2B-Instruct")
    view = Options.from_preset("paper", full={"max_pixels": 786_432, "twice": True}).full_view

    cost = model.cost(Request("?", Choose(("A", "B")), (FrameGroup(blank(1024), view),)))

    assert cost.tokens > 262_144


def test_a_total_is_a_setting_for_any_preset() -> None:
    settings = Options(k=4, full=FrameSize(max_pixels=786_432, total_pixels=1_048_576))
    model = MockModel(lambda request: {"A": 1.0, "B": 1.0, "C": 1.0})

    answer = gp.ask(blank(16), QUESTION, model=model, selector="all", k=4, full=settings.full)

    assert answer.cost.focus.visual_tokens <= 1024
    assert model.requests[-1].groups[0].size(32) == (320, 192)  # 60 of 64 tokens each


# The preset of the authors' code.


def test_the_preset_of_the_authors_differs_from_the_papers_in_its_rule_and_its_probes() -> None:
    paper, authors = PAPER, Options.from_preset("authors")
    names = {name for name in vars(paper) if getattr(paper, name) != getattr(authors, name)}

    assert names == {"preset", "probe_input"}
    assert (paper.ties, authors.ties) == ("earliest", "argsort")
    assert authors.rule == ShapeRule(least=2, scale=3.0)


@pytest.mark.parametrize("k", [8, 12, 16])
def test_the_authors_budget_is_the_rule_of_their_code(k: int) -> None:
    rng = np.random.default_rng(k)
    for _ in range(100):
        found = ImportanceMap(Grid(k), tuple(rng.uniform(0.2, 0.9, k)), tuple(rng.uniform(0.2, 0.9, k)))
        expected = max(2, min(k * k, math.ceil(k * k / (1 + 3.0 * found.shape.sigma))))
        assert ShapeRule.authors("").kept(found) == expected


def test_the_authors_ties_are_the_end_of_an_argsort() -> None:
    scores = np.full(144, 0.25)
    scores[[3, 77]] = 0.5

    kept = top(scores, 9, ties="argsort")

    assert {3, 77} < set(kept) and len(kept) == 9
    assert kept == tuple(sorted(np.argsort(scores)[::-1][:9].tolist()))
    assert kept != top(scores, 9, ties="earliest")


def test_the_authors_probes_are_shrunk_from_frames_of_full_size() -> None:
    setup = Options.from_preset("authors").resolve(model=MockModel(lambda _: {}))

    assert setup.pool_size(144).fit(1920, 1080) == (1920, 1088)
    assert setup.size_of(setup.shown, 53).fit(1920, 1080) == (1152, 640)


# Appendix A: a probe as one picture.


def seen(see: Callable[[Request], None]) -> MockModel:
    def answer(request: Request) -> dict[str, float]:
        see(request)
        return {"A": 2.0, "B": 1.0, "C": 1.0}

    return MockModel(answer)


def test_a_probe_may_show_its_frames_as_one_picture_of_2048() -> None:
    model = seen(lambda _: None)

    answer = gp.ask(gray_pool(144), QUESTION, model=model, preset="paper", probe_input="collage")

    probes, focus = model.requests[:24], model.requests[-1]
    assert [len(probe.frames) for probe in probes] == [1] * 24
    assert {probe.groups[0].size(32) for probe in probes} == {(2048, 2048)}
    assert {probe.groups[0].view.timestamps for probe in probes} == {"none"}
    tile = 2048 // 4
    board = probes[1].frames.pixels[0]  # the second row: frames 12 to 23, in four by four tiles
    shown = [int(board[r * tile + tile // 2, c * tile + tile // 2, 0]) for r in range(4) for c in range(4)]
    assert shown == [*range(12, 24), 0, 0, 0, 0]
    assert levels(focus.frames) == list(answer.selection.indices), "the focused pass shows frames"
    assert answer.settings["selector"]["collage"] is True
    assert probes[0].groups[0].frames.keys != probes[1].groups[0].frames.keys


def test_pictures_of_probes_are_decoded_large_enough() -> None:
    settings = Options(probe_input="collage", probes="fresh", effort="focus")
    setup = settings.resolve(model=MockModel(lambda _: {}))

    assert setup.pool_size(144).fit(1920, 1080) == (1152, 640)


def test_a_memory_has_no_pictures_of_probes() -> None:
    with pytest.raises(UsageError, match="use probes=fresh, not attention"):
        Options(probe_input="collage").resolve(model="embedded")
