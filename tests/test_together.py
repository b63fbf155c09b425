"""Questions asked together get the answers that they get one by one, at the same cost."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe._util import ProgressEvent, listening
from gridprobe.answer import Answer
from gridprobe.concurrency import in_sequence
from gridprobe.errors import Cancelled, ModelError, UsageError
from gridprobe.models import Model, Request, Response, load_model
from gridprobe.models.base import Cost
from gridprobe.video import FramePool
from gridprobe.video.decoder_pool import ChildDecoder
from gridprobe_world.dataset import items, pool_of
from videos import numbered_video
from videos_of_arrays import gray_pool, levels

COUNT = 11
POOL = gray_pool(16, width=896, height=448)
QUESTIONS = [gp.Question(f"Is it {number}?", ["yes", "no", "perhaps"]) for number in range(COUNT)]


class Counted(MockModel):
    """Of question n it is sure in the overview if n is even, and otherwise from frame n alone."""

    def __init__(self, fails: str = "") -> None:
        super().__init__(self._believe, name="counted")
        self.calls: list[int] = []
        self._fails = fails

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.calls.append(len(requests))
        if self._fails and any(self._fails in request.prompt for request in requests):
            raise ModelError(f"cannot answer {self._fails}")
        return super().run(requests)

    @staticmethod
    def _believe(request: Request) -> dict[str, float]:
        number = int(request.prompt.split("Is it ")[1].split("?")[0])
        seen = [level for group in request.groups for level in levels(group.frames)]
        if number % 2 == 0 or seen == [number] or len(request.groups) > 1:
            return {"A": 0.997 - number / 1e4, "B": 0.002, "C": 0.001}
        return {"A": 0.3, "B": 0.4, "C": 0.3}


def told(answer: Answer) -> dict[str, Any]:
    """Everything about an answer but how long it took and what was reused."""
    found = answer.to_dict()
    found.pop("seconds")
    found["cost"].pop("tflops_computed")
    return found


def total(answers: Sequence[Answer]) -> Cost:
    return sum((answer.cost.total for answer in answers), Cost())


@pytest.mark.parametrize("together", [1, 3, 8, 100])
@pytest.mark.parametrize(
    "changes", [{}, {"probes": "fresh"}, {"rotations": 2}, {"effort": "full", "selector": "uniform", "frames": 3}]
)
def test_answers_costs_and_frames_are_those_of_one_by_one(together: int, changes: dict[str, Any]) -> None:
    one_by_one = [gp.Session(POOL, model=Counted(), k=4, **changes).ask(question) for question in QUESTIONS]
    model = Counted()
    answers = gp.Session(POOL, model=model, k=4, **changes).ask_all(QUESTIONS, together=together)
    assert list(map(told, answers)) == list(map(told, one_by_one))
    assert total(answers) == total(one_by_one)


def test_stages_of_all_questions_are_one_call_each() -> None:
    model = Counted()
    gp.Session(POOL, model=model, k=4).ask_all(QUESTIONS[:8])
    assert model.calls == [8, 4, 4], "8 overviews, 4 maps, 4 focused passes"


def test_the_map_is_made_where_it_is_wanted() -> None:
    answers = gp.Session(POOL, model=Counted(), k=4).ask_all(QUESTIONS, show_map=True)
    assert all(answer.selection.scores is not None for answer in answers)


def test_two_models_that_wait_for_each_other_do_not_block() -> None:
    """Even questions end after the overview while odd ones wait for the answering model."""
    small, large = Counted(), Counted()
    answers = gp.Session(POOL, model=small, answer_model=large, k=4).ask_all(QUESTIONS[:4], together=4)
    assert [answer.reached.by for answer in answers] == ["overview", "focus"] * 2
    assert large.calls == [2]


def test_an_error_of_one_question_leaves_the_others_alone() -> None:
    session = gp.Session(POOL, model=Counted(fails="Is it 3?"), k=4)
    outcomes = dict(session.ask_each(QUESTIONS))
    failed = {number for number, outcome in outcomes.items() if outcome.exception()}
    assert failed == {3} and str(outcomes[3].exception()) == "cannot answer Is it 3?"
    assert outcomes[4].result().choice == "A"
    with pytest.raises(ModelError, match="cannot answer Is it 3"):
        session.ask_all(QUESTIONS)


def test_no_questions_no_answers() -> None:
    assert gp.Session(POOL, model=Counted(), k=4).ask_all([]) == []


@pytest.mark.parametrize("together", [0, -1, True, 2.5])
def test_a_senseless_number_is_refused(together: Any) -> None:
    with pytest.raises(UsageError, match="together must be a whole number of at least 1"):
        gp.Session(POOL, model=Counted(), k=4).ask_all(QUESTIONS, together=together)


def test_one_video_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = numbered_video(tmp_path / "numbered.mp4", 40)
    read, reads = ChildDecoder.read, []

    def counted(self: ChildDecoder, stream: Any, size: tuple[int, int], *rest: Any, **options: Any) -> Any:
        reads.append(size)
        return read(self, stream, size, *rest, **options)

    monkeypatch.setattr(ChildDecoder, "read", counted)
    model = MockModel(lambda request: {"A": 0.999, "B": 0.0005, "C": 0.0005})
    gp.Session(video, model=model, k=4).ask_all(QUESTIONS)
    assert len(reads) == 1


def test_a_caller_that_stops_ends_the_work() -> None:
    """Nothing is left running: threads end although questions were not answered."""
    model = Counted()
    outcomes = gp.Session(POOL, model=model, k=4).ask_each(QUESTIONS, together=2)
    next(outcomes)
    outcomes.close()
    for thread in threading.enumerate():
        if thread.name.startswith("gridprobe-question"):
            thread.join()
    assert sum(model.calls) < 2 * COUNT


def test_progress_and_cancelling_work_as_for_one_question() -> None:
    events: list[ProgressEvent] = []
    session = gp.Session(POOL, model=Counted(), k=4)
    with listening(events.append):
        session.ask_all(QUESTIONS[:2])
    assert {event.stage for event in events} == {"model"}
    stop = threading.Event()
    stop.set()
    with listening(lambda event: None, cancel=stop), pytest.raises(Cancelled):
        session.ask_all(QUESTIONS[:2])


def test_outcomes_in_sequence() -> None:
    assert list(in_sequence([(2, "c"), (0, "a"), (3, "d"), (1, "b")])) == ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def embedded() -> Model:
    return load_model("embedded:nano", device="cpu")


def gridworld() -> tuple[FramePool, list[gp.Question]]:
    asked = items(8, per_video=8)
    pool = pool_of(asked[0], cells=36, size=96)
    return pool, [replace(item.asked.question, id=item.id) for item in asked]


@pytest.mark.parametrize("changes", [{}, {"effort": "full"}, {"probes": "fresh"}, {"rotations": 2}], ids=str)
def test_the_embedded_model_answers_as_one_by_one(embedded: Model, one_thread: None, changes: dict[str, Any]) -> None:
    pool, questions = gridworld()

    def forgetful() -> gp.Session:
        embedded.engine.kept.clear()  # type: ignore[attr-defined]
        return gp.Session(pool, model=embedded, k=6, preset="gridworld", exit_confidence=0.9, **changes)

    session = forgetful()
    one_by_one = [session.ask(question) for question in questions]
    answers = forgetful().ask_all(questions)
    for mine, other in zip(answers, one_by_one, strict=True):
        assert mine.posterior.logprobs == pytest.approx(other.posterior.logprobs, abs=1e-4)
        assert (mine.choice, mine.reached.by) == (other.choice, other.reached.by)
        assert mine.selection.indices == other.selection.indices
        assert mine.cost.total.flops == other.cost.total.flops
    computed = [total(some).flops_computed for some in (answers, one_by_one)]
    assert computed[0] <= computed[1] * 1.001, "questions that keep the same frames also share their focused passes"


def test_futures_say_what_became_of_each_question(embedded: Model) -> None:
    pool, questions = gridworld()
    for number, outcome in gp.Session(pool, model=embedded, k=6, preset="gridworld").ask_each(questions[:3]):
        assert isinstance(outcome, Future) and outcome.done()
        assert outcome.result().question.id == questions[number].id
