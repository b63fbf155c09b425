"""Which frame sits where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import UsageError
from gridprobe.importance import MAX_K, Grid


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    k = draw(st.integers(1, 20))
    return Grid(k, draw(st.integers(k, k * k)))


# D01 of tests/reliability.md
def test_rows_are_neighbours_and_columns_stride_over_the_video() -> None:
    grid = Grid(3)

    assert [grid.row(r) for r in range(3)] == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert [grid.column(c) for c in range(3)] == [(0, 3, 6), (1, 4, 7), (2, 5, 8)]


def test_probes_are_all_rows_then_all_columns() -> None:
    assert Grid(2).probes() == ((0, 1), (2, 3), (0, 2), (1, 3))


def test_partial_grid_has_a_short_last_row_and_short_last_columns() -> None:
    grid = Grid(4, cells=14)

    assert grid.rows == 4
    assert grid.row(3) == (12, 13)
    assert [grid.column(c) for c in range(4)] == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10), (3, 7, 11)]


def test_grid_with_missing_rows_has_fewer_row_probes() -> None:
    grid = Grid(4, cells=8)

    assert grid.rows == 2
    assert grid.probes() == ((0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7))


def test_full_grid_has_2k_probes_of_k_frames() -> None:
    probes = Grid(12).probes()

    assert [len(probe) for probe in probes] == [12] * 24


@given(grids())
def test_rows_partition_the_cells_in_time_order(grid: Grid) -> None:
    assert [cell for r in range(grid.rows) for cell in grid.row(r)] == list(range(grid.cells))


@given(grids())
def test_columns_partition_the_cells(grid: Grid) -> None:
    assert sorted(cell for c in range(grid.k) for cell in grid.column(c)) == list(range(grid.cells))


@given(grids())
def test_every_cell_is_where_its_one_row_and_its_one_column_cross(grid: Grid) -> None:
    crossing = {
        cell: (r, c) for r in range(grid.rows) for c in range(grid.k) for cell in {*grid.row(r)} & {*grid.column(c)}
    }

    assert crossing == {i: (i // grid.k, i % grid.k) for i in range(grid.cells)}


@given(grids())
def test_no_probe_is_empty_longer_than_k_or_out_of_order(grid: Grid) -> None:
    for probe in grid.probes():
        assert 1 <= len(probe) <= grid.k
        assert list(probe) == sorted(set(probe))


@pytest.mark.parametrize("cells", range(1, 301))
def test_holding_is_the_smallest_grid_with_room(cells: int) -> None:
    grid = Grid.holding(cells)

    assert grid.cells == cells
    assert (grid.k - 1) ** 2 < cells <= grid.k**2


def test_holding_a_square_number_is_a_full_grid() -> None:
    assert Grid.holding(144) == Grid(12)


def test_equal_grids_are_equal_and_hash_alike() -> None:
    assert Grid(12) == Grid(12, cells=144)
    assert len({Grid(12), Grid(12, cells=144), Grid(12, cells=143)}) == 2


@pytest.mark.parametrize("k", [0, -1, MAX_K + 1, 2.0, "12", None, True])
def test_k_must_be_a_whole_number_in_range(k: object) -> None:
    with pytest.raises(UsageError, match=f"k must be a whole number from 1 to {MAX_K}, got {k!r}"):
        Grid(k)  # type: ignore[arg-type]


@pytest.mark.parametrize("cells", [0, 3, 17, -2])
def test_cells_must_fill_a_row_and_fit_the_grid(cells: int) -> None:
    with pytest.raises(UsageError, match=f"k=4 holds 4 to 16 frames, got {cells}"):
        Grid(4, cells=cells)


def test_largest_grid_is_allowed() -> None:
    assert Grid(MAX_K).cells == MAX_K**2


def test_holding_more_frames_than_the_largest_grid_is_refused() -> None:
    with pytest.raises(UsageError, match=f"from 1 to {MAX_K}"):
        Grid.holding(MAX_K**2 + 1)


@pytest.mark.parametrize("cells", [0, -1, -5])
def test_holding_nothing_is_refused(cells: int) -> None:
    with pytest.raises(UsageError):
        Grid.holding(cells)
