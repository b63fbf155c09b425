import math

import numpy as np
import pytest

from gridprobe import MockModel
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Choose, FrameGroup, Posterior, Request, View, choose
from gridprobe.models.base import Cost
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.subtitles import Between, Segment
from scoring import shown
from videos_of_arrays import gray_pool


def test_posterior_reads_peak_and_choice() -> None:
    posterior = Posterior.from_probabilities({"A": 1, "B": 3, "C": 0}, Cost())

    assert posterior.probabilities == pytest.approx({"A": 0.25, "B": 0.75, "C": 0.0})
    assert posterior.choice == "B" and posterior.confidence == pytest.approx(0.75)


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


@pytest.mark.parametrize("labels", [("A",), ("A", "A")])
def test_labels_must_be_at_least_two_and_different(labels: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="2 different labels"):
        Request("?", Choose(labels))


def test_an_open_request_has_no_labels_and_is_not_scored() -> None:
    request = Request("Why?", keep_kv=True)

    assert request.labels == () and request.keep_kv
    with pytest.raises(UsageError, match="a request without labels cannot be scored"):
        choose(MockModel(lambda _: {"A": 1.0, "B": 1.0}), [Request("?", Choose(("A", "B"))), request])


def at(*times: float) -> FramePool:
    return FramePool(np.zeros((len(times), 32, 32, 3), np.uint8), times, source="black")


SMALL, PAIRS = View(FrameSize(max_side=32)), View(FrameSize(max_side=32), packing="pairs")


def test_times_of_pairs_are_means_and_an_odd_frame_keeps_its_own() -> None:
    frames = at(1.0, 2.0, 10.0, 20.0, 100.0)

    assert [unit.time for unit in FrameGroup(frames, SMALL).units(0)] == [1.0, 2.0, 10.0, 20.0, 100.0]
    assert [unit.time for unit in FrameGroup(frames, PAIRS).units(0)] == [1.5, 15.0, 100.0]
    assert [unit.members for unit in FrameGroup(frames, PAIRS).units(0)] == [(0, 1), (2, 3), (4,)]
    assert [unit.time for unit in FrameGroup(at(1.0), PAIRS).units(0)] == [1.0]


def test_paper_timestamps_are_those_of_a_24_fps_clip() -> None:
    request = shown(gray_pool(3), timestamps="paper")

    assert [unit.time for unit in request.units] == [0.0, 1 / 24, 2 / 24]


def test_a_request_may_show_nothing() -> None:
    request = Request("?", Choose(("A", "B")))

    assert request.units == () and request.texts == ("",)
    with pytest.raises(UsageError, match=r"shows 0 groups of frames; look at request\.groups"):
        _ = request.frames


def test_groups_are_merged_in_time_order_and_one_group_keeps_its_own() -> None:
    small, large = FrameGroup(at(0.0, 4.0, 8.0), SMALL), FrameGroup(at(2.0, 6.0), View(FrameSize()))
    request = Request("?", Choose(("A", "B")), (small, large))

    assert [(unit.group, unit.time) for unit in request.units] == [(0, 0.0), (1, 2.0), (0, 4.0), (1, 6.0), (0, 8.0)]
    assert request.frames_of(request.units[3]).times == (6.0,)
    backwards = Request("?", Choose(("A", "B")), (FrameGroup(at(8.0, 0.0), SMALL),))
    assert [unit.time for unit in backwards.units] == [8.0, 0.0]


@pytest.mark.parametrize(
    ("groups", "between", "complaint"),
    [
        ((FrameGroup(at(4.0, 0.0), SMALL), FrameGroup(at(1.0), SMALL)), False, "each must be in time order"),
        (
            (FrameGroup(at(0.0), View(FrameSize(), timestamps="paper")), FrameGroup(at(1.0), SMALL)),
            False,
            'timestamps="paper" hides them',
        ),
        ((FrameGroup(at(0.0, 2.0), PAIRS), FrameGroup(at(1.0), SMALL)), True, 'need packing="single"'),
    ],
)
def test_groups_that_cannot_be_merged_are_refused(
    groups: tuple[FrameGroup, ...], between: bool, complaint: str
) -> None:
    texts = ("",) * (sum(len(group.frames) for group in groups) + 1) if between else ()
    with pytest.raises(UsageError, match=complaint):
        Request("?", Choose(("A", "B")), groups, between=texts)


def test_subtitles_stand_between_the_frames_of_all_groups() -> None:
    spoken = Between((Segment(0.5, 1.5, "one"), Segment(2.5, 3.5, "two")))
    question = Question("?", ["x", "y"], spoken=spoken)
    groups = (FrameGroup(at(0.0, 3.0), SMALL), FrameGroup(at(1.0, 2.0), SMALL))

    merged = Request.about(question, groups)
    alone = Request.about(question, (FrameGroup(at(0.0, 1.0, 2.0, 3.0), SMALL),))

    assert merged.texts == alone.texts and "one" in "".join(merged.texts)
