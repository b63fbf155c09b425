"""Segments from similarities and spoken lines."""

import numpy as np
import pytest

from gridprobe_find.propose import Curve, Proposal, crossing, cut_level, fuse, seen_segments


def curve(scores: list[float], *, shots: list[int] | None = None, step: float = 2.0) -> Curve:
    times = np.array([(place + 0.5) * step for place in range(len(scores))], np.float64)
    return Curve(times, np.array(shots or [0] * len(scores), np.int32), np.array(scores, np.float64))


def spans(each: Curve, cut: float = 0.5) -> list[tuple[float, float]]:
    return [(segment.start, segment.end) for segment in seen_segments("v", each, cut)]


@pytest.mark.parametrize(
    ("scores", "shots", "expected"),
    [
        ([0, 0, 1, 1, 0, 0], None, [(4.0, 8.0)]),
        ([1, 0, 0, 0, 0, 1], None, [(0.0, 2.0), (10.0, 12.0)]),
        ([0, 1, 0, 1, 0, 0], None, [(2.0, 8.0)]),
        ([0, 1, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1], [(2.0, 4.0), (6.0, 8.0)]),
        ([0, 0, 0, 0], None, []),
    ],
    ids=["one", "both ends", "a gap within a shot", "a gap over a cut", "none"],
)
def test_runs_of_similar_frames_are_segments(
    scores: list[float], shots: list[int] | None, expected: list[tuple[float, float]]
) -> None:
    assert spans(curve(scores, shots=shots)) == expected


def test_the_cut_lies_between_background_and_best_frame() -> None:
    rare = curve([0.1, 0.12] * 500 + [0.9, 0.9])

    assert cut_level({"v": rare}) == pytest.approx(0.5, abs=0.01)
    assert cut_level({"v": curve([0.0] + [0.8, 0.81] * 30), "w": curve([0.0] * 10)}) == pytest.approx(0.4, abs=0.01)


def test_where_all_frames_are_alike_all_of_them_are_proposed() -> None:
    same = curve([0.300, 0.301, 0.302, 0.300, 0.301])

    assert spans(same, cut_level({"v": same})) == [(0.0, 10.0)]
    assert cut_level({}) == 0.0


def test_lines_join_segments_they_touch_and_stand_alone_elsewhere() -> None:
    seen = [Proposal("v", 10, 20, 0.9), Proposal("v", 50, 60, 0.8)]
    said = [Proposal("v", 52, 53, 0, "red"), Proposal("w", 52, 53, 0, "a red one")]

    both = fuse(seen, said)

    assert [(each.key, each.start, each.text) for each in both] == [
        ("v", 50, "red"),
        ("v", 10, ""),
        ("w", 52, "a red one"),
    ]
    assert fuse([], []) == []


def test_a_border_is_where_the_similarity_crosses() -> None:
    times, scores = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), np.array([0, 0, 0.9, 1, 1, 0.0])

    assert crossing(times, scores, 0.5, rising=True) == 0.75
    assert crossing(times, scores, 0.5, rising=False) == 2.25
    assert crossing(times, np.ones(6), 0.5, rising=True) is None
