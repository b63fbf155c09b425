"""The queue: whatever dies, each question is finished or given up exactly once, and for a reason of its own."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gridprobe.question import Question
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.supervisor import TaskQueue
from gridprobe_eval.tasks import Task


def tasks(videos: int, questions: int) -> list[Task]:
    question = Question("?", ("a", "b"))
    return [
        Task(tuple(Item(f"v{v}q{q}", question, Path(f"v{v}"), f"v{v}") for q in range(questions)))
        for v in range(videos)
    ]


def names(task: Task | None) -> list[str]:
    return [] if task is None else [item.id for item in task.items]


@given(st.data())
def test_every_question_is_settled_once_whatever_dies(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 4))
    queue = TaskQueue(tasks(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))), workers=workers)
    total, settled, blamed, alive = queue.left, Counter[str](), Counter[str](), [f"w{n}" for n in range(workers)]
    queues: dict[str, list[str]] = {name: [] for name in alive}
    fresh = workers
    while queue.left:
        worker = data.draw(st.sampled_from(alive))
        queues[worker] += names(queue.take(worker))
        if not queues[worker]:
            continue
        name = queues[worker][0]
        queue.begin(worker, name)
        fate = data.draw(st.sampled_from(["finish", "finish", "finish", "die", "die after writing"]))
        if fate == "finish":
            queue.finish(worker, queues[worker].pop(0))
            settled[name] += 1
            continue
        blamed[name] += fate == "die"
        settled[name] += fate != "die"
        for item, _ in queue.lost(worker, written={name} if fate != "die" else ()):
            assert blamed[item.id] == 2
            settled[item.id] += 1
        alive[alive.index(worker)] = f"w{fresh}"
        queues[f"w{fresh}"] = []
        fresh += 1

    assert len(settled) == total and set(settled.values()) == {1}


def test_a_worker_gets_the_next_video_ahead_while_there_is_enough_for_all() -> None:
    queue = TaskQueue(tasks(4, 1), workers=2)

    assert names(queue.take("w0")) == ["v0q0"]
    assert names(queue.take("w1")) == ["v1q0"]
    assert names(queue.take("w0")) == ["v2q0"]
    assert queue.take("w1") is None, "the last one is for whoever is free first"
    assert queue.take("w0") is None


def test_after_a_death_what_was_held_goes_first_and_alone() -> None:
    queue = TaskQueue(tasks(4, 2), workers=1)
    queue.take("w0"), queue.take("w0")
    queue.begin("w0", "v0q0")
    queue.finish("w0", "v0q0")
    queue.begin("w0", "v0q1")
    assert queue.lost("w0") == []

    first = queue.take("w1")
    assert names(first) == ["v0q1"] and first is not None and first.alone and first.attempts == {"v0q1": 1}
    assert queue.take("w1") is None, "nothing beside a suspect"
    queue.finish("w1", "v0q1")
    second = queue.take("w1")
    assert names(second) == ["v1q0", "v1q1"] and second is not None and second.alone and second.attempts == {}


def test_a_question_is_given_up_at_its_second_death_and_its_neighbours_are_not() -> None:
    queue = TaskQueue(tasks(1, 3), workers=1)
    for worker in ("w0", "w1"):
        queue.take(worker)
        queue.begin(worker, "v0q0")
        given_up = queue.lost(worker)

    assert [(item.id, attempt) for item, attempt in given_up] == [("v0q0", 2)]
    assert names(queue.take("w2")) == ["v0q1", "v0q2"]


def test_a_record_written_before_the_death_counts_and_nobody_is_blamed() -> None:
    queue = TaskQueue(tasks(1, 2), workers=1)
    queue.take("w0")
    queue.begin("w0", "v0q0")

    assert queue.lost("w0", written={"v0q0"}) == []
    assert names(queue.take("w1")) == ["v0q1"] and not queue.deaths
