"""Compute over K: every value is the run folder's or the gauge's, and planned points are said to be planned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compute import ALL, Curve, compute_figure, measured, planned
from drawn import cut_off, overlapping, words
from evaluation_runs import item, large_run, record, spec_of, write_run
from gridprobe.errors import UsageError
from gridprobe.models import cost_model_of
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, published_flops
from gridprobe_eval.reader import Run, read_runs

MODEL = "Qwen/Qwen3-VL-2B-Instruct"


def run(folder: Path, *, k: int, selector: str = "gridprobe", tflops: float = 4.0, choices: str = "BBBC") -> Path:
    names = [f"v{place}-a" for place in range(len(choices))]
    records = [record(name, choice, tflops=tflops) for name, choice in zip(names, choices, strict=True)]
    for each in records:
        each["cost"] |= {"baseline_tflops": 10.0 * k, "baseline_tflops_paper": 20.0 * k}
    spec = spec_of(selector, k=k)
    return write_run(folder, [item(name) for name in names], records, spec=spec)


def sweep(folder: Path) -> list[Run]:
    return read_runs(
        [run(folder / f"k{k}", k=k, tflops=5.0 * k) for k in (12, 6)] + [run(folder / "whole", k=6, selector="all")]
    )


def by_name(curves: list[Curve]) -> dict[str, Curve]:
    return {curve.name: curve for curve in curves}


def lines(figure: Any, panel: int = 0) -> dict[str, tuple[list[float], list[float]]]:
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in figure.axes[panel].get_lines()
        if not line.get_label().startswith("_")
    }


@pytest.mark.parametrize(("convention", "times"), [("tflops", 1), ("tflops_paper", 2)])
def test_the_points_are_the_runs_means(tmp_path: Path, convention: Any, times: int) -> None:
    figure = compute_figure(measured(sweep(tmp_path), convention=convention), convention=convention)

    assert lines(figure) == {
        "gridprobe": ([6, 12], [30.0 * times, 60.0 * times]),
        ALL: ([6, 12], [4.0 * times, 120.0 * times]),  # the run of all frames itself, else what the other run says
    }
    assert ("honest" if times == 1 else "published") in figure.axes[0].get_ylabel()


def test_accuracy_and_its_interval_are_the_runs(tmp_path: Path) -> None:
    figure = compute_figure(measured(sweep(tmp_path), convention="tflops"), convention="tflops")
    containers = {each.get_label(): each for each in figure.axes[1].containers}

    assert containers["gridprobe"].lines[0].get_ydata().tolist() == [75.0, 75.0]
    assert containers[ALL].lines[0].get_ydata().tolist() == [75.0]  # all frames were asked with K = 6 only
    (bars,) = containers[ALL].lines[2]
    assert np.round(bars.get_segments()[0][:, 1], 1).tolist() == [30.1, 95.4]  # Wilson's, 3 of 4


def test_the_share_is_that_of_the_two_points(tmp_path: Path) -> None:
    figure = compute_figure(
        measured(read_runs([run(tmp_path / "a", k=6, tflops=10.0), run(tmp_path / "b", k=8, tflops=160.0)]),
                 convention="tflops"),
        convention="tflops",
    )  # fmt: skip

    assert "17%" in words(figure) and "200%" in words(figure)
    assert "Measured: toy, 4 questions, scripted/m." in words(figure) and "planned" not in words(figure).lower()


def test_only_shared_questions_count(tmp_path: Path) -> None:
    paths = [run(tmp_path / "a", k=6, choices="BBBB"), run(tmp_path / "b", k=8, choices="BC")]
    curves = by_name(measured(read_runs(paths), convention="tflops"))

    counts = [point.accuracy.count for point in curves["gridprobe"].points if point.accuracy]
    assert counts == [2, 2] and "2 questions" in curves[ALL].note


# Planned.


def tokens(k: int, per_pair: int) -> float:
    """Published TFLOPs of K² frames in pairs, with eight tokens around each pair and 280 of text."""
    return published_flops(QWEN3_VL["2B"], k * k // 2 * (per_pair + 8) + 280) / 1e12


@pytest.mark.parametrize("k", [6, 8, 12, 16])
def test_all_frames_are_priced_as_published(k: int) -> None:
    whole, _ = planned(cost_model_of(MODEL), [k], convention="tflops_paper")

    assert whole.points[0].compute == pytest.approx(tokens(k, 720), rel=1e-9)
    assert k != 12 or whole.points[0].compute == pytest.approx(818.4, abs=0.2)  # shared/benchmarks.md, 52,700 tokens


@pytest.mark.parametrize(("k", "printed"), [(24, 3424), (32, 3229)])
def test_large_grids_are_priced_as_published(k: int, printed: int) -> None:
    whole, _ = planned(cost_model_of(MODEL), [k], convention="tflops_paper")

    assert round(whole.points[0].compute) == printed


def test_gridprobe_costs_its_probes_and_the_kept_frames() -> None:
    curves = by_name(planned(cost_model_of(MODEL), [12], kept=[53], convention="tflops_paper"))

    def price(length: int) -> float:
        return published_flops(QWEN3_VL["2B"], length) / 1e12

    probe, focus = price(6 * (49 + 8) + 280), price(27 * (720 + 8) + 280)  # 53 frames are 27 pairs
    assert curves["GridProbe"].points[0].compute == pytest.approx(24 * probe + focus, rel=1e-9)


def test_without_a_number_of_frames_the_cost_is_a_range() -> None:
    whole, ours = planned(cost_model_of(MODEL), [8, 6], convention="tflops")
    figure = compute_figure([whole, ours], convention="tflops")

    low, high = [p.compute for p in ours.points], [p.highest for p in ours.points]
    drawn = [list(line.get_ydata()) for line in figure.axes[0].get_lines()]
    assert [p.k for p in ours.points] == [6, 8] and low in drawn and high in drawn
    assert " %" not in words(figure).replace("%: of the", "") and "fewest to most frames" in words(figure)


def test_a_planned_figure_says_so_and_has_no_accuracy() -> None:
    figure = compute_figure(
        planned(cost_model_of(MODEL), [6, 12], kept=[9, 53], convention="tflops"), convention="tflops"
    )

    assert len(figure.axes) == 1 and words(figure).count("(planned)") == 2
    assert "No weights" in words(figure).replace("\n", " ") and "9, 53 frames kept" in words(figure).replace("\n", " ")


def test_measured_and_planned_stand_side_by_side(tmp_path: Path) -> None:
    curves = measured(sweep(tmp_path), convention="tflops")
    curves += planned(cost_model_of(MODEL), [6, 8], kept=[4], convention="tflops")

    assert set(lines(compute_figure(curves, convention="tflops"))) == {
        *(ALL, "gridprobe", f"{ALL} (planned)", "GridProbe (planned)")
    }


@pytest.mark.parametrize("sides", [[12], [6, 8, 12, 16, 24, 32], [10, 11, 12, 13, 14], [2, 64]])
@pytest.mark.parametrize("width", [60.0, *(pytest.param(each, marks=pytest.mark.release) for each in (80.0, 170.0))])
def test_no_text_is_cut_off_or_covered(sides: list[int], width: float, tmp_path: Path) -> None:
    paths = [run(tmp_path / f"a-rather-long-name-{k}", k=k, tflops=float(k)) for k in sides]
    curves = measured(read_runs(paths), convention="tflops")
    curves += planned(cost_model_of(MODEL), sides, kept=[3], convention="tflops")
    figure = compute_figure(curves, convention="tflops", width=width)

    assert cut_off(figure) == []
    covered = [pair for pair in overlapping(figure) if not any(text.endswith(" %") for text in pair)]
    assert covered == []


# Refused.


def test_runs_of_two_models_are_refused(tmp_path: Path) -> None:
    one, other = run(tmp_path / "a", k=6), tmp_path / "b"
    write_run(other, [item("v0-a")], [record("v0-a")], spec=spec_of(model="other", k=8))

    with pytest.raises(UsageError, match="b was answered by other and a by scripted/m"):
        measured(read_runs([one, other]), convention="tflops")


def test_two_runs_of_the_same_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="b is a second run of gridprobe with K = 6"):
        measured(read_runs([run(tmp_path / "a", k=6), run(tmp_path / "b", k=6)]), convention="tflops")


def test_runs_without_a_common_question_are_refused(tmp_path: Path) -> None:
    other = write_run(tmp_path / "b", [item("x-1")], [record("x-1")], spec=spec_of(k=8))

    with pytest.raises(UsageError, match="the 2 runs share no question"):
        measured(read_runs([run(tmp_path / "a", k=6), other]), convention="tflops")


def test_runs_of_two_releases_are_refused(tmp_path: Path) -> None:
    spec = replace(spec_of(k=8), benchmark_version="toy-10-def")
    other = write_run(tmp_path / "b", [item("v0-a")], [record("v0-a")], spec=spec)

    with pytest.raises(UsageError, match="different benchmark versions"):
        measured(read_runs([run(tmp_path / "a", k=6), other]), convention="tflops")


def test_a_run_in_which_everything_failed_is_refused(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "b", [item("v0-a")], [record("v0-a", None)], spec=spec_of(k=8))

    with pytest.raises(UsageError, match="b has no answered question"):
        measured(read_runs([run(tmp_path / "a", k=6), failed]), convention="tflops")


@pytest.mark.parametrize(
    ("kept", "message"), [([50], "K = 6 has 36 frames, so 50"), ([1, 2, 3], "each of the 2 K, got 3")]
)
def test_impossible_numbers_of_frames_are_refused(kept: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(cost_model_of(MODEL), [6, 8], kept=kept, convention="tflops")


def test_a_single_grid_size_stands_in_the_middle_with_its_range() -> None:
    curves = planned(cost_model_of("embedded"), [8], convention="tflops")
    axes = compute_figure(curves, convention="tflops").axes[0]

    low, high = axes.get_xlim()
    assert (low, high) == (4, 16) and len(axes.collections) == 2


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UsageError, match="needs runs, or a model"):
        compute_figure([], convention="tflops")


def test_a_large_sweep_is_drawn(tmp_path: Path) -> None:
    runs = read_runs([large_run(tmp_path / f"k{k}", count=40, k=k) for k in (4, 6)])
    figure = compute_figure(measured(runs, convention="tflops"), convention="tflops")

    answers = [r.answered.cost["tflops"] for r in runs[0].results if r.answered and _asked_in_both(r.id, runs)]
    assert lines(figure)["gridprobe"][1][0] == pytest.approx(np.mean(answers))


def _asked_in_both(name: str, runs: list[Run]) -> bool:
    return all(any(r.id == name and r.outcome != "missing" for r in each.results) for each in runs)
