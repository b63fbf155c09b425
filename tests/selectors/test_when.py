"""probes=when: a map from what a model answers when it is asked in which part of the video the answer is shown."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.importance import NoiseAware
from gridprobe.models import Choose, CostModel, Request, View
from gridprobe.models.base import Cost, Posterior, SamplingParams
from gridprobe.question import Question
from gridprobe.selectors import GridProbe, Selection
from gridprobe.selectors.base import FLAT, PROBE
from gridprobe.selectors.gridprobe import (
    LETTERS,
    NO_ATTENTION,
    NO_SPANS,
    equal_parts,
    frames_of_best,
    in_spans,
    spans_in,
    when,
)
from gridprobe.video.subtitles import Between, Segment
from videos_of_arrays import gray_pool

QUESTION = Question("Which door opens?", ["the left one", "the right\none"], answer="B", subtitles="Someone speaks.")
OVERVIEW = Posterior.from_probabilities({"A": 0.6, "B": 0.4}, Cost())


def answering(*tables: Iterable[float]) -> MockModel:
    """Answers one request after another with these weights."""
    remaining = iter(tables)

    def answer(request: Request) -> Mapping[str, float]:
        return dict(zip(request.labels, next(remaining), strict=True))

    return MockModel(answer)


def able(model: MockModel, **changes: Any) -> MockModel:
    model.capabilities = replace(model.capabilities, **changes)
    return model


def golden(count: int, coarse: npt.NDArray[np.float64], fine: npt.NDArray[np.float64] | None) -> Any:
    """p(range) · p(frame | range), by numpy alone."""
    ranges = [np.arange(count)[count * i // len(coarse) : count * (i + 1) // len(coarse)] for i in range(len(coarse))]
    owner = np.concatenate([np.full(len(frames), i) for i, frames in enumerate(ranges)])
    sizes = np.array([len(frames) for frames in ranges])
    scores = (coarse / coarse.sum() / sizes)[owner]
    if fine is None:
        return scores
    order = np.argsort(-coarse, kind="stable")
    chosen = order[: max(1, int(np.count_nonzero(np.cumsum(sizes[order]) <= LETTERS)))]
    frames = np.flatnonzero(np.isin(owner, chosen))
    edges = frames.size * np.arange(fine.size + 1) // fine.size
    letter = np.searchsorted(edges, np.arange(frames.size), side="right") - 1
    members = np.bincount(letter)
    for part in chosen:
        mine = owner[frames] == part
        inside = fine[letter] / members[letter] * mine
        scores[frames[mine]] = coarse[part] / coarse.sum() * (inside / inside.sum())[mine]
    return scores


@pytest.mark.parametrize("count", [144, 100, 256, 576, 36, 16, 12, 7])
def test_the_map_is_the_product_of_both_posteriors(count: int) -> None:
    random = np.random.default_rng(count)
    coarse = random.dirichlet(np.full(min(12, count), 0.4))
    chosen = frames_of_best(equal_parts(range(count), 12), coarse.tolist())
    fine = None if count <= 12 else random.dirichlet(np.full(len(chosen), 0.4))
    model = answering(coarse, *([] if fine is None else [fine]))

    selection = GridProbe(model, probes="when").select(gray_pool(count), QUESTION)

    assert selection.scores == pytest.approx(golden(count, coarse, fine).tolist(), abs=1e-12)
    assert selection.evidence is not None and selection.evidence.kind == "when"
    assert sum(selection.scores or ()) == pytest.approx(1.0)
    assert len(model.requests) == (1 if fine is None else 2) and selection.cost.calls == len(model.requests)


def test_a_range_whose_frames_get_no_probability_keeps_its_own() -> None:
    coarse, fine = [0.6, 0.4, *[0.0] * 10], [0.0] * 12 + [1.0] + [0.0] * 11
    selection = GridProbe(answering(coarse, fine), probes="when").select(gray_pool(144), QUESTION)

    assert selection.scores is not None
    assert selection.scores[:14] == pytest.approx([0.05] * 12 + [0.4, 0.0])


def test_one_frame_needs_no_question() -> None:
    model = answering()
    assert GridProbe(model, probes="when").select(gray_pool(1), QUESTION).indices == (0,) and not model.requests


def test_the_questions_name_the_first_one_its_options_and_the_times_of_frames() -> None:
    model = answering([1.0, *[0.5] * 11], [1.0] * 24)
    pool = replace(gray_pool(144), times=tuple(0.25 + i / 4 for i in range(144)))
    GridProbe(model, probes="when").select(pool, QUESTION)

    first, second = (request.prompt.splitlines() for request in model.requests)
    assert first[:5] == [
        "Question: Which door opens?",
        "Possible answers: the left one; the right one",
        "In which part of the video is this shown?",
        "A. 0.2 to 3.0 seconds",
        "B. 3.2 to 6.0 seconds",
    ]
    assert first[-2:] == ["L. 33.2 to 36.0 seconds", "Answer with the option's letter from the given choices directly."]
    assert second[3:5] == ["A. 0.2 seconds", "B. 0.5 seconds"] and len(second) == 3 + 24 + 1


def test_a_model_that_keeps_what_it_read_computes_only_the_text() -> None:
    spoken = replace(QUESTION, subtitles="", spoken=Between((Segment(5.0, 6.0, "Hello."),)))
    for overview, seen in ((None, [False, True]), (OVERVIEW, [True, True])):
        model = answering([1.0, *[0.5] * 11], [1.0] * 24)
        GridProbe(model, probes="when", overview=overview).select(gray_pool(36), spoken)
        assert [request.visible_frames is not None for request in model.requests] == seen
        assert all(request.between == spoken.between(gray_pool(36).times) for request in model.requests)


@pytest.mark.parametrize(("reuse", "frames"), [(True, 0), (False, 2 * 144)])
def test_a_plan_prices_the_text_alone_only_where_the_frames_are_kept(reuse: bool, frames: int) -> None:
    asked: list[Request] = []

    def price(request: Request) -> Cost:
        asked.append(request)
        return Cost(1, len(request.prompt) + 1000 * (len(request.frames) if request.visible_frames is None else 0))

    capabilities = replace(answering().capabilities, kv_reuse=reuse, attention_map=False)
    selector = GridProbe(CostModel("m", capabilities, price), probes="when", overview=OVERVIEW)
    cost = selector.select(gray_pool(144), QUESTION).cost

    assert cost.calls == 2 and cost.tokens == 1000 * frames + sum(len(request.prompt) for request in asked)


# In place of attention.


def found_by(model: MockModel, **changes: Any) -> Selection:
    return GridProbe(model, probes="attention", **changes).select(gray_pool(16), QUESTION)


def hot(request: Request) -> Mapping[str, float]:
    return {label: 5.0 if label == request.labels[-1] else 1.0 for label in request.labels}


def test_a_model_without_attention_gets_fresh_probes_unless_when_is_asked_for() -> None:
    served = able(MockModel(hot), kv_reuse=False, attention_map=False)
    fresh, asked = found_by(served), GridProbe(served, probes="when").select(gray_pool(16), QUESTION)

    assert asked.evidence is not None and asked.evidence.kind == "when" and NO_ATTENTION not in asked.notes
    assert max(range(16), key=lambda i: (asked.scores or ())[i]) == 15
    assert fresh.evidence is not None and fresh.evidence.kind == "probes" and fresh.notes[0] == NO_ATTENTION


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prompt_order": "text_first"}, "probes=when needs prompt_order=frames_first"),
        ({"collage": True}, "use probes=fresh, not when"),
        ({"small_view": View(PROBE, timestamps="none")}, "timestamps=none hides them: use probes=fresh"),
    ],
)
def test_what_hides_times_or_frames_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        GridProbe(MockModel(hot), probes="when", **changes)


def test_equal_probabilities_say_so_whatever_the_second_answer_is() -> None:
    flat = GridProbe(answering([1.0] * 12, [9.0, *[0.01] * 23]), probes="when").select(gray_pool(144), QUESTION)
    sharp = GridProbe(answering([9.0, *[0.01] * 11], [9.0, *[0.01] * 23]), probes="when")

    assert FLAT in flat.notes and FLAT not in sharp.select(gray_pool(144), QUESTION).notes


# Spans.


def written(text: str) -> Selection:
    model = able(MockModel(hot, text=lambda request: {text: 1.0}), logprobs=False)
    selection = GridProbe(model, NoiseAware(), probes="when").select(gray_pool(16), QUESTION)
    (request,) = model.requests
    assert isinstance(request.task, SamplingParams) and request.task.temperature == 0
    assert re.search(r"Which door opens\?\nPossible answers: .*\nReturn the time spans .* as JSON", request.prompt)
    assert selection.cost.calls == 1
    return selection


def test_frames_of_the_spans_are_kept() -> None:
    selection = written("Sure: [[31.0, 49.5], [90, 90]]")

    assert [i for i, score in enumerate(selection.scores or ()) if score] == [3, 4, 5, 9]
    assert selection.notes == () and set(selection.indices) <= {3, 4, 5, 9}


def test_no_span_at_all_is_an_answer_and_no_list_is_none() -> None:
    assert written("[]").notes == (FLAT,) and set(written("never").notes) == {FLAT, NO_SPANS}


NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=True, allow_infinity=True))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)
PAIRS = st.lists(st.tuples(st.integers(-20, 200), st.floats(-20, 200)).map(list), max_size=5)
PLAIN = st.text(alphabet=st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=20)


@given(PLAIN, PAIRS, PLAIN)
def test_a_list_of_spans_is_found_in_any_text(before: str, pairs: list[list[float]], after: str) -> None:
    assert spans_in(before + json.dumps(pairs) + after) == [tuple(pair) for pair in pairs]


@given(st.one_of(st.text(), JSON.map(json.dumps), st.text(alphabet='[]0,1.e-" {}', max_size=40)))
def test_any_reply_becomes_a_map(reply: str) -> None:
    listed = spans_in(reply)
    scores, outside = in_spans(listed or (), (0.0, 10.0, 25.0))

    assert len(scores) == 3 and set(scores) <= {0.0, 1.0} and 0 <= outside <= len(listed or ())
    assert any(scores) == (outside < len(listed or ()))


@pytest.mark.parametrize(
    "reply", ["[" * 100_000, "[[" + "9" * 5000 + ", 1]]", '[["1", "2"]]', "[[1, 2, 3]]", "[[true, 2]]"]
)
def test_a_list_of_something_else_is_none(reply: str) -> None:
    assert spans_in(reply) is None


@given(PAIRS)
def test_a_frame_in_a_span_is_shown_and_spans_outside_or_reversed_count_as_such(pairs: list[list[float]]) -> None:
    times = (5.0, 15.0, 40.0, 100.0)
    spans = [(start, end) for start, end in pairs]
    scores, outside = in_spans(spans, times)

    for time, score in zip(times, scores, strict=True):
        if any(start <= time <= end for start, end in spans):
            assert score == 1.0
    assert outside == sum(start > end or end < 0.0 or start >= 130.0 for start, end in spans)


def test_more_letters_than_24_are_never_asked() -> None:
    for count in range(2, 200):
        ranges = equal_parts(range(count), 12)
        chosen = frames_of_best(ranges, [1.0] * len(ranges))
        assert 2 <= len(chosen) <= LETTERS and [i for part in ranges for i in part] == list(range(count))
        Choose(when(QUESTION, chosen, tuple(map(float, range(count)))).labels)
