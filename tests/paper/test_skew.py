"""Kept frames and accuracy against skew: the curves are weighted means of the runs' own numbers."""

from pathlib import Path

import numpy as np
import pytest

from drawn import cut_off, overlapping, words
from evaluation_runs import item, large_run, record, selection, spec_of, write_run
from gridprobe.errors import UsageError
from gridprobe_eval.reader import Run, read_runs
from skew import SkewData, skew_data, skew_figure, smooth


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return read_runs([large_run(folder / name, count=400, selector=name) for name in ("gridprobe", "all")])


def kernel_mean(places: list[float], values: list[float], at: float, width: float) -> float:
    weights = [np.exp(-((place - at) ** 2) / (2 * width**2)) for place in places]
    return float(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))


def test_the_curves_are_of_the_runs_own_numbers(runs: list[Run]) -> None:
    mapped, whole = ({r.id: r for r in run.results} for run in runs)
    pairs = [(mapped[name].answered, whole[name]) for name in mapped if whole[name].right is not None]
    shared = [(found, other.right) for found, other in pairs if found and found.skew is not None]
    skew, kept = [found.skew or 0.0 for found, _ in shared], [float(found.selection["kept"]) for found, _ in shared]
    right = [100.0 * bool(hit) for _, hit in shared]

    left, second = skew_figure(skew_data(runs)).axes

    (kept_line,), (accuracy_line,) = left.get_lines(), second.get_lines()
    at = kept_line.get_xdata()
    assert (at[0], at[-1]) == pytest.approx(np.quantile(skew, (0.01, 0.99)))
    width = (at[-1] - at[0]) / 12
    for place in (0, 40, 79):
        assert kept_line.get_ydata()[place] == pytest.approx(kernel_mean(skew, kept, at[place], width))
        assert accuracy_line.get_ydata()[place] == pytest.approx(kernel_mean(skew, right, at[place], width))


def test_the_band_holds_the_curve_and_is_drawn(runs: list[Run]) -> None:
    left, second = skew_figure(skew_data(runs)).axes
    for axes, density in ((left, 1), (second, 0)):
        (line,) = axes.get_lines()
        band = axes.collections[density].get_paths()[0]
        for x, y in zip(line.get_xdata()[1:-1:20], line.get_ydata()[1:-1:20], strict=True):
            assert band.contains_point((x, y))


def test_the_band_is_as_wide_as_the_spread_between_videos() -> None:
    """With all questions at one skew the band is that of the mean over videos: exactly 2 × 1.96 × sd ÷ √n."""
    rng = np.random.default_rng(5)
    videos = np.repeat(np.arange(400), 4)
    values = rng.normal(0, 1, 400)[videos]
    found = smooth(np.zeros(1600), values, tuple(map(str, videos)))

    expected = 2 * 1.96 * values[::4].std() / 20
    assert found.high[0] - found.low[0] == pytest.approx(expected, rel=0.08)
    assert found.mean[0] == pytest.approx(values.mean())


def test_the_axes_are_named_with_both_runs(runs: list[Run]) -> None:
    figure = skew_figure(skew_data(runs))

    assert figure.axes[0].get_ylabel() == "frames kept, of 144" and "signed skew" in figure.axes[0].get_xlabel()
    assert "frames kept (gridprobe)" in words(figure) and "accuracy over all frames (all)" in words(figure)
    assert "questions about 100 videos" in words(figure)


@pytest.mark.parametrize("width", [60.0, *(pytest.param(each, marks=pytest.mark.release) for each in (80.0, 170.0))])
def test_no_text_is_cut_off_or_covered(runs: list[Run], width: float) -> None:
    found = skew_data(runs)
    named = SkewData(**{**vars(found), "mapped": "a-run-with-a-very-long-name-" * 4, "whole": "a$b$ and_more^2 "})
    figure = skew_figure(named, width=width)

    assert cut_off(figure) == [] and overlapping(figure) == []


def test_runs_that_do_not_fit_are_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a run with importance maps"):
        skew_data(runs[1:])
    with pytest.raises(UsageError, match='needs a run of the selector "all"'):
        skew_data(runs[:1])
    chosen = selection((0.5, 0.9, 0.5), (0.4, 0.5, 0.8))
    few = [
        write_run(tmp_path / name, [item("v1-a")], [record("v1-a", selection=chosen)], spec=spec_of(name))
        for name in ("gridprobe", "all")
    ]
    with pytest.raises(UsageError, match="needs 20 shared questions, got 1"):
        skew_data(read_runs(few))
