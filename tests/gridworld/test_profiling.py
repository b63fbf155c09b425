"""Profiles: every fault of a model is noticed, and what was measured decides what nobody chose."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridprobe import MockModel
from gridprobe.errors import DataError
from gridprobe.models import Posterior, Request
from gridprobe.models.profile import Profile, find_profile, read_profile, write_profile
from gridprobe.options import Options
from gridprobe.selectors import GridProbe
from gridprobe.selectors.gridprobe import map_of_heads
from gridprobe.video import FrameSize
from gridprobe_world import profiling
from gridprobe_world.needles import Needle, needles
from gridprobe_world.profiling import NEEDLES, Profiler, aucs, head_weights, steps_of


@dataclass
class Oracle:
    """What a model answers that reads exactly what it can see."""

    needles: dict[str, Needle]
    side: int = 96
    """The smallest frames that it reads; of fine needles the full size."""
    most: int = 1000
    """In longer sequences it sees nothing of the middle third."""
    sure: float = 0.997

    def __call__(self, request: Request) -> Mapping[str, float]:
        needle = self.needles.get(request.prompt)
        if needle is None:  # asked when: it cannot tell time
            return {label: 1 / len(request.labels) for label in request.labels}
        right = str(needle.question.answer)
        rest = dict.fromkeys(request.labels, (1 - self.sure) / 3)
        if self.sees(request, needle):
            return {**rest, right: self.sure}
        return dict.fromkeys(request.labels, 0.25)

    def sees(self, request: Request, needle: Needle) -> bool:
        """Whether a frame with the evidence is shown large enough, and not forgotten."""
        evidence = {needle.frames.times[place] for place in needle.evidence}
        count = sum(len(group.frames) for group in request.groups)
        for group in request.groups:
            large = max(group.size(1)) >= (self.side if needle.kind == "plain" else 448)
            for place, time in enumerate(group.frames.times):
                forgotten = count > self.most and count <= 3 * place < 2 * count
                if time in evidence and large and not forgotten:
                    return True
        return False


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Needle]:
    """All needles that were made, by their prompts; small ones, to be quick."""
    made: dict[str, Needle] = {}
    make = needles

    def recorded(*args: Any, **options: Any) -> list[Needle]:
        new = list(make(*args, **options))
        unique = [replace(each, question=replace(each.question, text=f"{len(made) + n}: {each.question.text}"))
                  for n, each in enumerate(new)]  # fmt: skip
        made.update({each.question.prompt: each for each in unique})
        return unique

    monkeypatch.setattr(profiling, "needles", recorded)
    return made


class Finder(MockModel):
    """A model whose attention points at the evidence, whether it reads it or not, next to heads that do not."""

    def __init__(self, oracle: Oracle, *, heads: int = 3, points: bool = True) -> None:
        super().__init__(oracle)
        self._oracle, self._heads, self._points = oracle, heads, points

    def run(self, requests: Sequence[Request]) -> list[Any]:
        responses = super().run([replace(each, attention=False) for each in requests])
        return [
            replace(response, heads=self._looks(request))
            if isinstance(response, Posterior) and request.attention
            else response
            for request, response in zip(requests, responses, strict=True)
        ]

    def _looks(self, request: Request) -> Any:
        count = len(request.frames)
        rng = np.random.default_rng(len(request.prompt))
        looks = rng.uniform(0, 0.2, (self._heads, count))
        needle = self._oracle.needles[request.prompt]
        if self._points:
            looks[1, list(needle.evidence)] = 0.9
        return looks


def measured(oracle: Oracle, **options: Any) -> Profile:
    return Profiler(Finder(oracle, **options), "plain").measure()


def test_a_good_model_gets_the_whole_method(shown: dict[str, Needle]) -> None:
    profile = measured(Oracle(shown))
    assert (profile.reads, profile.small, profile.k, profile.probes) == (1.0, 96, 12, "attention")
    assert [number for number, _ in profile.heads] == [1] and profile.found == profile.needles == NEEDLES
    assert profile.order_bias == 0.0 and profile.exit == 0.99 and profile.overviews <= profiling.MOST_OVERVIEWS
    assert "read" in dict(steps_of(profile))["close-ups"]


def test_a_model_that_cannot_read_is_told_so_and_nothing_more_is_measured(shown: dict[str, Needle]) -> None:
    profile = measured(Oracle(shown, side=10_000))
    assert profile.reads == 0.25 and profile.probes == "none" and profile.k is None and profile.overviews == 0


def test_short_sight_gives_larger_small_frames(shown: dict[str, Needle]) -> None:
    assert measured(Oracle(shown, side=160)).small == 160


def test_a_forgotten_middle_gives_fewer_frames(shown: dict[str, Needle]) -> None:
    assert measured(Oracle(shown, most=40)).k == 6


def test_many_heads_that_do_not_point_change_nothing(shown: dict[str, Needle]) -> None:
    profile = measured(Oracle(shown), heads=400)
    assert [number for number, _ in profile.heads] == [1] and profile.found == NEEDLES


def test_heads_that_never_point_are_not_believed(shown: dict[str, Needle]) -> None:
    profile = measured(Oracle(shown), points=False)
    assert profile.probes in ("fresh", "when", "none")


def test_confident_mistakes_switch_the_exit_off(shown: dict[str, Needle]) -> None:
    class Guesser(Oracle):
        def __call__(self, request: Request) -> Mapping[str, float]:
            answer = super().__call__(request)
            if max(answer.values()) < 0.5 and len(request.groups) == 1 and len(request.frames) > 100:
                return {label: 0.997 if label == "A" else 0.001 for label in request.labels}
            return answer

    assert measured(Guesser(shown)).exit == 1.0


def test_a_liking_for_a_letter_is_measured_where_frames_show_no_answer(shown: dict[str, Needle]) -> None:
    class Liking(Oracle):
        def __call__(self, request: Request) -> Mapping[str, float]:
            answer = super().__call__(request)
            return answer if max(answer.values()) > 0.9 else {each: 7.0 if each == "A" else 1.0 for each in answer}

    profile = measured(Liking(shown))
    assert profile.reads == 1.0 and profile.order_bias == 0.6
    assert "rotations=4" in dict(steps_of(profile))["order bias"]


def test_the_short_profile_measures_the_map_alone(shown: dict[str, Needle]) -> None:
    profile = Profiler(Finder(Oracle(shown)), "plain").measure(short=True)
    assert profile.small is None and profile.context is None and profile.heads and profile.found == NEEDLES


def test_auc_counts_pairs_and_halves_ties() -> None:
    heads = np.array([[0.1, 0.9, 0.5], [0.5, 0.5, 0.5], [0.9, 0.1, 0.5]])
    assert aucs(heads, [1]).tolist() == [1.0, 0.5, 0.0]
    assert head_weights([heads] * 3, [[1]] * 3) == ((0, 1.0),)


def test_heads_are_chosen_where_that_finds_more_of_needles_left_out() -> None:
    rng = np.random.default_rng(3)
    evidence = [[place] for place in range(10, 130, 10)]
    noise = [rng.uniform(0, 1, (40, 144)) for _ in evidence]
    one_points = [np.concatenate([each, np.eye(144)[shown]]) for each, shown in zip(noise, evidence, strict=True)]
    assert profiling.chosen_heads(one_points, evidence) == ((40, 1.0),)
    all_point_a_little = [each + 0.25 * np.eye(144)[shown[0]] for each, shown in zip(noise, evidence, strict=True)]
    assert profiling.chosen_heads(all_point_a_little, evidence) == ()


def test_one_head_by_luck_does_not_beat_the_mean() -> None:
    """It points in eleven needles and misleads in the twelfth; the mean of all finds every one."""
    evidence = [[place] for place in range(10, 130, 10)]
    rng = np.random.default_rng(4)
    looks = []
    for number, (shown,) in enumerate(evidence):
        heads = rng.uniform(0, 0.2, (30, 144))
        heads[number % 30 :: 3, shown] = 0.9  # a third of the heads, others each time
        heads[29] = np.eye(144)[shown] if number else np.eye(144)[:8:2].sum(0) + np.eye(144)[100:106].sum(0)
        looks.append(heads)
    assert profiling.chosen_heads(looks, evidence) == ()


def test_weighted_heads_count_by_how_far_a_frame_stands_out() -> None:
    heads = np.array([[0.5, 0.5, 0.6], [0.0, 0.02, 0.0]])
    assert map_of_heads(heads, ()).argmax() == 2
    assert map_of_heads(heads, ((1, 1.0),)).tolist() == [0.0, 1.0, 0.0]
    assert map_of_heads(np.full((2, 3), 0.5), ((0, 1.0),)).tolist() == [0.0, 0.0, 0.0]


# What becomes of a profile.

FULL = Profile(
    "mock", small=160, k=8, probes="attention", heads=((1, 1.0),), found=11, needles=12, context="overview", exit=0.97
)


def plan_with(profile: Profile, **options: Any) -> Any:
    plan = Options.from_preset("default", **options).resolve(model=MockModel(lambda request: {}))
    return replace(plan, exit=None).suiting(profile)


def test_a_profile_decides_what_nobody_chose() -> None:
    plan = plan_with(FULL)
    assert plan.overview.pixels == plan.context.pixels == plan.selector.small_view.pixels == FrameSize(max_side=160)
    assert plan.sampling.num_frames == 64 and plan.selector.heads == ((1, 1.0),) and plan.behind
    assert plan.describe()["profile"] == str(FULL) and "11 of 12 needles" in str(FULL)
    assert plan._found_exit().threshold == 0.97 and plan._found_exit().source == "profile"


def test_what_somebody_chose_wins() -> None:
    plan = plan_with(FULL, small=FrameSize(max_side=96), k=6, context="small", probes="fresh", exit_confidence=0.5)
    assert plan.overview.pixels == FrameSize(max_side=96) and plan.sampling.num_frames == 36
    assert not plan.behind and plan.selector.probes == "fresh"


def test_without_a_map_that_works_all_frames_are_shown_and_the_answer_says_so() -> None:
    plan = plan_with(replace(FULL, probes="none", heads=()))
    assert plan.effort == "all" and "no map of this model finds needles" in plan.doubts[0]
    doubtful = plan_with(replace(FULL, found=3))
    assert doubtful.doubts == ("the map may not show where: it found 3 of 12 needles",)
    assert isinstance(doubtful.selector, GridProbe)


def test_a_profile_is_kept_with_the_identity_of_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPROBE_CALIBRATION", str(tmp_path))
    write_profile(FULL)
    assert find_profile("mock") == FULL and find_profile("mock:bfloat16") is None
    with pytest.raises(DataError, match="was measured on mock, not on other"):
        read_profile(write_profile(FULL, tmp_path / "mine.json"), model="other")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda values: [], "must be an object"),
        (lambda values: {**values, "extra": 1}, "must be an object"),
        (lambda values: {**values, "exit": 2}, "exit is 2"),
        (lambda values: {**values, "exit": True}, "exit is True"),
        (lambda values: {**values, "heads": [[1]]}, "heads is"),
        (lambda values: {**values, "k": 10**9}, "k is"),
        (lambda values: {**values, "small": "160"}, "small is '160'"),
        (lambda values: {**values, "probes": "guess"}, "probes is 'guess'"),
        (lambda values: {**values, "seconds": float("1e400")}, "not JSON|seconds"),
    ],
)
def test_a_damaged_profile_is_refused_with_a_sentence(
    tmp_path: Path, damage: Callable[[dict[str, object]], object], why: str
) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(damage(FULL.to_dict())))
    with pytest.raises(DataError, match=why):
        read_profile(file)


def test_the_model_that_was_shipped_with_a_profile_uses_it() -> None:
    model = MockModel(lambda request: {})
    model.capabilities = replace(model.capabilities, profile=replace(FULL, k=None))
    plan = Options().resolve(model=model).loaded()
    assert isinstance(plan.profile, Profile) and plan.behind
    assert Options(profile="off").resolve(model=model).loaded().profile == "off"
