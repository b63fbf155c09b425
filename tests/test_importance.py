"""Equations 3 and 4 of the paper: confidences -> map -> shape."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import ModelError
from gridprobe.importance import Grid, ImportanceMap, MapKind, Shape, ShapeRule

GOLDEN = Path(__file__).parent / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "shapes.json").read_text(encoding="utf-8"))

scores = st.lists(st.integers(0, 1000).map(lambda x: x / 1000), min_size=2, max_size=60)


def golden_map(case: dict[str, Any]) -> ImportanceMap:
    return ImportanceMap(Grid(case["k"]), tuple(case["row_confidence"]), tuple(case["column_confidence"]))


# Golden cases, worked out without gridprobe by golden/regenerate.py.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_shape_equals_the_exact_moments(case: dict[str, Any]) -> None:
    shape = golden_map(case).shape

    assert shape.skew == pytest.approx(case["skew"], abs=1e-9)
    assert shape.excess_kurtosis == pytest.approx(case["excess_kurtosis"], abs=1e-9)
    assert shape.sigma == pytest.approx(case["sigma"], abs=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_shape_rule_keeps_the_number_of_the_paper(case: dict[str, Any]) -> None:
    assert ShapeRule().kept(golden_map(case)) == case["kept"]


def test_golden_file_covers_every_kind_of_map_at_every_k() -> None:
    kinds = {(case["k"], case["name"].split(" ", 1)[1]) for case in CASES}

    wanted = {"flat", "one-hot", "plateau", "left-skewed", "right-skewed", "random"}
    assert kinds >= {(k, kind) for k in (4, 8, 12, 16) for kind in wanted}


def test_golden_file_is_what_its_program_writes() -> None:
    spec = importlib.util.spec_from_file_location("regenerate", GOLDEN / "regenerate.py")
    assert spec is not None and spec.loader is not None
    regenerate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(regenerate)

    assert (GOLDEN / "shapes.json").read_text(encoding="utf-8") == regenerate.text()


def test_golden_program_does_not_use_what_it_checks() -> None:
    program = (GOLDEN / "regenerate.py").read_text(encoding="utf-8")

    assert "import gridprobe" not in program and "from gridprobe" not in program


# By hand.


def test_cell_is_the_product_of_its_row_and_its_column() -> None:
    importance = ImportanceMap(Grid(2), (0.5, 0.8), (0.25, 1.0))

    # 0.5·0.25  0.5·1.0      0.125  0.5
    # 0.8·0.25  0.8·1.0   =  0.2    0.8
    assert importance.matrix.tolist() == [[0.125, 0.5], [0.2, 0.8]]
    assert importance.scores.tolist() == [0.125, 0.5, 0.2, 0.8]


def test_two_by_two_with_one_hot_cell() -> None:
    # Cells 1 0 0 0: mean 1/4, deviations 3/4 -1/4 -1/4 -1/4.
    # m2 = (9+1+1+1)/16/4 = 3/16; m3 = (27-3)/64/4 = 3/32; m4 = (81+3)/256/4 = 21/256.
    # skew = (3/32) / (3/16)^1.5 = 2/√3; excess kurtosis = (21/256)/(9/256) - 3 = -2/3, so only the skew counts.
    shape = ImportanceMap(Grid(2), (1.0, 0.0), (1.0, 0.0)).shape

    assert shape.skew == pytest.approx(2 / math.sqrt(3), abs=1e-12)
    assert shape.excess_kurtosis == pytest.approx(-2 / 3, abs=1e-12)
    assert shape.sigma == pytest.approx(2 / math.sqrt(3), abs=1e-12)


def test_two_by_two_with_one_cold_cell_has_the_mirrored_skew_and_the_same_sigma() -> None:
    # Deviations -3/4 1/4 1/4 1/4 are those of one hot cell with the sign turned.
    shape = Shape.of([0.0, 1.0, 1.0, 1.0])

    assert shape.skew == pytest.approx(-2 / math.sqrt(3), abs=1e-12)
    assert shape.sigma == pytest.approx(2 / math.sqrt(3), abs=1e-12)


def test_two_by_two_with_one_row_twice_as_sure_is_symmetric() -> None:
    # Cells 0.8 0.8 0.4 0.4: deviations ±0.2, so m3 = 0 and m4/m2² = 1: skew 0, excess kurtosis -2, sigma 0.
    shape = ImportanceMap(Grid(2), (0.8, 0.4), (1.0, 1.0)).shape

    assert shape.skew == pytest.approx(0.0, abs=1e-12)
    assert shape.excess_kurtosis == pytest.approx(-2.0, abs=1e-12)
    assert shape.sigma == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 5, 12, 30])
def test_one_hot_map_has_the_moments_of_a_rare_event(k: int) -> None:
    # One cell of n is 1: a coin with p = 1/n, whose skew is (1-2p)/√(p(1-p)) and excess kurtosis (1-6p(1-p))/(p(1-p)).
    p = 1 / k**2
    one = (1.0, *[0.0] * (k - 1))

    shape = ImportanceMap(Grid(k), one, one).shape

    assert shape.skew == pytest.approx((1 - 2 * p) / math.sqrt(p * (1 - p)), rel=1e-9)
    assert shape.excess_kurtosis == pytest.approx((1 - 6 * p * (1 - p)) / (p * (1 - p)), rel=1e-9)


def test_sigma_adds_half_of_a_positive_excess_kurtosis() -> None:
    assert Shape(skew=-1.5, excess_kurtosis=2.0).sigma == 2.5


def test_sigma_ignores_a_negative_excess_kurtosis() -> None:
    assert Shape(skew=-1.5, excess_kurtosis=-2.0).sigma == 1.5


# Flat maps.


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.7, 1.0])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_constant_map_has_no_shape(k: int, value: float) -> None:
    assert ImportanceMap(Grid(k), (value,) * k, (0.3,) * k).shape == Shape(0.0, 0.0)


def test_rounding_noise_is_not_shape() -> None:
    noisy = [0.6, 0.6 + 2e-16, 0.6, 0.6 - 1e-16] * 9

    assert Shape.of(noisy) == Shape(0.0, 0.0)


def test_small_but_real_differences_are_shape() -> None:
    # One cell of 36 is higher by a millionth: the same shape as one-hot, (1-2p)/√(p(1-p)) = 34/√35 with p = 1/36.
    scores = [0.6 + 1e-6] + [0.6] * 35

    assert Shape.of(scores).skew == pytest.approx(34 / math.sqrt(35), rel=1e-4)


def test_map_of_one_frame_has_no_shape() -> None:
    assert ImportanceMap(Grid(1), (0.9,), (0.8,)).shape == Shape(0.0, 0.0)


# Partly filled grids.


def test_cell_without_a_frame_is_nan_and_has_no_score() -> None:
    importance = ImportanceMap(Grid(3, cells=7), (0.5, 1.0, 0.8), (1.0, 0.5, 0.25))

    assert np.array_equal(np.isnan(importance.matrix), [[False] * 3, [False] * 3, [False, True, True]])
    assert importance.scores.tolist() == [0.5, 0.25, 0.125, 1.0, 0.5, 0.25, 0.8]


def test_shape_is_taken_over_the_cells_that_hold_a_frame() -> None:
    importance = ImportanceMap(Grid(3, cells=7), (0.5, 1.0, 0.8), (1.0, 0.5, 0.25))

    assert importance.shape == Shape.of([0.5, 0.25, 0.125, 1.0, 0.5, 0.25, 0.8])


def test_missing_rows_have_no_confidence() -> None:
    importance = ImportanceMap(Grid(3, cells=4), (0.5, 1.0), (1.0, 0.5, 0.25))

    assert importance.matrix.shape == (2, 3)
    assert importance.scores.tolist() == [0.5, 0.25, 0.125, 1.0]


def test_map_does_not_remember_what_a_caller_writes_into_its_matrix() -> None:
    importance = ImportanceMap(Grid(2), (0.5, 0.8), (0.25, 1.0))

    importance.matrix[0, 0] = 9.0

    assert importance.matrix[0, 0] == 0.125


# Refusals.


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.0000001])
def test_confidence_that_is_no_probability_is_the_models_fault(bad: float) -> None:
    with pytest.raises(ModelError, match=r"probe confidence of (nan|inf|-0.1|1.0000001), which is not a probability"):
        ImportanceMap(Grid(2), (0.5, 0.5), (0.5, bad))


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 1), (3, 2), (2, 3), (0, 0)])
def test_wrong_number_of_probes_is_refused(rows: int, columns: int) -> None:
    with pytest.raises(ValueError, match=rf"{rows}\+{columns} probes"):
        ImportanceMap(Grid(2), (0.5,) * rows, (0.5,) * columns)


# Invariances.


@given(scores, st.sampled_from([0.001, 0.37, 3.0, 1000.0]))
def test_shape_does_not_change_with_scale(values: list[float], factor: float) -> None:
    shape, scaled = Shape.of(values), Shape.of([factor * v for v in values])

    assert scaled.skew == pytest.approx(shape.skew, abs=1e-7)
    assert scaled.excess_kurtosis == pytest.approx(shape.excess_kurtosis, abs=1e-7)


@given(scores, st.sampled_from([0.25, 1.0, 7.5]))
def test_shape_does_not_change_when_every_cell_is_shifted(values: list[float], shift: float) -> None:
    shape, shifted = Shape.of(values), Shape.of([v + shift for v in values])

    assert shifted.skew == pytest.approx(shape.skew, abs=1e-7)
    assert shifted.excess_kurtosis == pytest.approx(shape.excess_kurtosis, abs=1e-7)


@given(scores)
def test_turning_the_map_upside_down_turns_the_skew_and_keeps_sigma(values: list[float]) -> None:
    shape, turned = Shape.of(values), Shape.of([1.0 - v for v in values])

    assert turned.skew == pytest.approx(-shape.skew, abs=1e-7)
    assert turned.sigma == pytest.approx(shape.sigma, abs=1e-7)


@given(scores, st.randoms(use_true_random=False))
def test_shape_does_not_depend_on_where_the_cells_are(values: list[float], random: Any) -> None:
    shuffled = random.sample(values, len(values))

    assert Shape.of(shuffled).skew == pytest.approx(Shape.of(values).skew, abs=1e-7)
    assert Shape.of(shuffled).excess_kurtosis == pytest.approx(Shape.of(values).excess_kurtosis, abs=1e-7)


@given(scores)
def test_moments_obey_pearsons_inequality(values: list[float]) -> None:
    shape = Shape.of(values)

    # kurtosis >= skew² + 1 for every distribution; a flat map is set to (0, 0), which obeys it too.
    assert shape.excess_kurtosis + 3 >= shape.skew**2 + 1 - 1e-7


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_exchanging_rows_and_columns_transposes_the_map(rows: list[float], columns: list[float]) -> None:
    one = ImportanceMap(Grid(4), tuple(rows), tuple(columns))
    other = ImportanceMap(Grid(4), tuple(columns), tuple(rows))

    assert np.array_equal(one.matrix.T, other.matrix)


# One number for every frame.


def test_numbers_of_frames_are_the_scores_in_time_order() -> None:
    importance = ImportanceMap(Grid(2), by_frame=(0.1, 0.2, 0.3, 0.4), kind="attention")

    assert importance.matrix.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert importance.scores.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert importance.shape == Shape.of([0.1, 0.2, 0.3, 0.4])


def test_cell_without_a_frame_is_nan_in_a_map_by_frame() -> None:
    importance = ImportanceMap(Grid(3, cells=7), by_frame=(0.1,) * 7)

    assert np.array_equal(np.isnan(importance.matrix), [[False] * 3, [False] * 3, [False, True, True]])
    assert len(importance.scores) == 7


@pytest.mark.parametrize(
    ("lines", "by_frame"), [(((), ()), (0.5,) * 3), (((), ()), (0.5,) * 5), (((0.5,) * 2, (0.5,) * 2), (0.5,) * 4)]
)
def test_wrong_number_of_frames_or_lines_besides_is_refused(lines: tuple[Any, Any], by_frame: Any) -> None:
    with pytest.raises(ValueError, match=f"{len(by_frame)} numbers and"):
        ImportanceMap(Grid(2), *lines, by_frame=by_frame)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.0000001])
def test_number_of_a_frame_that_is_no_probability_is_the_models_fault(bad: float) -> None:
    with pytest.raises(ModelError, match="which is not a probability"):
        ImportanceMap(Grid(2), by_frame=(0.5, 0.5, bad, 0.5), kind="attention")


@pytest.mark.parametrize("kind", get_args(MapKind))
def test_every_kind_of_map_is_accepted_and_kept(kind: MapKind) -> None:
    assert ImportanceMap(Grid(2), by_frame=(0.5,) * 4, kind=kind).kind == kind


def test_unknown_kind_of_map_is_refused() -> None:
    with pytest.raises(ValueError, match="descent, when, got 'other'"):
        ImportanceMap(Grid(2), by_frame=(0.5,) * 4, kind="other")  # type: ignore[arg-type]
