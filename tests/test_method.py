"""Our method: overview, exit, map, focus with context, and a second look; told from what a scripted model is asked."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jsonschema
import numpy as np
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.early_exit import EarlyExit
from gridprobe.errors import RunError, UsageError
from gridprobe.importance import MapKind
from gridprobe.models import Request
from gridprobe.models.profile import Profile
from gridprobe.options import Options
from gridprobe.report.view import AnswerView
from gridprobe.selectors.base import FLAT
from gridprobe.selectors.gridprobe import NO_ATTENTION
from gridprobe_eval.tasks import Method
from gridprobe_eval.worker import WorkerJob
from test_pipeline import SCHEMA
from videos import numbered_video, read_number
from videos_of_arrays import gray_pool, levels

QUESTION = gp.Question("When does it happen?", ["early", "late", "never"])
UNSURE = {"A": 0.3, "B": 0.4, "C": 0.3}
SURE = {"A": 0.001, "B": 0.998, "C": 0.001}


def frames_shown(request: Request) -> list[int]:
    return sorted(level for group in request.groups for level in levels(group.frames))


def eyes(hot: Iterable[int], *, overview: dict[str, float] = UNSURE, focus: dict[str, float] = SURE) -> MockModel:
    """Sure of B from a few frames if a hot one is among them; all frames together are answered as told."""
    wanted = set(hot)

    def answer(request: Request) -> dict[str, float]:
        if len(request.groups) > 1:
            return focus
        seen = levels(request.frames)
        if len(seen) == 16:
            return overview
        return SURE if wanted & set(seen) else UNSURE

    return MockModel(answer)


def ask(model: MockModel, **options: Any) -> gp.Answer:
    answer = gp.ask(gray_pool(16, width=896, height=448), QUESTION, model=model, k=4, **options)
    jsonschema.validate(answer.to_dict(), SCHEMA)
    return answer


def test_a_sure_overview_is_the_answer_and_nothing_else_is_asked() -> None:
    model = eyes([5], overview=SURE)
    answer = ask(model)

    assert answer.choice == "B" and answer.reached.by == "overview" and answer.reached.sure
    assert len(model.requests) == 1 and answer.cost.total == answer.cost.overview and answer.cost.total.calls == 1
    assert answer.selection.evidence is None and answer.selection.selector == "overview"
    assert answer.shown_native == 0 and answer.warnings == ()


def test_a_sure_overview_gets_a_map_where_a_person_looks() -> None:
    model = eyes([5], overview=SURE)
    answer = ask(model, show_map=True)

    assert answer.reached.by == "overview" and answer.shown_native == 0
    assert answer.selection.evidence is not None and answer.selection.evidence.kind == "evidence"
    assert answer.selection.indices == (5,), "the frame that shows the answer, and no other"
    assert answer.cost.focus.calls == 0 and answer.cost.probe.calls == 1 + 4
    assert [request.visible_frames for request in model.requests[2:]].count((5,)) == 1


def test_the_map_of_a_sure_answer_that_no_single_frame_shows_is_what_the_question_looks_at() -> None:
    answer = ask(eyes([], overview=SURE), show_map=True)

    assert answer.selection.evidence is not None and answer.selection.evidence.kind == "attention"


def test_an_unsure_overview_leads_to_the_hot_frames_among_all_others() -> None:
    model = eyes([5])
    answer = ask(model)

    overview, map_, focus = model.requests
    assert frames_shown(overview) == frames_shown(focus) == list(range(16))
    assert map_.attention and map_.visible_frames == tuple(range(16)) and not overview.attention
    native, small = focus.groups
    assert 5 in levels(native.frames) and len(native.frames) == answer.shown_native == answer.selection.kept
    assert native.view.pixels != small.view.pixels == overview.groups[0].view.pixels
    assert answer.reached.by == "focus" and answer.choice == "B" and not answer.reached.sure
    assert answer.reached.overview is not None and answer.reached.overview.confidence == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("effort", "calls", "by"), [("quick", 1, "overview"), ("auto", 3, "focus"), ("full", 3, "focus")]
)
def test_effort_decides_how_far_an_unsure_question_is_taken(effort: str, calls: int, by: str) -> None:
    model = eyes([5])
    answer = ask(model, effort=effort)

    assert (len(model.requests), answer.reached.by) == (calls, by)


def test_full_effort_goes_on_after_a_sure_overview_and_says_that_it_was_wrong() -> None:
    answer = ask(eyes([5], overview=SURE, focus={"A": 0.9, "B": 0.05, "C": 0.05}), effort="full")

    assert answer.choice == "A" and answer.reached.contradicted
    assert any("contradicts the overview, which was sure of B (late, 99.8%)" in text for text in answer.warnings)
    assert answer.to_dict()["reached"]["stages"]["overview"]["B"] == pytest.approx(0.998)


@pytest.mark.parametrize("sure", [0.4, 0.41])
def test_the_exit_is_taken_at_the_confidence_that_was_given(sure: float) -> None:
    answer = ask(eyes([5]), exit_confidence=sure)

    assert answer.reached.by == ("overview" if sure == 0.4 else "focus")
    assert answer.reached.exit == EarlyExit(sure, "given")


def test_without_a_calibration_the_exit_is_cautious_and_says_so() -> None:
    assert ask(eyes([5])).reached.exit == EarlyExit(0.99, "default")


KINDS: list[tuple[dict[str, Any], MapKind]] = [
    ({"probes": "attention"}, "attention"),
    ({"probes": "fresh"}, "probes"),
]


@pytest.mark.parametrize(("way", "kind"), KINDS)
def test_every_way_to_make_a_map_finds_the_hot_frame(way: dict[str, Any], kind: MapKind) -> None:
    def answer(request: Request) -> dict[str, float]:
        return SURE if 5 in frames_shown(request) else UNSURE

    found = gp.ask(gray_pool(16), QUESTION, model=MockModel(answer), k=4, effort="full", frames=1, **way)
    evidence = found.selection.evidence

    assert found.selection.indices == (5,)
    assert evidence is not None and evidence.kind == kind
    assert (evidence.by_frame is not None) == (way["probes"] == "attention")


def test_a_model_without_a_memory_gets_fresh_probes_and_the_answer_says_so() -> None:
    model = MockModel(eyes([5])._answer)
    model.capabilities = replace(model.capabilities, kv_reuse=False, attention_map=False)
    answer = ask(model)

    assert NO_ATTENTION in answer.warnings and 5 in answer.selection.indices
    assert not any(request.attention or request.visible_frames is not None for request in model.requests)


def test_a_map_without_a_hot_frame_keeps_few_and_says_so() -> None:
    answer = ask(eyes([]))

    assert answer.selection.kept == 2 and FLAT in answer.warnings


@pytest.mark.parametrize("options", [{"selector": "all"}, {"selector": "uniform", "frames": 3}, {"preset": "paper"}])
def test_other_selectors_and_the_paper_take_no_overview(options: dict[str, Any]) -> None:
    settings = Options.from_preset(options.pop("preset", "default"), k=4, frames=options.pop("frames", "auto"))
    setup = settings.resolve(model=eyes([5]), **options)

    assert (setup.effort, setup.overview, setup.context) == ("focus", None, None)


def test_any_selector_may_follow_an_overview() -> None:
    model = eyes([5])
    answer = ask(model, selector="uniform", frames=2, effort="auto")

    assert [len(request.groups) for request in model.requests] == [1, 2] and answer.selection.selector == "uniform"


def test_a_collage_or_another_order_leaves_the_context_out() -> None:
    shows: tuple[Literal["collage", "importance"], ...] = ("collage", "importance")
    for show in shows:
        assert Options(show=show).resolve(model=eyes([5])).context is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"effort": "lazy"}, "effort must be one of quick, auto, full, focus, got 'lazy'"),
        ({"exit_confidence": 1.5}, "exit_confidence must be a number from 0 to 1 or calibrated, got 1.5"),
        ({"probes": "guess"}, "probes must be one of"),
        ({"rotations": 0}, "rotations must be a whole number from 1 to 26, got 0"),
        ({"refine": True, "effort": "focus"}, "effort=focus takes none"),
        ({"prompt_order": "text_first"}, "needs prompt_order=frames_first"),
        ({"preset": "paper", "effort": "auto", "context": None}, "an overview shows true times"),
        ({"signal": "gain"}, "unknown setting 'signal'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_a_sentence(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ask(eyes([5]), **changes)


def test_the_options_are_shown_in_several_orders_and_the_letters_do_not_matter() -> None:
    def likes_a(request: Request) -> dict[str, float]:
        return {label: 5.0 if label == "A" else 1.0 for label in request.labels}

    answer = ask(MockModel(likes_a), effort="quick", rotations=3)

    assert list(answer.posterior.probabilities.values()) == pytest.approx([1 / 3] * 3)
    assert answer.cost.overview.calls == 3


# A second look


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 seconds at 25 fps; every frame shows its own number."""
    return numbered_video(tmp_path_factory.mktemp("refine") / "numbered.mp4", 1000, fps=25)


def brief(first: int, last: int) -> MockModel:
    """Looks at frames near an event, and answers only if a frame shows the event itself."""

    def answer(request: Request) -> dict[str, float]:
        shown = [read_number(frame) for group in request.groups for frame in group.frames.pixels]
        if any(first <= number <= last for number in shown):
            return SURE
        near = len(shown) == 1 and abs(shown[0] - first) < 60
        return {"A": 0.25, "B": 0.5, "C": 0.25} if near else {"A": 0.34, "B": 0.33, "C": 0.33}

    return MockModel(answer)


def test_refine_finds_what_lies_between_two_frames(numbered: Path) -> None:
    model = brief(505, 512)
    without = gp.ask(numbered, QUESTION, model=model, k=5, precision="exact")
    with_it = gp.ask(numbered, QUESTION, model=model, k=5, precision="exact", refine=True)

    assert without.choice == "A" and with_it.choice == "B"
    assert with_it.reached.by == "refined" and with_it.shown_native == 0
    assert any(start <= 505 / 25 <= end for start, end in with_it.reached.stretches)
    assert all(any(a <= t <= b + 0.05 for a, b in with_it.reached.stretches) for t in with_it.pool.times)
    assert with_it.reached.overview is not None and with_it.reached.overview.choice == "A", "what the first look said"
    assert with_it.cost.overview.calls == 2 and with_it.cost.focus.calls == 0
    jsonschema.validate(with_it.to_dict(), SCHEMA)


def test_refine_is_off_where_the_first_look_is_sure(numbered: Path) -> None:
    model = brief(0, 999)
    answer = gp.ask(numbered, QUESTION, model=model, k=5, refine=True)

    assert answer.reached.by == "overview" and len(model.requests) == 1


def test_the_more_confident_of_both_looks_counts_where_neither_is_sure(numbered: Path) -> None:
    def doubtful(request: Request) -> dict[str, float]:
        if len(request.groups) == 2 and request.groups[1].frames.times[-1] > 35:  # the focus of the whole video
            return {"A": 0.2, "B": 0.6, "C": 0.2}
        return {"A": 0.5, "B": 0.3, "C": 0.2} if len(request.groups) == 2 else {"A": 0.4, "B": 0.3, "C": 0.3}

    answer = gp.ask(numbered, QUESTION, model=MockModel(doubtful), k=5, refine=True)

    assert answer.choice == "B" and answer.reached.by == "focus"
    assert answer.cost.overview.calls == answer.cost.probe.calls == answer.cost.focus.calls == 2, "both looks are paid"


def test_refine_needs_a_video() -> None:
    with pytest.raises(UsageError, match="needs a video and not frames"):
        ask(eyes([5]), refine=True)


def test_a_session_asks_its_model_to_keep_the_frames_of_the_overview() -> None:
    model = eyes([5], overview=SURE)
    with gp.Session(gray_pool(16), model=model, k=4, effort="quick") as session:
        session.ask(QUESTION)
    with gp.Session(gray_pool(16), model=model, k=4, effort="quick", reuse=False) as session:
        session.ask(QUESTION)

    assert [request.keep_kv for request in model.requests] == [True, False]
    assert np.isfinite(model.requests[0].groups[0].frames.times).all()


def test_a_run_is_not_resumed_with_another_exit(tmp_path: Path) -> None:
    def asked(threshold: float) -> None:
        settings = Options(k=2, exit_confidence="calibrated")
        setup = replace(settings.resolve(model=eyes([5])), exit=EarlyExit(threshold, "calibrated"))
        job = WorkerJob(tmp_path, Method(setup))
        job.loaded(0)

    asked(0.9)
    asked(0.9)
    with pytest.raises(RunError, match=r"begun with .* an exit at 0\.9, but these are .* an exit at 0\.8"):
        asked(0.8)


# Close-ups: the kept frames behind the overview.


def closer(
    close: dict[str, float], *, overview: dict[str, float] = UNSURE, among: dict[str, float] = SURE
) -> MockModel:
    """Answers as told from the overview, from close-ups behind it, and from frames among all others."""

    def answer(request: Request) -> dict[str, float]:
        if request.close_ups:
            return close
        if len(request.groups) > 1:
            return among
        return overview if len(request.frames) == 16 else UNSURE

    return MockModel(answer)


def test_close_ups_are_shown_behind_the_overview_and_end_the_question() -> None:
    model = closer(SURE)
    answer = ask(model, context="overview")

    overview, _, focus = model.requests
    assert focus.close_ups and focus.groups[-1].frames.times == overview.frames.times
    assert frames_shown(focus)[:1] == [0] and len(focus.units) == 16 + answer.selection.kept
    assert answer.choice == "B" and answer.settings["close_ups"] is True and answer.cost.focus.flops_reused > 0
    assert "behind the overview" in AnswerView(answer).reached
    whole = MockModel(lambda request: SURE).cost(replace(focus, close_ups=False))
    assert answer.cost.focus.flops + answer.cost.focus.flops_reused == pytest.approx(whole.flops, rel=0.05)


@pytest.mark.parametrize(
    ("close", "overview"),
    [
        ({"A": 0.45, "B": 0.3, "C": 0.25}, UNSURE),  # no answer is likelier than not
        ({"A": 0.999, "B": 0.0005, "C": 0.0005}, {"A": 0.02, "B": 0.96, "C": 0.02}),  # the overview's was another
    ],
)
def test_doubt_after_close_ups_shows_the_frames_among_all_others(
    close: dict[str, float], overview: dict[str, float]
) -> None:
    model = closer(close, overview=overview)
    answer = ask(model, context="overview")

    assert [request.close_ups for request in model.requests] == [False, False, True, False]
    assert answer.choice == "B" and "close_ups" not in answer.settings
    assert answer.cost.focus.calls == 2 and "among all others small" in AnswerView(answer).reached


def test_doubt_is_left_where_one_more_pass_would_be_dearer_than_all_frames() -> None:
    model = closer({"A": 0.45, "B": 0.3, "C": 0.25})
    answer = ask(model, context="overview", effort="full", frames=12)

    assert [request.close_ups for request in model.requests] == [False, False, True] and answer.choice == "A"
    assert answer.cost.total.share_of(answer.cost.baseline) < 1.0


def test_other_answers_of_an_overview_that_guessed_are_no_doubt() -> None:
    model = closer({"A": 0.9, "B": 0.05, "C": 0.05})
    answer = ask(model, context="overview")

    assert answer.choice == "A" and len(model.requests) == 3


def test_a_profile_shows_fewer_frames_and_doubt_as_many_as_its_rule_keeps() -> None:
    plan = Options(k=4).resolve(model=closer({"A": 0.45, "B": 0.3, "C": 0.25}))
    profile = Profile(plan.model.identity, probes="attention", context="overview", large=1)
    with gp.Session(gray_pool(16, width=896, height=448), setup=plan.suiting(profile)) as session:
        answer = session.ask(QUESTION)
    model = plan.model
    assert isinstance(model, MockModel)
    few, more = (len(request.groups[0].frames) for request in model.requests[2:])
    assert few == 1 < more == answer.selection.kept
