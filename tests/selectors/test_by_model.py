"""Selectors that ask the model: what each asks, what it keeps, and what that costs."""

import inspect
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.errors import ModelError, UsageError
from gridprobe.importance import Fixed
from gridprobe.models import Request, Response
from gridprobe.models.base import Cost, posteriors
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.selectors import ExtraFrames, Selection
from gridprobe.selectors.gridprobe import certainty
from gridprobe.video import FramePool, FrameSize
from gridprobe_selectors.agents import (
    Avua,
    Frag,
    Uncertainty,
    VideoAgent,
    VideoAtlas,
    farthest,
    needed_prompt,
    question_type,
)
from gridprobe_selectors.q_frame import QFrame, drawn_order
from videos_of_arrays import gray_pool, levels

QUESTION = Question("Where is the needle?", ["here", "there", "nowhere"], id="q")
OURS = ("frag", "uncertainty", "q-frame", "videoagent", "videoatlas", "avua")


def shown(request: Request) -> list[int]:
    return [level for group in request.groups for level in levels(group.frames)]


def model(*needles: int) -> MockModel:
    """Sure of B, or of "yes", if a needle is shown; the surer the more of the frames are needles."""

    def answer(request: Request) -> dict[str, float]:
        frames = shown(request)
        share = len(set(needles) & set(frames)) / len(frames)
        sure = "A" if len(request.labels) == 2 else "B"  # two labels: yes or no
        return {label: 0.05 + (share if label == sure else 0.0) for label in request.labels}

    return MockModel(answer)


def test_certainty_is_0_for_a_guess_and_1_for_a_sure_answer() -> None:
    assert certainty({"A": 0.5, "B": 0.5}) == pytest.approx(0.0)
    assert certainty({"A": 1.0, "B": 0.0, "C": 0.0}) == 1.0
    half = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25)) / math.log(3)
    assert certainty({"A": 0.5, "B": 0.25, "C": 0.25}) == pytest.approx(1 - half)


@pytest.mark.parametrize("name", OURS)
def test_the_bill_is_that_of_every_request(name: str) -> None:
    scripted = model(17)
    setup = Options(frames=4).resolve(model=scripted, selector=name)

    found = setup.selector.select(gray_pool(64), QUESTION)

    assert scripted.requests
    assert found.cost == sum((scripted.cost(request) for request in scripted.requests), Cost())
    assert found.cost.calls == len(scripted.requests)


@pytest.mark.parametrize("name", OURS)
def test_evidence_is_found_without_and_with_context(name: str) -> None:
    needles = range(25, 34)  # agents look at a few frames of the video only, and would miss a single one
    for context in ("none", "small"):
        answer = gp.ask(gray_pool(64), QUESTION, model=model(*needles), selector=name, frames=8, k=8, context=context)

        assert set(needles) & set(answer.selection.indices)
        assert answer.choice == "B" and answer.selection.kept <= 8


@pytest.mark.parametrize("name", OURS)
def test_a_posterior_that_is_not_a_number_fails_the_question(name: str) -> None:
    broken = MockModel(lambda request: dict.fromkeys(request.labels, float("nan")))
    setup = Options(frames=4).resolve(model=broken, selector=name)

    with pytest.raises(ModelError):
        setup.selector.select(gray_pool(16), QUESTION)


@pytest.mark.parametrize("name", OURS)
def test_the_paper_and_what_differs_from_it_stand_at_the_head(name: str) -> None:
    """At the head of the module, or of the selector's part of it."""
    make, _ = SELECTORS.resolve(name)
    source = inspect.getsource(sys.modules[getattr(make, "__self__", make).__module__])
    heads = re.findall(r'^(?:"""|# ).*arXiv:.*\n(?:(?!"""|# .*arXiv:|class |def ).*\n)*', source, flags=re.M)

    (head,) = [each for each in heads if name.replace("-", "") in each.splitlines()[0].lower().replace("-", "")]
    assert "Deviations." in head


def test_doubtful_answers_are_reported_by_all() -> None:
    class Mumbling(MockModel):
        def run(self, requests: Sequence[Request]) -> Sequence[Response]:
            return [replace(posterior, mass=0.02) for posterior in posteriors(super().run(requests))]

    mumbling = Mumbling(lambda request: dict.fromkeys(request.labels, 1.0))
    for name in OURS:
        setup = Options(frames=2).resolve(model=mumbling, selector=name)
        (warning,) = setup.selector.select(gray_pool(4), QUESTION).warnings
        assert "probes the model puts only 2.0% of its probability on the option letters" in warning


class TestFrag:
    def test_each_frame_is_asked_alone_for_yes_or_no(self) -> None:
        scripted = model(5)

        found = Frag(scripted, Fixed(2)).select(gray_pool(9), QUESTION)

        assert [shown(request) for request in scripted.requests] == [[i] for i in range(9)]
        assert {request.labels for request in scripted.requests} == {("A", "B")}
        assert {request.prompt for request in scripted.requests} == {needed_prompt(QUESTION)}
        assert "Where is the needle?" in needed_prompt(QUESTION) and "there; nowhere" in needed_prompt(QUESTION)
        assert found.scores is not None and found.scores[5] == pytest.approx(1.05 / 1.1)
        assert found.scores[4] == pytest.approx(0.5) and 5 in found.indices

    def test_the_score_is_the_probability_among_all_tokens(self) -> None:
        class Half(MockModel):
            def run(self, requests: Sequence[Request]) -> Sequence[Response]:
                return [replace(posterior, mass=0.5) for posterior in posteriors(super().run(requests))]

        found = Frag(Half(lambda _: {"A": 0.8, "B": 0.2}), Fixed(1)).select(gray_pool(4), QUESTION)

        assert found.scores == pytest.approx((0.4,) * 4)


class TestUncertainty:
    def test_by_hand(self) -> None:
        found = Uncertainty(model(2), Fixed(1)).select(gray_pool(4), QUESTION)
        sure = certainty({"A": 0.05 / 1.15, "B": 1.05 / 1.15, "C": 0.05 / 1.15})

        assert found.indices == (2,) and found.scores == pytest.approx((0, 0, sure, 0))
        assert len(found.probes) == 4 and found.evidence is not None and found.evidence.kind == "certainty"

    def test_windows_share_their_score_and_the_last_may_be_short(self) -> None:
        scripted = model(6)
        make, argument = SELECTORS.resolve("uncertainty:4")
        setup = Options(frames=2).resolve(model=scripted, selector="uncertainty:4")

        found = setup.selector.select(gray_pool(10), QUESTION)

        assert [shown(request) for request in scripted.requests] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert found.scores is not None and len(set(found.scores[4:8])) == 1 and set(found.indices) <= {4, 5, 6, 7}
        assert found.probes == () and setup.selector.describe()["window"] == 4
        assert make and argument == "4"

    @pytest.mark.parametrize("window", ["0", "x", "-1", "1.5"])
    def test_a_bad_window_is_refused(self, window: str) -> None:
        with pytest.raises(UsageError, match="uncertainty:4"):
            Options().resolve(model=model(), selector=f"uncertainty:{window}")


class TestQFrame:
    def test_sizes_of_the_paper(self) -> None:
        selector = QFrame(model(17), Fixed(4))

        found = selector.select(gray_pool(144), QUESTION)

        sizes = [(len(each.indices), each.share) for each in found.extra_frames]
        assert found.kept == 4 and sizes == [(8, 0.5), (32, 0.25)]
        assert selector.extra_frames(4, 144) == ((8, 0.5), (32, 0.25))
        assert 17 in found.indices

    def test_a_short_pool_lacks_small_frames_first(self) -> None:
        assert QFrame(model(), Fixed(4)).extra_frames(4, 20) == ((8, 0.5), (8, 0.25))
        assert QFrame(model(), Fixed(4)).extra_frames(4, 10) == ((6, 0.5),)
        assert QFrame(model(), Fixed(4)).extra_frames(4, 4) == ()

    def test_an_encoder_of_the_settings_scores_in_place_of_the_model(self) -> None:
        class Encoder:
            """Frame 30 is like the text, all others are not."""

            identity, image_size, scale, name = "encoder:x", FrameSize(max_side=32), 100.0, "x"

            def images(self, frames: FramePool) -> npt.NDArray[np.float32]:
                return np.array([[1, 0] if level == 30 else [0, 1] for level in levels(frames)], np.float32)

            def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
                assert list(texts) == [QUESTION.text]
                return np.array([[1, 0]], np.float32)

            def image_cost(self, frames: FramePool) -> Cost:
                return Cost(calls=len(frames))

            def text_cost(self, texts: Sequence[str]) -> Cost:
                return Cost(calls=1)

            def notes(self, text: str) -> tuple[str, ...]:
                return ("a note",)

            def loaded(self, **options: object) -> "Encoder":
                return self

        scripted = model()
        selector = QFrame(scripted, Fixed(1), encoder=Encoder())

        found = selector.loaded(device="cpu").select(gray_pool(64), QUESTION)

        assert found.indices == (30,) and found.warnings == ("a note",) and found.cost == Cost(calls=65)
        assert not scripted.requests and selector.models == ("encoder:x",) and selector.input_size.max_side == 32
        assert found.evidence is not None and found.evidence.kind == "encoder"
        assert selector.describe()["model"] == "encoder:x"

    def test_the_draw_depends_on_the_seed_and_the_question(self) -> None:
        pool = gray_pool(144)
        one, same, other = (QFrame(model(), Fixed(4), seed=seed).select(pool, QUESTION) for seed in (0, 0, 1))

        first, again, reseeded = ((each.indices, each.extra_frames) for each in (one, same, other))
        assert first == again != reseeded

    def test_the_order_is_a_draw_without_replacement_from_the_softmax(self) -> None:
        logits = [0.8 * math.log(3.0), 0.0]  # at temperature 0.8: three to one
        firsts = [drawn_order(logits, str(seed))[0] for seed in range(2000)]

        assert firsts.count(0) / 2000 == pytest.approx(0.75, abs=0.03)

    def test_the_answer_sees_three_sizes_in_time_order(self) -> None:
        scripted = model(17)
        pool = gray_pool(64, width=256, height=128)

        answer = gp.ask(pool, QUESTION, model=scripted, selector="q-frame", frames=2, k=8)
        request = scripted.requests[-1]

        assert [len(group.frames) for group in request.groups] == [2, 4, 16]
        assert [group.size(scripted.capabilities.frame_multiple) for group in request.groups] == [
            (256, 128),
            (128, 64),
            (64, 32),
        ]
        times = [unit.time for unit in request.units]
        assert times == sorted(times) and answer.cost.focus == scripted.cost(request)
        assert answer.shown_native == 2
        assert [(each["share"], len(each["indices"])) for each in answer.to_dict()["selection"]["extra_frames"]] == [
            (0.5, 4),
            (0.25, 16),
        ]

    def test_with_context_all_other_frames_are_shown_too(self) -> None:
        scripted = model(17)

        gp.ask(gray_pool(64), QUESTION, model=scripted, selector="q-frame", frames=2, k=8, context="small")

        assert [len(group.frames) for group in scripted.requests[-1].groups] == [2, 4, 16, 42]

    @pytest.mark.parametrize("changes", [{"show": "collage"}, {"show": "importance"}, {"preset": "paper"}])
    def test_what_hides_sizes_or_times_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="'q-frame' shows frames of several sizes"):
            settings = {"preset": "default", "frames": 2, **changes}
            Options.from_preset(**settings).resolve(model=model(), selector="q-frame")


class TestVideoAgent:
    def test_a_sure_answer_ends_it(self) -> None:
        scripted = MockModel(lambda request: {"A": 0.98, "B": 0.01, "C": 0.01})

        found = VideoAgent(scripted, Fixed(8)).select(gray_pool(100), QUESTION)

        assert found.indices == (10, 30, 50, 70, 90) and len(scripted.requests) == 1

    def test_it_retrieves_from_the_best_segment_and_stops_after_two_rounds(self) -> None:
        scripted = model(*range(31, 50))

        found = VideoAgent(scripted, Fixed(8)).select(gray_pool(100), QUESTION)

        assert found.kept == 8 and {10, 30, 50, 70, 90} <= set(found.indices)
        assert 40 in found.indices  # the middle of the segment that holds needles
        rounds = [len(shown(request)) for request in scripted.requests]
        assert rounds == [5, *[3] * 6, 7, *[3] * 8]  # six segments, then eight; the last frames are not asked again

    def test_without_a_number_it_keeps_at_most_11(self) -> None:
        selector = VideoAgent(model())

        assert selector.bounds(144) == (5, 11) and selector.select(gray_pool(144), QUESTION).kept == 11
        assert VideoAgent(model(), Fixed(3)).bounds(144) == (1, 3)


class TestVideoAtlas:
    def test_it_descends_from_spans_to_frames(self) -> None:
        scripted = model(100)

        found = VideoAtlas(scripted, Fixed(1)).select(gray_pool(144), QUESTION)

        assert found.indices == (100,)
        sizes = [len(shown(request)) for request in scripted.requests]
        assert sizes == [9] * 16 + [1] * 27  # 16 spans of nine frames, then the frames of the best three
        assert scripted.requests[0].groups[0].view.sheet == 3 and len(scripted.requests[0].units) == 1
        assert found.scores is not None and min(found.scores[i] for i in range(99, 108)) >= 0.5

    def test_where_no_part_is_better_frames_are_spread(self) -> None:
        scripted = model()

        found = VideoAtlas(scripted, Fixed(4)).select(gray_pool(144), QUESTION)

        assert len(scripted.requests) == 16 and found.indices == (18, 54, 90, 126)

    def test_a_long_span_is_sampled_to_fill_the_largest_sheet(self) -> None:
        scripted = model()
        long = FramePool(np.zeros((1200, 2, 2, 3), np.uint8), tuple(map(float, range(1200))), "long")

        VideoAtlas(scripted, Fixed(1)).select(long, QUESTION)

        assert len(scripted.requests[0].groups[0].frames) == 64 and scripted.requests[0].groups[0].view.sheet == 8


class TestAvua:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("How many times does the ring appear?", "count"),
            ("Which shape appears first?", "order"),
            ("Which shape never appears?", "absence"),
            ("Which background is on screen longest?", "whole"),
            ("What colour is the ring?", "local"),
            ("What is written on the notebook?", "local"),  # "not" must be a word
        ],
    )
    def test_types_of_questions(self, text: str, kind: str) -> None:
        assert question_type(text) == kind

    def test_search_goes_next_to_the_most_certain_frame(self) -> None:
        scripted = model(0, 1)

        found = Avua(scripted, Fixed(6)).select(gray_pool(100), QUESTION)
        spread_out = Avua(model(0, 1), Fixed(6)).select(gray_pool(100), Question("How many?", ["1", "2", "3"]))

        assert {0, 1} <= set(found.indices)
        assert 1 not in spread_out.indices

    def test_it_stops_when_all_that_was_seen_is_sure(self) -> None:
        scripted = MockModel(lambda request: {"A": 0.98, "B": 0.01, "C": 0.01})

        found = Avua(scripted).select(gray_pool(100), QUESTION)

        assert found.kept == 3 and [len(shown(request)) for request in scripted.requests] == [1, 1, 1, 3]

    def test_farthest_first(self) -> None:
        assert farthest(9, [], 3) == [4, 0, 8]
        assert farthest(9, [4], 2) == [0, 8]
        assert farthest(2, [0, 1], 2) == []


@pytest.mark.parametrize("indices", [(1,), (9,), (2, 2)])
def test_extra_frames_are_others_of_the_pool(indices: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="extra frames must be others of the pool, each once"):
        Selection("x", (1,), (0.0,), pool=9, extra_frames=(ExtraFrames(indices, 0.5),))
