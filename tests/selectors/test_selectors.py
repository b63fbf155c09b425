"""What is special about GridProbe and the controls; test_contract.py holds what all selectors have in common."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gridprobe import MockModel
from gridprobe.errors import ModelError
from gridprobe.importance import Fixed, ShapeRule
from gridprobe.models import Request, Response
from gridprobe.models.base import Cost, posteriors
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.selectors import GridProbe, Random, Selection, Uniform, UniformLike
from videos_of_arrays import gray_pool, levels

QUESTION = Question("Where is the needle?", ["here", "there", "nowhere"], id="q")


def needle(*where: int) -> MockModel:
    """Sure of B exactly when one of these frames is among those shown."""

    def answer(request: Request) -> dict[str, float]:
        found = set(where) & set(levels(request.frames))
        return {label: 0.96 if found and label == "B" else 0.02 for label in request.labels}

    return MockModel(answer)


class TestGridProbe:
    def test_it_probes_every_row_then_every_column_and_nothing_else(self) -> None:
        model = needle(5)

        GridProbe(model).select(gray_pool(16), QUESTION)

        shown = [tuple(levels(request.frames)) for request in model.requests]
        rows = [tuple(range(r * 4, r * 4 + 4)) for r in range(4)]
        columns = [tuple(range(c, 16, 4)) for c in range(4)]
        assert shown == rows + columns
        assert all(request.labels == ("A", "B", "C") for request in model.requests)
        assert all(request.groups[0].view.pixels.max_side == 224 for request in model.requests)

    def test_probe_frames_carry_their_true_times(self) -> None:
        model = needle(5)

        GridProbe(model).select(gray_pool(16, step=25.0), QUESTION)

        assert model.requests[1].frames.times == (100.0, 125.0, 150.0, 175.0)  # row 1
        assert [unit.time for unit in model.requests[5].units] == [25.0, 125.0, 225.0, 325.0]  # column 1

    def test_the_needle_is_the_most_important_cell_and_is_kept(self) -> None:
        selection = GridProbe(needle(77)).select(gray_pool(144), QUESTION)

        assert selection.importance is not None and selection.importance.shape == (12, 12)
        assert selection.importance.argmax() == 77
        assert 77 in selection.indices
        assert selection.kept < 20

    def test_confidences_and_kept_follow_the_equations(self) -> None:
        selection = GridProbe(needle(5)).select(gray_pool(16), QUESTION)

        third = 1 / 3
        assert selection.evidence is not None and selection.importance is not None and selection.shape is not None
        assert selection.evidence.row_confidence == pytest.approx((third, 0.96, third, third))
        assert selection.evidence.column_confidence == pytest.approx((third, 0.96, third, third))
        assert selection.importance[1, 1] == pytest.approx(0.96**2)
        # One cell 0.9216, six 0.32, nine 1/9; skew and excess kurtosis by scipy.stats 1.17 (bias=True).
        assert selection.shape.skew == pytest.approx(2.2787729, abs=1e-6)
        assert selection.shape.excess_kurtosis == pytest.approx(5.2093774, abs=1e-6)
        assert selection.kept == 3  # ceil(16 / (1 + 0.25·4·(2.2788 + 0.5·5.2094))) = ceil(2.72)

    def test_a_flat_map_keeps_everything(self) -> None:
        selection = GridProbe(needle()).select(gray_pool(64), QUESTION)

        assert selection.kept == 64
        assert selection.shape is not None and selection.shape.sigma == 0.0

    def test_a_redundant_map_is_thinned_over_the_whole_video(self) -> None:
        everywhere_but_one_row = GridProbe(needle(*range(12, 144)), budget=Fixed(6))

        selection = everywhere_but_one_row.select(gray_pool(144), QUESTION)

        assert np.diff(selection.indices).max() <= 30 and selection.indices[0] >= 12

    def test_cost_is_the_sum_of_the_probes(self) -> None:
        model = needle(5)

        selection = GridProbe(model).select(gray_pool(16), QUESTION)

        assert selection.cost == sum((model.cost(request) for request in model.requests), Cost())
        assert selection.cost.calls == 8

    def test_a_nan_posterior_fails_the_question(self) -> None:
        with pytest.raises(ModelError):
            GridProbe(MockModel(lambda _: {"A": float("nan"), "B": 1, "C": 1})).select(gray_pool(16), QUESTION)

    def test_doubtful_probes_are_reported(self) -> None:
        class Mumbling(MockModel):
            def run(self, requests: Sequence[Request]) -> Sequence[Response]:
                return [replace(posterior, mass=0.02) for posterior in posteriors(super().run(requests))]

        model = Mumbling(lambda _: {"A": 1, "B": 1, "C": 1})

        assert GridProbe(model).select(gray_pool(4), QUESTION).warnings == (
            "in 4 of 4 probes the model puts only 2.0% of its probability on the option letters",
        )


@pytest.mark.parametrize(("wanted", "places"), [(4, (0, 48, 95, 143)), (1, (0,)), (2, (0, 143)), (144, range(144))])
def test_the_published_control_has_both_ends(wanted: int, places: Sequence[int]) -> None:
    setup = Options.from_preset("paper", frames=wanted).resolve(model=needle(2), selector="uniform")
    like = Options.from_preset("paper", frames=wanted).resolve(model=needle(2), selector="uniform-like")

    for selector in (setup.selector, like.selector.with_model(needle(3)).keeping_kv()):
        assert selector.select(gray_pool(144), QUESTION).indices == tuple(places)
        assert selector.describe()["sampling"] == "linspace"


def test_uniform_takes_the_middle_of_equal_shares() -> None:
    assert Uniform(Fixed(4)).select(gray_pool(16), QUESTION).indices == (2, 6, 10, 14)


def test_random_depends_on_seed_and_question_only() -> None:
    other = Question("Another question?", ["a", "b"])
    pool = gray_pool(144)
    drawn = {Random(Fixed(8), seed=s).select(pool, q).indices for s in (0, 1) for q in (QUESTION, other)}

    assert len(drawn) == 4


def test_uniform_like_keeps_the_budget_and_the_evidence_but_not_the_ranking() -> None:
    pool = gray_pool(144)
    chosen = GridProbe(needle(2)).select(pool, QUESTION)
    control = UniformLike(GridProbe(needle(2))).select(pool, QUESTION)

    assert control.kept == chosen.kept and control.indices != chosen.indices
    assert control.cost == chosen.cost and control.selector == "uniform-like"


@pytest.mark.parametrize("indices", [(), (2, 1), (1, 1), (-1,), (9,)])
def test_a_selection_refuses_positions_out_of_order_or_range(indices: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Selection("x", indices, tuple(0.0 for _ in indices), pool=9)


def test_the_budget_is_exchangeable() -> None:
    pool = gray_pool(144)
    few = GridProbe(needle(7), budget=ShapeRule(gamma0=10.0)).select(pool, QUESTION)
    many = GridProbe(needle(7), budget=ShapeRule(gamma0=0.0)).select(pool, QUESTION)

    assert few.kept == 1 and many.kept == 144
