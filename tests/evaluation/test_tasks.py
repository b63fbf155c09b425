"""Which questions are asked: even, the same every time, and nothing between two shards."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import DataError, UsageError
from gridprobe.question import Question
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.tasks import Shard, choose, tasks_of


def items(*sizes: int) -> list[Item]:
    """As many questions as given of each kind, five to a video, kinds interleaved."""
    kinds = [kind for place in range(max(sizes)) for kind, size in enumerate(sizes) if place < size]
    return [
        Item(f"q{n}", Question("?", ("a", "b")), Path(f"v{n // 5}"), f"v{n // 5}", {"kind": f"k{kind}", "other": "x"})
        for n, kind in enumerate(kinds)
    ]


def kinds(chosen: tuple[Item, ...]) -> Counter[str]:
    return Counter(item.bins["kind"] for item in chosen)


def test_a_limit_draws_evenly_and_fills_up_from_the_large_kinds() -> None:
    chosen = choose(items(50, 2, 20), ids=None, limit=22, seed=0)

    assert kinds(chosen) == {"k0": 10, "k1": 2, "k2": 10}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 160), st.integers(0, 3))
def test_a_limit_is_kept_even_deterministic_in_order_and_nested(sizes: list[int], limit: int, seed: int) -> None:
    everything = items(*sizes)
    chosen, again = (choose(everything, ids=None, limit=limit, seed=seed) for _ in range(2))
    more = choose(everything, ids=None, limit=limit + 3, seed=seed)

    assert chosen == again and len(chosen) == min(limit, len(everything))
    assert [item for item in everything if item in chosen] == list(chosen)
    assert {item.id for item in chosen} <= {item.id for item in more}
    counts = kinds(chosen)
    for kind, size in enumerate(sizes):  # a kind has as many as any other, give or take one, unless it has no more
        assert counts[f"k{kind}"] in (size, *range(max(counts.values()) - 1, max(counts.values()) + 1))


def test_another_seed_draws_others() -> None:
    drawn = [choose(items(50, 50), ids=None, limit=10, seed=seed) for seed in range(2)]

    assert drawn[0] != drawn[1]


def test_ids_are_asked_in_the_order_of_the_benchmark_and_unknown_ones_refused() -> None:
    assert [item.id for item in choose(items(9), ids=["q4", "q1"], limit=None, seed=0)] == ["q1", "q4"]
    with pytest.raises(UsageError, match=r"no question 'nope' \(1 unknown"):
        choose(items(9), ids=["q1", "nope"], limit=None, seed=0)
    with pytest.raises(UsageError, match="no question is left"):
        choose(items(9), ids=[], limit=None, seed=0)
    with pytest.raises(UsageError, match="--limit must be at least 1"):
        choose(items(9), ids=None, limit=0, seed=0)


def test_two_questions_with_one_id_are_refused() -> None:
    with pytest.raises(DataError, match="same id"):
        choose(items(3) + items(1), ids=None, limit=None, seed=0)


@given(st.integers(1, 60), st.integers(1, 9))
def test_shards_are_whole_videos_and_each_question_is_in_one(size: int, count: int) -> None:
    everything = items(size)
    parts = [tasks_of(everything, Shard(number, count)) for number in range(1, count + 1)]

    asked = Counter(item.id for part in parts for task in part for item in task.items)
    assert asked == {item.id: 1 for item in everything}
    for part in parts:
        assert all(len({item.group for item in task.items}) == 1 for task in part)
        groups = [task.items[0].group for task in part]
        assert len(groups) == len(set(groups)), "a video's questions stay together"


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1", "1/0", "-1/4", "1/4/4", "²/4"])
def test_a_shard_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a shard is i/n"):
        Shard.parse(text)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 120), st.integers(0, 3))
def test_a_limit_draws_whole_groups_where_groups_are_scored(sizes: list[int], limit: int, seed: int) -> None:
    everything = [
        Item(f"{kind}{n}-{place}", Question("?", ("a", "b")), Path("v"), f"{kind}{n}", {"type": f"k{kind}"})
        for kind, size in enumerate(sizes)
        for n in range(size)
        for place in range(4)
    ]

    chosen, more = (
        choose(everything, ids=None, limit=each, seed=seed, whole_groups=True) for each in (limit, limit + 4)
    )

    groups = Counter(item.group for item in chosen)
    assert set(groups.values()) == {4}
    assert len(chosen) == min(len(everything), -(-limit // 4) * 4)
    assert {item.id for item in chosen} <= {item.id for item in more}
