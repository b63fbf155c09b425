"""Requests that are too long for a model: windows that fit, one posterior, and a map of all frames."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.models import FrameGroup, Posterior, Request, Response, View, choose, generate
from gridprobe.models.base import Cost, SamplingParams
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.wrappers import ChunkedModel, chunk_of, chunked, combined, nearby, with_context
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import like, noise_pool, shown
from videos_of_arrays import gray_pool, levels

QUESTION = Question("Where is it?", ["here", "there", "nowhere"])
FLAT = {"A": 1.0, "B": 1.0, "C": 1.0}
SURE = {"A": 0.01, "B": 0.98, "C": 0.01}
SMALL = View(FrameSize(max_side=64))


class Limited(MockModel):
    """Sure of B where it sees a hot frame; refuses requests beyond its context."""

    def __init__(self, hot: Sequence[int] = (), *, tokens: int | None = None, frames: int | None = None) -> None:
        super().__init__(self._believe, text=self._words)
        self.capabilities = replace(self.capabilities, context_tokens=tokens, context_frames=frames)
        self._wanted = set(hot)
        self.calls: list[int] = []

    def _hot(self, request: Request) -> bool:
        return bool(self._wanted & {level for group in request.groups for level in levels(group.frames)})

    def _words(self, request: Request) -> dict[str, float]:
        return {"there": 0.9, "here": 0.1} if self._hot(request) else {"here": 0.4, "there": 0.3, "nowhere": 0.3}

    def _believe(self, request: Request) -> dict[str, float]:
        return SURE if self._hot(request) else FLAT

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.calls.append(len(requests))
        for request in requests:
            whole = replace(request.prompt_only, visible_frames=None, attention=False)
            tokens, frames = self.capabilities.context_tokens, self.capabilities.context_frames
            assert tokens is None or self.cost(whole).tokens <= tokens
            assert frames is None or sum(len(group.frames) for group in request.groups) <= frames
        return super().run(requests)


def request(count: int, **changes: Any) -> Request:
    return replace(Request.about(QUESTION, [FrameGroup(gray_pool(count), SMALL)]), **changes)


def seen(model: MockModel) -> list[list[int]]:
    """The frames of each request that shows some."""
    return [levels(each.frames) for each in model.requests if each.groups]


def test_what_fits_is_asked_as_it_is() -> None:
    model, same = Limited([3], frames=16, tokens=100_000), request(16)
    posterior = choose(ChunkedModel(model), [same])[0]
    assert model.requests == [same]
    assert posterior == choose(Limited([3]), [same])[0]
    assert posterior.windows == 1 and not posterior.notes


def test_windows_are_few_equal_and_cover_every_frame_in_one_call() -> None:
    model = Limited([99], frames=30)
    choose(ChunkedModel(model), [request(100)])
    assert model.calls == [5], "four windows, and the question without frames"
    assert [len(each) for each in seen(model)] == [25] * 4
    assert [level for each in seen(model) for level in each] == list(range(100))


def test_a_needle_in_the_last_window_is_found_and_the_map_covers_all_frames() -> None:
    posterior = choose(ChunkedModel(Limited([97], frames=30)), [request(100, attention=True)])[0]
    assert posterior.choice == "B" and posterior.confidence > 0.9
    assert posterior.windows == 4 and posterior.notes == ("the frames were shown in 4 windows of at most 25",)
    assert posterior.attention is not None and len(posterior.attention) == 100
    assert max(range(100), key=posterior.attention.__getitem__) == 97
    assert all(0.0 <= value <= 1.0 for value in posterior.attention)


@pytest.mark.parametrize("tokens", [400, 700, 1100])
def test_no_request_is_longer_than_the_context(tokens: int) -> None:
    """The scripted model asserts it."""
    model = Limited([50], tokens=tokens)
    chunked = ChunkedModel(model)
    found = choose(
        chunked, [request(120), request(3), request(60, attention=True), request(120, visible_frames=(5, 70))]
    )
    assert found[1].windows == 1 and found[0].windows > 1
    assert chunked.cost(request(120)) == found[0].cost
    assert len(model.calls) == 1


def test_a_question_to_some_frames_goes_to_their_windows_only() -> None:
    model = Limited([60], frames=30)
    one, two, none = (
        choose(ChunkedModel(model), [request(100, visible_frames=visible_frames)])[0]
        for visible_frames in ((60,), (10, 60), ())
    )
    assert [each.visible_frames for each in model.requests[:1]] == [(10,)], "frame 60 is the tenth of the third window"
    assert (one.choice, one.notes) == ("B", ()) and two.choice == "B"
    assert none.choice == "A"
    assert one.windows == two.windows == 4


def test_windows_count_as_far_as_they_differ_from_the_answer_without_frames() -> None:
    text = Posterior.from_probabilities({"A": 0.6, "B": 0.2, "C": 0.2}, Cost())
    telling = Posterior.from_probabilities({"A": 0.01, "B": 0.98, "C": 0.01}, Cost())
    logprobs, gains = combined([text, telling, text], text)
    assert gains == pytest.approx([0.0, 1 - math.exp(-0.98 * math.log(4.9) + 0.01 * math.log(1200)), 0.0], abs=1e-9)
    assert logprobs == pytest.approx(telling.logprobs)
    assert combined([text, text], text)[0] == pytest.approx(text.logprobs), "nothing is seen anywhere"
    other = Posterior.from_probabilities({"A": 0.98, "B": 0.01, "C": 0.01}, Cost())
    found = [math.exp(value) for value in combined([telling, other], text)[0]]
    assert max(found) < 0.9 and found[1] > found[0], "windows that contradict each other leave doubt"


def test_what_windows_cost_is_added_up() -> None:
    model = Limited(frames=30)
    posterior = choose(ChunkedModel(model), [request(100)])[0]
    assert posterior.cost == sum(map(model.cost, model.requests), Cost())
    assert posterior.cost.calls == 5


def test_texts_between_frames_stay_where_they_are() -> None:
    texts = tuple(f"t{n}" for n in range(11))
    whole = request(10, between=texts)
    first, last = chunk_of(whole, range(4)), chunk_of(whole, range(4, 10))
    assert first.between == ("t0", "t1", "t2", "t3", "")
    assert last.between == ("t4", "t5", "t6", "t7", "t8", "t9", "t10")


def test_fused_pairs_and_sheets_are_not_cut_apart() -> None:
    for view, step in ((View(FrameSize(max_side=64), "pairs"), 2), (View(FrameSize(max_side=64), sheet=3), 9)):
        model = Limited(frames=31)
        choose(ChunkedModel(model), [Request.about(QUESTION, [FrameGroup(gray_pool(100), view)])])
        assert all(each[0] % step == 0 for each in seen(model))


def focused(kept: Sequence[int], count: int = 100, **changes: Any) -> Request:
    pool, rest = gray_pool(count), [n for n in range(count) if n not in kept]
    groups = [FrameGroup(pool.take(kept), View(FrameSize())), FrameGroup(pool.take(rest), SMALL)]
    return replace(Request.about(QUESTION, groups), **changes)


def test_a_focused_pass_keeps_its_frames_and_as_much_context_as_fits() -> None:
    model = Limited([42], frames=30)
    posterior = choose(ChunkedModel(model), [focused([40, 42])])[0]
    (asked,) = model.requests
    assert levels(asked.groups[0].frames) == [40, 42] and len(asked.groups[1].frames) == 28
    context = set(levels(asked.groups[1].frames))
    assert {39, 41, 43, 38, 44} < context and min(context) < 10 and max(context) > 90
    assert posterior.notes == (
        "only 28 of 98 small frames were shown next to the 2 kept ones, because the model cannot read more at once",
    )
    assert posterior.choice == "B" and posterior.windows == 1


def test_context_is_left_out_where_the_kept_frames_alone_do_not_fit() -> None:
    model = Limited([42], frames=30)
    posterior = choose(ChunkedModel(model), [focused(range(20, 60))])[0]
    assert sorted(level for each in seen(model) for level in each) == list(range(20, 60))
    assert posterior.choice == "B" and posterior.windows == 2 and len(posterior.notes) == 2


def test_texts_before_context_that_is_left_out_stay() -> None:
    texts = tuple(f"t{n}" for n in range(11))
    trimmed = with_context(focused([5], 10, between=texts), 2)
    assert len(trimmed.between) == 4
    assert "\n".join(trimmed.between).split("\n") == list(texts)


def test_half_of_the_context_is_near_and_half_is_everywhere() -> None:
    times = [float(n) for n in range(100)]
    chosen = nearby(times, [50.2], 20)
    assert set(range(46, 55)) <= set(chosen) and len(chosen) == len(set(chosen)) == 20
    assert min(chosen) < 10 and max(chosen) > 90
    assert nearby(times, [50.2], 200) == tuple(range(100))
    assert nearby(times, [50.2], 0) == ()


def test_texts_come_from_the_likeliest_window() -> None:
    model = ChunkedModel(Limited([97], frames=30))
    ((text,),) = generate(model, [request(100)], SamplingParams(limit=8))
    assert text.text == "there" and "4 windows" in text.notes[0]
    assert text.cost.calls == 4


def test_the_rest_is_passed_through_and_nothing_is_wrapped_without_need() -> None:
    model = Limited(frames=30)
    wrapped = chunked(model)
    assert isinstance(wrapped, ChunkedModel) and chunked(wrapped) is wrapped
    assert (
        wrapped.capabilities.kv_reuse
        and wrapped.identity == model.identity
        and wrapped.capabilities.frame_multiple == model.capabilities.frame_multiple
    )
    plain = MockModel(lambda asked: FLAT)
    assert chunked(plain) is plain and isinstance(chunked(plain, 5), ChunkedModel)


@pytest.mark.parametrize("window", [0, -3, True, 1.5, "many"])
def test_a_senseless_window_is_refused(window: Any) -> None:
    with pytest.raises(UsageError, match="chunk must be a whole number of at least 1, got"):
        Options(chunk=window)


def test_the_engine_reads_windows_as_requests_of_their_own(tiny_model: Qwen3VL) -> None:
    engine = like(tiny_model, plain=False)
    whole = shown(noise_pool(9), QUESTION.prompt, QUESTION.labels, attention=True, keep_kv=True)
    found = choose(ChunkedModel(engine, frames=4), [whole])[0]
    parts = [chunk_of(whole, range(start, start + 3)) for start in (0, 3, 6)]
    *windows, text = choose(like(tiny_model, plain=False), [*parts, Request.about(QUESTION)])
    assert found.logprobs == pytest.approx(combined(windows, text)[0], abs=1e-4)
    assert found.windows == 3 and found.attention is not None and len(found.attention) == 9


def test_the_engine_never_gets_more_than_its_context(tiny_model: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = like(tiny_model, plain=False)
    whole = shown(noise_pool(9), QUESTION.prompt, QUESTION.labels)
    monkeypatch.setattr(engine, "_context", engine.cost(whole).tokens - 1)
    assert choose(ChunkedModel(engine), [whole])[0].windows == 2


class TestSession:
    def ask(self, model: MockModel, **changes: Any) -> gp.Answer:
        return gp.Session(gray_pool(100), model=model, k=10, **changes).ask(QUESTION)

    def test_an_overview_in_windows_is_never_the_last_word(self) -> None:
        model = Limited([97], frames=30)
        answer = self.ask(model)
        assert answer.reached.by == "focus" and answer.reached.windows == 4 and not answer.reached.sure
        assert answer.choice == "B" and 97 in answer.selection.indices
        assert answer.to_dict()["reached"]["windows"] == 4
        assert "in the overview the frames were shown in 4 windows of at most 25" in answer.warnings

    def test_unless_nothing_else_is_wanted(self) -> None:
        assert self.ask(Limited([97], frames=30), effort="quick").reached.by == "overview"

    def test_the_map_covers_all_frames(self) -> None:
        for probes in ("attention", "fresh"):
            answer = self.ask(Limited([97], frames=30), probes=probes)
            assert answer.selection.scores is not None and len(answer.selection.scores) == 100
            assert 97 in answer.selection.indices

    def test_the_setting_makes_windows_smaller(self) -> None:
        model = Limited([97])
        answer = self.ask(model, chunk=20)
        assert answer.reached.windows == 5 and answer.settings["chunk"] == 20
        assert all(len(each.groups[0].frames) <= 20 for each in model.requests if each.groups)
        assert "window" not in self.ask(Limited([97])).settings

    def test_one_window_is_the_single_pass(self) -> None:
        wide, plain = self.ask(Limited([97], frames=100, tokens=10**6)), self.ask(Limited([97]))
        assert (wide.posterior, wide.selection.scores) == (plain.posterior, plain.selection.scores)
        assert wide.cost == plain.cost and wide.reached.windows == 1

    def test_many_questions_in_windows(self) -> None:
        model = Limited([97], frames=30)
        session = gp.Session(gray_pool(100), model=model, k=10)
        answers = session.ask_all([QUESTION] * 4)
        assert [answer.choice for answer in answers] == ["B"] * 4
        assert model.calls == [20, 20, 4]

    @pytest.mark.parametrize(
        "changes", [{"probes": "fresh"}, {"probes": "attention"}, {"preset": "paper", "context": "none"}]
    )
    def test_a_grid_of_32_works_in_every_way(self, changes: dict[str, Any]) -> None:
        """The paper's largest; the model reads 100 frames at once."""
        needle = 10.0 * 1000
        pixels = np.random.default_rng(0).integers(0, 256, (1024, 32, 32, 3), dtype=np.uint8)
        pool = FramePool(pixels, tuple(10.0 * n for n in range(1024)), source="grid of 32")

        def believe(request: Request) -> dict[str, float]:
            shown = {time for group in request.groups for time in group.frames.times}
            assert len(shown) <= 100
            return SURE if needle in shown else FLAT

        model = MockModel(believe)
        answer = gp.Session(pool, model=model, k=32, chunk=100, **changes).ask(QUESTION)
        assert answer.choice == "B" and needle in answer.selection.timestamps
        assert answer.selection.scores is not None and len(answer.selection.scores) == 1024
        assert answer.reached.windows == (1 if "preset" in changes else 11)
