from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gridprobe import MockModel
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Model, Request, Response, choose
from gridprobe.models.wrappers import CachedModel
from gridprobe.video import FrameSize
from scoring import shown
from videos_of_arrays import gray_pool, levels

POOL = gray_pool(9)


def request(*frames: int, **changes: Any) -> Request:
    return shown(POOL.take(frames), **changes)


class Counted(MockModel):
    """Sure of A in proportion to the first frame's level; remembers what came in each call."""

    def __init__(self) -> None:
        super().__init__(
            lambda asked: (
                {"A": 1.0 + levels(asked.frames)[0], "B": 1.0, "C": 0.5}
                if "C" in asked.labels
                else {"A": 1.0 + levels(asked.frames)[0], "B": 1.0}
            )
        )
        self.calls: list[int] = []

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.calls.append(len(requests))
        return super().run(requests)


def test_the_same_request_reaches_the_model_once() -> None:
    model = Counted()
    memo = CachedModel(model)

    first = choose(memo, [request(1, 2), request(3)])
    second = choose(memo, [request(3), request(1, 2)])

    assert second == first[::-1] == choose(model, [request(3), request(1, 2)])
    assert model.calls == [2, 2]
    assert memo.hits == 2


def test_misses_go_to_the_model_together_and_order_is_kept() -> None:
    model = Counted()
    memo = CachedModel(model)
    choose(memo, [request(2), request(4)])

    found = choose(memo, [request(n) for n in (5, 4, 1, 2, 5)])

    assert found == choose(Counted(), [request(n) for n in (5, 4, 1, 2, 5)])
    assert model.calls == [2, 2], "5 and 1 are new, and 5 is asked once"
    assert memo.hits == 3


@pytest.mark.parametrize(
    "other",
    [
        request(1, 3),
        request(2, 1),
        request(1),
        request(1, 2, prompt="Question: what?"),
        request(1, 2, labels=("A", "B", "C")),
        request(1, 2, pixels=FrameSize(max_side=32)),
        request(1, 2, packing="pairs"),
        request(1, 2, timestamps="none"),
    ],
)
def test_a_request_that_differs_in_anything_is_another_request(other: Request) -> None:
    model = Counted()
    memo = CachedModel(model)

    choose(memo, [request(1, 2)])
    choose(memo, [other])

    assert model.calls == [1, 1]
    assert memo.hits == 0


def test_frames_of_another_video_are_other_frames() -> None:
    model = Counted()
    memo = CachedModel(model)
    choose(memo, [request(0)])
    choose(memo, [shown(gray_pool(5).take([0]))])

    assert model.calls == [1, 1]


def test_the_least_recently_used_is_forgotten_first() -> None:
    model = Counted()
    memo = CachedModel(model, capacity=2)
    choose(memo, [request(1)])
    choose(memo, [request(2)])
    choose(memo, [request(1)])
    choose(memo, [request(3)])

    choose(memo, [request(1)])
    assert (len(memo), memo.hits) == (2, 2)
    choose(memo, [request(2)])
    assert model.calls == [1, 1, 1, 1]


def test_a_call_larger_than_the_memo_is_answered_whole() -> None:
    memo = CachedModel(Counted(), capacity=2)
    choose(memo, [request(1)])

    found = choose(memo, [request(n) for n in (4, 1, 3, 2)])

    assert found == choose(Counted(), [request(n) for n in (4, 1, 3, 2)])
    assert len(memo) == 2


def test_it_is_the_same_model_to_everybody_else() -> None:
    model = Counted()
    memo: Model = CachedModel(model)

    assert memo.identity == model.identity
    assert memo.cost(request(1)) == model.cost(request(1))
    assert choose(memo, [request(1)])[0].cost == choose(memo, [request(1)])[0].cost == model.cost(request(1))
    assert choose(memo, []) == []


def test_the_seconds_saved_are_those_the_model_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def slow(asked: Request) -> dict[str, float]:
        nonlocal now
        now += 20.0
        return {"A": 1.0, "B": 1.0}

    monkeypatch.setattr("gridprobe.models.wrappers.time", SimpleNamespace(perf_counter=lambda: now))
    memo = CachedModel(MockModel(slow))
    choose(memo, [request(1), request(2)])
    assert memo.saved == 0.0

    choose(memo, [request(2)])
    assert memo.saved == 20.0
    choose(memo, [request(1), request(2)])
    assert memo.saved == 60.0


def test_an_error_is_not_remembered() -> None:
    failing = True

    def moody(asked: Request) -> dict[str, float]:
        if failing:
            raise ModelError("not now")
        return {"A": 1.0, "B": 1.0}

    memo = CachedModel(MockModel(moody))
    with pytest.raises(ModelError, match="not now"):
        choose(memo, [request(1)])
    failing = False

    assert choose(memo, [request(1)])[0].confidence == 0.5
    assert memo.hits == 0


def test_a_memo_without_room_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        CachedModel(Counted(), capacity=0)
