"""MDP3 against a slow reference that follows its definition word by word."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gridprobe_selectors.mdp3 import choose_frames, kernel

Rows = npt.NDArray[np.float64]
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)


@cache
def similarity(x: tuple[float, ...], y: tuple[float, ...]) -> float:
    return sum(math.exp(-(math.dist(x, y) ** 2) / (2 * width)) for width in WIDTHS)


def log_determinant(matrix: list[list[float]]) -> float:
    """By elimination, with pivots of at least 1e-6."""
    rows, total = [list(row) for row in matrix], 0.0
    for place in range(len(rows)):
        pivot = max(rows[place][place], 1e-6)
        total += math.log(pivot)
        for below in range(place + 1, len(rows)):
            factor = rows[below][place] / pivot
            rows[below] = [value - factor * above for value, above in zip(rows[below], rows[place], strict=True)]
    return total


def value(chosen: list[int], frames: Rows, text: Rows) -> float:
    """F(S), from scratch."""
    rows = [tuple(frames[i]) for i in chosen]
    relevance = sum(math.log(similarity(row, tuple(text))) for row in rows)
    return 2 / 0.2 * relevance + log_determinant([[similarity(one, other) for other in rows] for one in rows])


def reference(frames: Rows, text: Rows, kept: int) -> tuple[int, ...]:
    size = 128 if kept > 32 else 32
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for start in range(0, len(frames), size):
        segment = range(start, min(start + size, len(frames)))
        after: dict[int, tuple[float, list[int]]] = {}
        for used in sorted(best):
            score, trace = best[used]
            condition, added, gained = trace[-1:], list[int](), 0.0
            while True:
                total = used + len(added)
                if total not in after or score + gained > after[total][0] + 1e-7:
                    after[total] = (score + gained, trace + sorted(added))
                rest = [i for i in segment if i not in added]
                if total == kept or not rest:
                    break
                values = [value([*condition, *added, i], frames, text) for i in rest]
                first = next(place for place, each in enumerate(values) if each >= max(values) - 1e-7)
                added, gained = [*added, rest[first]], values[first]
        best = after
    return tuple(best[kept][1])


def unit(rows: Rows) -> Rows:
    lengths: Rows = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / lengths


def drawn(seed: int, count: int, *, width: int = 6, like: float = 1.0) -> tuple[Rows, Rows]:
    """Frames and a text; with `like` near 0 the frames are much alike."""
    rng = np.random.default_rng(seed)
    return unit(rng.normal(size=width) + like * rng.normal(size=(count, width))), unit(rng.normal(size=width))


@pytest.mark.parametrize("kept", [1, 2, 5, 8])
@pytest.mark.parametrize("count", [8, 31, 32, 33, 64, 70])
def test_it_equals_the_reference(count: int, kept: int) -> None:
    frames, text = drawn(count, count)

    assert choose_frames(frames, text, kept) == reference(frames, text, kept)


def test_more_than_32_frames_take_large_segments() -> None:
    frames, text = drawn(1, 133, width=24)

    assert choose_frames(frames, text, 33) == reference(frames, text, 33)


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 40),
    kept=st.integers(1, 6),
    width=st.integers(1, 8),
    like=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    copies=st.integers(1, 3),
)
@example(seed=0, count=40, kept=6, width=3, like=0.0, copies=1)
def test_it_equals_the_reference_also_for_equal_and_similar_frames(
    seed: int, count: int, kept: int, width: int, like: float, copies: int
) -> None:
    frames, text = drawn(seed, count, width=width, like=like)
    frames = np.repeat(frames, copies, axis=0)[:count]
    kept = min(kept, len(frames))

    found = choose_frames(frames, text, kept)

    assert found == reference(frames, text, kept)
    assert len(found) == kept and list(found) == sorted(set(found))


def test_the_kernel_is_a_sum_of_five_gaussians() -> None:
    frames, text = drawn(3, 4)

    assert kernel(frames @ text) == pytest.approx([similarity(tuple(frame), tuple(text)) for frame in frames])
    assert kernel(np.array([1.0, 1.0 + 1e-7])) == pytest.approx([5.0, 5.0])


def test_one_frame_is_the_most_relevant_of_its_segment() -> None:
    frames, text = drawn(5, 30)

    assert choose_frames(frames, text, 1) == (int(np.argmax(frames @ text)),)


def test_equal_frames_are_avoided_if_there_are_others() -> None:
    text = np.array([1.0, 0.0, 0.0])
    twin, other = unit(np.array([0.6, 0.8, 0.0])), unit(np.array([0.55, 0.0, 0.8]))

    assert choose_frames(np.stack([twin, twin, twin, other]), text, 2) == (0, 3)
