"""How many frames to keep and which."""

import math
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe import MockModel
from gridprobe.ask import ask
from gridprobe.errors import UsageError
from gridprobe.importance import (
    EQUAL,
    GAMMA0,
    NULL_MAXIMUM,
    Fixed,
    Grid,
    ImportanceMap,
    NoiseAware,
    ShapeRule,
    Ties,
    null_maximum,
    spread,
    top,
)
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT
from videos_of_arrays import gray_pool

AUTHORS_SCALE = 3.0
"""The constant in the authors' code where the paper has γ₀·K; they are the same only at K = 12."""

both_ties = pytest.mark.parametrize("ties", get_args(Ties))


def random_map(k: int, rng: np.random.Generator, low: float = 0.2, high: float = 0.9) -> ImportanceMap:
    return ImportanceMap(Grid(k), tuple(rng.uniform(low, high, k)), tuple(rng.uniform(low, high, k)))


def authors_kept(importance: ImportanceMap) -> int:
    return math.ceil(importance.grid.cells / (1 + AUTHORS_SCALE * importance.shape.sigma))


@st.composite
def rankings(draw: st.DrawFn) -> tuple[npt.NDArray[np.float64], int]:
    """Scores with many ties and near-ties, and how many of them to keep."""
    levels = st.sampled_from([0.0, 0.1, 0.5, 0.5 * (1 + 3e-7), 0.5 * (1 - 3e-7), 0.9])
    values = draw(st.lists(levels | st.floats(0, 1), min_size=1, max_size=80))
    return np.array(values), draw(st.integers(1, len(values)))


# The shape rule. Its golden cases are in test_importance.py.


def test_gamma0_is_that_of_the_paper() -> None:
    assert GAMMA0 == ShapeRule().gamma0 == 0.25


def test_two_by_two_with_one_hot_cell_keeps_three_of_four() -> None:
    # sigma = 2/√3 (worked out in test_importance.py); 4 / (1 + 0.25·2·1.1547) = 4 / 1.5774 = 2.54 -> 3
    assert ShapeRule().kept(ImportanceMap(Grid(2), (1.0, 0.0), (1.0, 0.0))) == 3


def test_two_by_two_with_one_hot_cell_and_gamma0_of_six_keeps_one() -> None:
    # 4 / (1 + 6·2·1.1547) = 4 / 14.86 = 0.27 -> 1
    assert ShapeRule(gamma0=6.0).kept(ImportanceMap(Grid(2), (1.0, 0.0), (1.0, 0.0))) == 1


def test_quarter_of_the_rows_on_a_plateau_at_k_12_keeps_33() -> None:
    # p = 1/4: skew = (1/2)/√(3/16) = 2/√3 and kurtosis is negative; 144 / (1 + 0.25·12·1.1547) = 144 / 4.4641 = 32.3
    importance = ImportanceMap(Grid(12), (0.9,) * 3 + (0.3,) * 9, (0.5,) * 12)

    assert ShapeRule().kept(importance) == 33


# Q10 of tests/reliability.md
@pytest.mark.parametrize("k", [1, 2, 8, 12, 16, 64])
def test_flat_map_keeps_the_whole_pool(k: int) -> None:
    assert ShapeRule().kept(ImportanceMap(Grid(k), (0.7,) * k, (0.3,) * k)) == k * k


# Q10 of tests/reliability.md
@pytest.mark.parametrize("k", [8, 12, 16])
def test_one_hot_map_keeps_one_frame(k: int) -> None:
    one = (1.0, *[0.0] * (k - 1))

    assert ShapeRule().kept(ImportanceMap(Grid(k), one, one)) == 1


def test_partial_grid_counts_its_cells_and_takes_k_from_its_width() -> None:
    # Only frame 13 (row 3, column 1) is above 0: one hot cell of n = 14, so p(1-p) = 13/196.
    # skew = (12/14)/(√13/14) = 12/√13 = 3.328; excess kurtosis = 196/13 - 6 = 9.077; sigma = 7.867
    # 14 / (1 + 0.25·4·7.867) = 1.58 -> 2
    importance = ImportanceMap(Grid(4, cells=14), (0.0, 0.0, 0.0, 0.8), (0.0, 1.0, 0.0, 0.0))

    assert importance.shape.sigma == pytest.approx(12 / math.sqrt(13) + (196 / 13 - 6) / 2)
    assert ShapeRule().kept(importance) == 2


def test_gamma0_of_zero_keeps_everything() -> None:
    importance = random_map(12, np.random.default_rng(0))

    assert ShapeRule(gamma0=0.0).kept(importance) == 144


def test_larger_gamma0_never_keeps_more() -> None:
    importance = random_map(12, np.random.default_rng(1))

    kept = [ShapeRule(gamma0=g).kept(importance) for g in (0.0, 0.1, 0.25, 1.0, 10.0, 1e300)]

    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 144 and kept[-1] == 1


@pytest.mark.parametrize("gamma0", [-0.1, math.nan, math.inf])
def test_gamma0_must_be_a_number_of_at_least_zero(gamma0: float) -> None:
    with pytest.raises(UsageError, match=rf"gamma0 must be a number of at least 0, got {gamma0}"):
        ShapeRule(gamma0=gamma0)


def test_the_authors_constant_is_the_paper_at_k_12() -> None:
    rng = np.random.default_rng(12)
    maps = [random_map(12, rng) for _ in range(200)]

    assert [ShapeRule().kept(m) for m in maps] == [authors_kept(m) for m in maps]


@pytest.mark.parametrize(("k", "sign"), [(8, 1), (16, -1)])
def test_the_authors_constant_is_another_method_at_any_other_k(k: int, sign: int) -> None:
    rng = np.random.default_rng(k)
    maps = [random_map(k, rng) for _ in range(200)]

    differences = np.array([ShapeRule().kept(m) - authors_kept(m) for m in maps])

    # γ₀·8 = 2 < 3 keeps more than the constant, γ₀·16 = 4 > 3 keeps fewer; a map of sigma ≈ 0 keeps all either way.
    assert np.mean(sign * differences > 0) > 0.98
    assert (sign * differences).min() >= 0


def test_same_kind_of_map_keeps_a_number_that_follows_k() -> None:
    # Four rows in sixteen, two in eight: the same distribution, so the same sigma = 2/√3.
    # K=8: 64/(1 + 2·1.1547) = 19.3 -> 20 (with 3.0: 15); K=16: 256/(1 + 4·1.1547) = 45.6 -> 46 (with 3.0: 58)
    eight = ImportanceMap(Grid(8), (0.9,) * 2 + (0.3,) * 6, (0.5,) * 8)
    sixteen = ImportanceMap(Grid(16), (0.9,) * 4 + (0.3,) * 12, (0.5,) * 16)

    assert (ShapeRule().kept(eight), authors_kept(eight)) == (20, 15)
    assert (ShapeRule().kept(sixteen), authors_kept(sixteen)) == (46, 58)


# The known weakness of the rule: it is scale-free, so it takes noise for structure (method.md, 3.2).


def test_independent_random_confidences_keep_about_51_of_144() -> None:
    rng = np.random.default_rng(32)

    kept = [ShapeRule().kept(random_map(12, rng)) for _ in range(3000)]

    assert np.mean(kept) == pytest.approx(50.7, abs=1.5)


def test_noise_of_a_ten_thousandth_keeps_about_90_of_144_instead_of_all() -> None:
    rng = np.random.default_rng(33)

    kept = [ShapeRule().kept(random_map(12, rng, 0.5 - 1e-4, 0.5 + 1e-4)) for _ in range(1000)]

    assert 80 < np.mean(kept) < 110


def test_random_confidences_at_k_8_keep_about_30_of_64() -> None:
    rng = np.random.default_rng(34)

    kept = [ShapeRule().kept(random_map(8, rng)) for _ in range(3000)]

    assert np.mean(kept) == pytest.approx(29.8, abs=1.0)


@given(st.integers(1, 10), st.data())
def test_shape_rule_keeps_between_one_and_all(k: int, data: st.DataObject) -> None:
    grid = Grid(k, data.draw(st.integers(k, k * k)))
    rows = data.draw(st.lists(st.floats(0, 1), min_size=grid.rows, max_size=grid.rows))
    columns = data.draw(st.lists(st.floats(0, 1), min_size=k, max_size=k))

    assert 1 <= ShapeRule().kept(ImportanceMap(grid, tuple(rows), tuple(columns))) <= grid.cells


# The fixed budget.


def test_fixed_keeps_its_number_whatever_the_map() -> None:
    one = (1.0, 0.0, 0.0, 0.0)

    assert Fixed(8).kept(ImportanceMap(Grid(4), one, one)) == 8
    assert Fixed(8).kept(ImportanceMap(Grid(4), (0.5,) * 4, (0.5,) * 4)) == 8


def test_fixed_keeps_all_of_a_smaller_pool() -> None:
    assert Fixed(8).kept(ImportanceMap(Grid(3, cells=5), (0.5, 0.5), (0.5,) * 3)) == 5


@pytest.mark.parametrize("frames", [0, -3, 2.5, "8", True, None])
def test_fixed_needs_a_whole_number_of_frames(frames: Any) -> None:
    with pytest.raises(UsageError, match=f'frames must be "auto" or a whole number of at least 1, got {frames!r}'):
        Fixed(frames)


# The noise-aware budget.

MAPS = 2000
SIDES = (4, 8, 12, 16, 24)


def frame_map(k: int, values: npt.ArrayLike) -> ImportanceMap:
    return ImportanceMap(Grid(k), by_frame=tuple(np.asarray(values, dtype=np.float64).clip(0, 1).tolist()))


def standing_out(maps: list[ImportanceMap]) -> float:
    """The share of maps in which anything stands out."""
    return float(np.mean([not NoiseAware().flat(each) for each in maps]))


def products(k: int, spread_by: float) -> list[ImportanceMap]:
    """Maps of normal rows and columns around 0.5."""
    lines = np.random.default_rng(k).normal(0.5, spread_by, (MAPS, 2, k)).clip(0, 1)
    return [ImportanceMap(Grid(k), tuple(rows), tuple(columns)) for rows, columns in lines.tolist()]


PROMISED = 0.01 + 3 * math.sqrt(0.01 * 0.99 / MAPS)
"""One map in a hundred, and three standard errors of the simulation."""


@pytest.mark.parametrize("k", SIDES)
def test_nothing_stands_out_in_99_of_100_maps_of_independent_noise(k: int) -> None:
    rng = np.random.default_rng(k)

    assert standing_out([frame_map(k, rng.normal(0.5, 0.1, k * k)) for _ in range(MAPS)]) <= PROMISED


@pytest.mark.parametrize("k", SIDES)
@pytest.mark.parametrize("spread", [0.01, 0.1])
def test_nothing_stands_out_in_99_of_100_products_of_noise(k: int, spread: float) -> None:
    assert standing_out(products(k, spread)) <= PROMISED


def test_check_of_the_null_distribution_notices_a_lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    maps = [frame_map(12, rng.normal(0.5, 0.1, 144)) for _ in range(MAPS)]
    monkeypatch.setattr("gridprobe.importance.null_maximum", lambda cells: 0.85 * null_maximum(cells))

    assert standing_out(maps) > PROMISED


def test_limit_is_the_simulated_one_and_between_two_of_them_in_between() -> None:
    assert all(null_maximum(cells) == pytest.approx(limit) for cells, limit in NULL_MAXIMUM.items())
    for fewer, more in pairwise(sorted(NULL_MAXIMUM)):
        low, high = sorted((NULL_MAXIMUM[fewer], NULL_MAXIMUM[more]))
        assert all(low <= null_maximum(cells) <= high for cells in range(fewer, more))


@pytest.mark.parametrize(("k", "least"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 3), (12, 4), (16, 6), (24, 8)])
def test_flat_map_keeps_a_third_of_k_spread_over_the_video(k: int, least: int) -> None:
    importance = frame_map(k, [0.5] * k**2)

    assert NoiseAware().flat(importance) and NoiseAware().kept(importance) == least
    assert NoiseAware().choose(importance, ties="spread") == spread(k * k, least)


def test_flat_map_is_noted_in_the_answer() -> None:
    question, flat = Question("Which?", ("x", "y")), MockModel(lambda request: {"A": 0.7, "B": 0.3})

    answer = ask(gray_pool(16), question, model=flat, k=4, effort="full")

    assert FLAT in answer.selection.notes and FLAT in " ".join(answer.warnings) and answer.selection.kept == 2


def test_differences_of_rounding_do_not_stand_out() -> None:
    values = np.full(144, 0.5)
    values[3] += 1e-9

    assert NoiseAware().flat(frame_map(12, values))


def hot(cells: npt.ArrayLike, *, noise: float = 0.01, k: int = 12) -> ImportanceMap:
    values = np.random.default_rng(5).normal(0.2, noise, k * k)
    values[np.asarray(cells)] += 0.5
    return frame_map(k, values)


@pytest.mark.parametrize("start", [0, 65, 132])
@pytest.mark.parametrize("length", range(1, 13))
def test_one_hot_stretch_is_kept(start: int, length: int) -> None:
    stretch = set(range(start, start + length))

    chosen = NoiseAware().choose(hot(sorted(stretch)), ties="spread")

    assert stretch <= set(chosen) and len(chosen) == max(4, length)
    assert not NoiseAware().flat(hot(sorted(stretch)))


@pytest.mark.parametrize("share", [0.15, 0.3, 0.4])
def test_redundant_evidence_keeps_k_frames_all_over_it(share: float) -> None:
    cells = [i for i in range(144) if i % 20 < share * 20]

    chosen = NoiseAware().choose(hot(cells), ties="spread")

    assert len(chosen) == 12 and set(chosen) <= set(cells)
    assert {i // 24 for i in chosen} == set(range(6))  # every sixth of the video


def test_of_redundant_evidence_half_are_the_highest() -> None:
    importance = hot(range(0, 144, 4))

    assert set(top(importance.scores, 6)) <= set(NoiseAware().choose(importance, ties="spread"))


@pytest.mark.parametrize("noise", [0.0, 0.01])  # noise of a tenth of the difference hides it
def test_evidence_in_most_of_the_video_keeps_k_frames_all_over_it(noise: float) -> None:
    cells = [i for i in range(144) if i % 20 < 12]

    assert NoiseAware().kept(hot(cells, noise=noise)) == 12


@both_ties
@given(k=st.integers(1, 9), data=st.data())
def test_noise_aware_keeps_from_a_third_of_k_to_k_whatever_the_scores(k: int, data: st.DataObject, ties: Ties) -> None:
    grid = Grid(k, data.draw(st.integers((k - 1) ** 2 + 1 if k > 1 else 1, k * k).filter(lambda cells: cells >= k)))
    levels = st.sampled_from([0.0, 0.2, 0.2 * (1 + 3e-7), 0.9, 1.0]) | st.floats(0, 1)
    importance = ImportanceMap(
        grid, by_frame=tuple(data.draw(st.lists(levels, min_size=grid.cells, max_size=grid.cells)))
    )

    chosen, again = (NoiseAware().choose(importance, ties=ties) for _ in range(2))

    least, most = NoiseAware().bounds(grid.cells)
    assert (least, most) == (math.ceil(k / 3), k)
    assert least <= len(chosen) == NoiseAware().kept(importance) <= most
    assert list(chosen) == sorted(set(chosen)) and chosen[0] >= 0 and chosen[-1] < grid.cells
    assert chosen == again


@given(st.lists(st.floats(0.1, 0.9), min_size=36, max_size=36), st.sampled_from([0.5, 2**-10]))
def test_noise_aware_does_not_depend_on_the_scale(values: list[float], factor: float) -> None:
    one, other = frame_map(6, values), frame_map(6, [factor * value for value in values])  # powers of 2 are exact

    assert NoiseAware().choose(one, ties="spread") == NoiseAware().choose(other, ties="spread")


def test_noise_aware_by_hand() -> None:
    # Nine scores with median 0.5 and deviations 0, 0.01 ×4, 0.02 ×2, 0.2, 0.3: their median is 0.01, so the width is
    # 0.014826 and, with 7.1 for nine cells, the limit is 0.105 above 0.5. Two stand out; the bounds are 1 and 3.
    values = [0.5, 0.49, 0.51, 0.49, 0.49, 0.48, 0.52, 0.7, 0.8]

    assert NULL_MAXIMUM[9] == 7.1
    assert NoiseAware().choose(frame_map(3, values), ties="spread") == (7, 8)


# Which frames.


@both_ties
@given(ranking=rankings())
def test_top_gives_exactly_that_many_positions_in_time_order(
    ranking: tuple[npt.NDArray[np.float64], int], ties: Ties
) -> None:
    values, kept = ranking

    chosen = top(values, kept, ties=ties)

    assert len(chosen) == kept
    assert list(chosen) == sorted(set(chosen))
    assert chosen[0] >= 0 and chosen[-1] < len(values)


@given(ranking=rankings())
def test_earliest_never_drops_a_frame_better_than_one_it_keeps(
    ranking: tuple[npt.NDArray[np.float64], int],
) -> None:
    values, kept = ranking

    chosen = np.isin(np.arange(len(values)), top(values, kept, ties="earliest"))

    assert values[chosen].min() >= values[~chosen].max(initial=0.0)


@given(ranking=rankings())
def test_spread_never_drops_a_frame_clearly_better_than_one_it_keeps(
    ranking: tuple[npt.NDArray[np.float64], int],
) -> None:
    values, kept = ranking

    chosen = np.isin(np.arange(len(values)), top(values, kept, ties="spread"))

    # A tie is EQUAL either side of the threshold, so two frames of one tie differ by at most twice that.
    worst, best_dropped = values[chosen].min(), values[~chosen].max(initial=0.0)
    assert worst >= best_dropped - 2.001 * EQUAL * best_dropped


# Q11 of tests/reliability.md
@both_ties
@given(ranking=rankings())
def test_top_is_deterministic_and_leaves_its_input_alone(
    ranking: tuple[npt.NDArray[np.float64], int], ties: Ties
) -> None:
    values, kept = ranking
    before = values.copy()

    first, second = top(values, kept, ties=ties), top(values, kept, ties=ties)

    assert first == second
    assert np.array_equal(values, before)


@given(st.permutations(range(30)), st.integers(1, 30))
def test_both_ways_of_ties_agree_where_there_are_none(order: list[int], kept: int) -> None:
    values = np.array(order) / 30

    assert top(values, kept, ties="spread") == top(values, kept, ties="earliest")


@both_ties
def test_keeping_all_keeps_all(ties: Ties) -> None:
    assert top(np.array([0.1, 0.9, 0.1, 0.5]), 4, ties=ties) == (0, 1, 2, 3)


def test_earliest_takes_the_first_of_equal_frames() -> None:
    assert top(np.array([9.0, 5, 5, 5, 5]), 3, ties="earliest") == (0, 1, 2)


# Q11 of tests/reliability.md
def test_spread_takes_equal_frames_evenly_and_is_the_default() -> None:
    scores = np.array([9.0, 5, 5, 5, 5])

    assert top(scores, 3, ties="spread") == (0, 2, 4)
    assert top(scores, 3) == (0, 2, 4)


def test_plateau_is_spread_over_the_whole_timeline_and_not_taken_from_a_corner() -> None:
    values = np.full(144, 0.8)
    values[70:74] = 0.9

    chosen = top(values, 16, ties="spread")

    plateau = [i for i in chosen if not 70 <= i < 74]
    assert len(plateau) == 12
    # 140 equal frames give 12 places: one in each twelfth of the video (140 / 12 ≈ 12 frames), none 16 frames apart.
    assert sorted({i // 12 for i in plateau}) == list(range(12))
    assert max(b - a for a, b in pairwise(plateau)) <= 16


def test_earliest_takes_the_corner_of_a_plateau() -> None:
    assert top(np.full(144, 0.8), 16, ties="earliest") == tuple(range(16))


# Q11 of tests/reliability.md
@pytest.mark.parametrize("kept", [1, 30, 77, 200])
def test_earliest_is_stable_on_many_ties(kept: int) -> None:
    values = np.random.default_rng(5).integers(0, 4, 400) / 4

    by_hand = sorted(range(400), key=lambda i: (-values[i], i))[:kept]

    assert top(values, kept, ties="earliest") == tuple(sorted(by_hand))


def test_flat_map_at_a_fixed_budget_is_uniform_sampling() -> None:
    assert top(np.full(144, 0.5), 8) == spread(144, 8) == (9, 27, 45, 63, 81, 99, 117, 135)


def test_differences_of_rounding_are_ties() -> None:
    values = np.full(100, 0.42)
    values[::2] *= 1 + 1e-12

    assert top(values, 4) == spread(100, 4)


def test_real_differences_are_not_ties() -> None:
    values = np.full(100, 0.42)
    values[:4] *= 1 + 1e-4

    assert top(values, 4) == (0, 1, 2, 3)


def test_frames_above_a_tie_are_always_kept() -> None:
    values = np.array([0.5, 0.9, 0.5, 0.5, 0.8, 0.5, 0.5, 0.1])

    assert {1, 4} < set(top(values, 4))


@both_ties
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_must_be_finite(bad: float, ties: Ties) -> None:
    with pytest.raises(ValueError, match="finite"):
        top(np.array([0.5, bad, 0.1]), 2, ties=ties)


@both_ties
@pytest.mark.parametrize("kept", [0, -1, 4])
def test_keeping_none_or_more_than_there_are_is_refused(kept: int, ties: Ties) -> None:
    with pytest.raises(ValueError):
        top(np.array([0.1, 0.5, 0.9]), kept, ties=ties)


# Spreading.


def test_spread_takes_the_middle_of_equal_shares() -> None:
    assert spread(10, 2) == (2, 7)
    assert spread(9, 3) == (1, 4, 7)
    assert spread(5, 1) == (2,)


def test_spread_of_none_is_empty() -> None:
    assert spread(10, 0) == ()


@given(st.integers(1, 400), st.data())
def test_spread_is_unique_ascending_and_in_range(count: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, count))

    positions = spread(count, wanted)

    assert len(positions) == wanted
    assert list(positions) == sorted(set(positions))
    assert positions[0] >= 0 and positions[-1] < count


@given(st.integers(1, 400), st.data())
def test_spread_puts_one_position_into_every_share(count: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, count))

    for share, position in enumerate(spread(count, wanted)):
        assert share * count < (position + 1) * wanted and position * wanted < (share + 1) * count


@given(st.integers(1, 400), st.data())
def test_spread_leaves_gaps_that_differ_by_at_most_one(count: int, data: st.DataObject) -> None:
    positions = spread(count, data.draw(st.integers(2, max(2, count // 2))) if count > 3 else 1)

    gaps = [b - a for a, b in pairwise(positions)] or [0]

    assert max(gaps) - min(gaps) <= 1


@given(st.integers(1, 400))
def test_spread_of_everything_is_everything(count: int) -> None:
    assert spread(count, count) == tuple(range(count))
