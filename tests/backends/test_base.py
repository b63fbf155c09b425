import math

import pytest

from gridprobe.backends import Posterior, ScoreRequest
from gridprobe.backends.base import group_times
from gridprobe.errors import ModelError, UsageError
from gridprobe.flops import Cost
from gridprobe.video import FrameSize
from videos_of_arrays import gray_pool


def test_posterior_reads_peak_and_choice() -> None:
    posterior = Posterior.from_probabilities({"A": 1, "B": 3, "C": 0}, Cost())

    assert posterior.probabilities == pytest.approx({"A": 0.25, "B": 0.75, "C": 0.0})
    assert (posterior.choice, posterior.confidence) == ("B", pytest.approx(0.75))


def test_of_equal_labels_the_first_is_chosen() -> None:
    assert Posterior.from_probabilities({"A": 1, "B": 1}, Cost()).choice == "A"


def test_nan_is_an_error_and_never_an_answer() -> None:
    with pytest.raises(ModelError, match="NaN"):
        Posterior(("A", "B"), (math.nan, 0.0))


def test_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ModelError, match=r"sum to 0\.5"):
        Posterior(("A", "B"), (math.log(0.25), math.log(0.25)))


@pytest.mark.parametrize("weights", [{"A": 0.0, "B": 0.0}, {"A": -1.0, "B": 2.0}, {"A": math.nan, "B": 1.0}])
def test_weights_that_are_no_probabilities_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ModelError, match="non-negative"):
        Posterior.from_probabilities(weights, Cost())


def test_low_letter_mass_is_a_warning() -> None:
    posterior = Posterior(("A", "B"), (math.log(0.5), math.log(0.5)), mass=0.03)

    assert posterior.warnings == ("the model puts only 3.0% of its probability on the option letters",)
    assert Posterior(("A", "B"), (math.log(0.5), math.log(0.5)), mass=0.5).warnings == ()


@pytest.mark.parametrize("labels", [(), ("A",), ("A", "A")])
def test_labels_must_be_at_least_two_and_different(labels: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="2 different labels"):
        ScoreRequest(gray_pool(2), "?", labels, FrameSize())


def test_group_times_of_pairs_are_means_and_an_odd_frame_keeps_its_own() -> None:
    times = (1.0, 2.0, 10.0, 20.0, 100.0)

    assert group_times(times, "single") == times
    assert group_times(times, "pairs") == (1.5, 15.0, 100.0)
    assert group_times(times[:1], "pairs") == (1.0,)


def test_paper_timestamps_are_those_of_a_24_fps_clip() -> None:
    request = ScoreRequest(gray_pool(3), "?", ("A", "B"), FrameSize(), timestamps="paper")

    assert request.times == (0.0, 1 / 24, 2 / 24)
