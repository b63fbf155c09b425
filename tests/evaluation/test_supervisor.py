"""The supervisor: who counts as hung, and what follows from it. Fake workers and a fake clock: no waiting."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

import toy_runs
from crews import Clock, WatchedPool
from gridprobe.errors import RunError, UsageError
from gridprobe.record import Record
from gridprobe_eval import read_records, summary
from gridprobe_eval.benchmarks import Benchmark
from gridprobe_eval.folder import Timeouts
from gridprobe_eval.records import of_run, sealed
from gridprobe_eval.supervisor import LAST_SECONDS, ProcessPool, Supervisor, TaskQueue, WorkerPool
from gridprobe_eval.tasks import Method, Shard, Task, tasks_of
from gridprobe_eval.worker import WorkerJob, WorkerMessage

pytestmark = pytest.mark.usefixtures("decode_here")


class FakePool:
    """Workers that say what a script says. A step of it is a message, or seconds in which nobody says anything."""

    def __init__(self, clock: Clock, *steps: str | float) -> None:
        self.tasks: dict[str, list[Task | None]] = {}
        self.kills: Counter[str] = Counter()
        self.places: dict[str, int] = {}
        self._clock, self._steps = clock, iter(steps)

    def start(self, name: str, place: int) -> None:
        self.tasks[name], self.places[name] = [], place

    def send(self, name: str, task: Task | None) -> None:
        self.tasks[name].append(task)

    def kill(self, name: str) -> None:
        self.kills[name] += 1

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        step = next(self._steps, LAST_SECONDS)
        if isinstance(step, float):
            self._clock.now += step
            return []
        name, kind, *text = step.split()
        return [(name, None if kind == "dead" else WorkerMessage(kind, *text))]  # type: ignore[arg-type]


def supervisor_of(
    folder: Path, pool: WorkerPool, clock: Clock, *, questions: int = 1, workers: int = 1, toy: Benchmark | None = None
) -> Supervisor:
    toy = toy or toy_runs.toy_benchmark(folder, videos=questions, questions=1)
    queue = TaskQueue(tasks_of(toy.items, Shard()), workers=workers)
    timeouts = Timeouts(question=60.0, start=1000.0)
    return Supervisor(folder, queue, pool, prefix="", timeouts=timeouts, note=lambda outcome: None, clock=clock)


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    best = read_records(folder).best
    return {name: (each["outcome"], (each["error"] or {}).get("message", "")) for name, each in best.items()}


def given(pool: FakePool) -> dict[str, list[str | None]]:
    """The videos' only questions that each worker got, in order; None is the end."""
    return {name: [None if task is None else task.items[0].id for task in tasks] for name, tasks in pool.tasks.items()}


def test_a_worker_that_loads_for_long_and_pulses_is_not_hung(tmp_path: Path) -> None:
    clock = Clock()
    loading: list[str | float] = [999.0, "w0 heartbeat"] * 5
    pool = FakePool(clock, *loading, "w0 ready r", "w0 begun v0-q0", "w0 answered v0-q0", "w0 ended", "w0 dead")
    supervisor_of(tmp_path, pool, clock).run()

    assert clock.now > 4000 and list(pool.tasks) == ["w0"]


def test_a_worker_that_is_silent_while_loading_is_killed_and_its_like_not_tried(tmp_path: Path) -> None:
    clock = Clock()
    pool = FakePool(clock, 999.0, "w0 heartbeat", 1001.0, "w0 dead")

    reason = r"w0: it was silent for 1000 s while starting; raise --start-timeout if its models take longer to load;"
    with pytest.raises(RunError, match=f"^no worker is left: worker {reason}"):
        supervisor_of(tmp_path, pool, clock).run()
    assert list(pool.tasks) == ["w0"]


def test_timeout_for_a_question_begins_with_the_question_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    work: list[str | float] = ["w0 ready r", 59.0, "w0 begun v0-q0", 59.0, "w0 heartbeat", 59.0, "w0 answered v0-q0"]
    supervisor_of(tmp_path, pool := FakePool(clock, 900.0, *work, "w0 ended", "w0 dead"), clock).run()

    assert list(pool.tasks) == ["w0"]


def test_a_worker_with_nothing_to_do_may_be_silent(tmp_path: Path) -> None:
    clock = Clock()
    start: list[str | float] = ["w0 ready r0", "w1 ready r1"]
    pulse: list[str | float] = [50.0, "w0 heartbeat"]
    slow: list[str | float] = ["w0 begun v0-q0", *pulse * 10, "w0 answered v0-q0"]
    end = ["w0 ended", "w0 dead", "w1 ended", "w1 dead"]
    pool = FakePool(clock, *start, *slow, *end)
    supervisor_of(tmp_path, pool, clock, workers=2).run()

    assert list(pool.tasks) == ["w0", "w1"] and pool.tasks["w1"] == [None]


def test_a_question_at_which_two_workers_hang_is_given_up_and_the_next_is_asked(tmp_path: Path) -> None:
    clock = Clock()
    hang: list[str | float] = []
    for name in ("w0", "w1"):
        hang += [f"{name} ready r", f"{name} begun v0-q0", 61.0, f"{name} dead"]
    pool = FakePool(clock, *hang, "w2 ready r", "w2 begun v1-q0", "w2 answered v1-q0", "w2 ended", "w2 dead")
    supervisor_of(tmp_path, pool, clock, questions=2).run()

    reason = "it was silent for 60 s; raise --timeout if a question may take longer"
    assert outcomes(tmp_path) == {
        "v0-q0": ("failed", f"2 workers were lost at this question; of the last one: {reason}")
    }
    assert pool.places == {"w0": 0, "w1": 0, "w2": 0}


def test_a_worker_that_answers_between_its_kill_and_its_death_has_answered_and_gets_no_more(tmp_path: Path) -> None:
    clock = Clock()
    killed: list[str | float] = ["w0 ready r", "w0 begun v0-q0", 61.0, "w0 answered v0-q0", "w0 begun v1-q0", "w0 dead"]
    rest = ["w1 ready r", "w1 answered v1-q0", "w1 answered v2-q0", "w1 answered v3-q0", "w1 ended", "w1 dead"]
    pool = FakePool(clock, *killed, *rest)
    supervisor_of(tmp_path, pool, clock, questions=4).run()

    assert pool.kills["w0"] > 0 and outcomes(tmp_path) == {}
    assert given(pool) == {"w0": ["v0-q0", "v1-q0"], "w1": ["v1-q0", "v2-q0", "v3-q0", None]}


def test_a_worker_that_does_not_die_when_killed_holds_nobody_up(tmp_path: Path) -> None:
    """As a process does that waits for a dead disk."""
    clock = Clock()
    start: list[str | float] = ["w0 ready r0", "w1 ready r1", "w0 begun v0-q0", "w1 begun v1-q0"]
    stalled: list[str | float] = [40.0, "w1 heartbeat", 21.0, "w1 answered v1-q0", "w1 begun v2-q0", LAST_SECONDS]
    replaced: list[str | float] = ["w1 heartbeat", 1.0, "w2 ready r2", "w2 begun v0-q0", "w2 answered v0-q0"]
    end = ["w1 answered v2-q0", "w1 ended", "w1 dead", "w2 ended", "w2 dead"]
    pool = FakePool(clock, *start, *stalled, *replaced, *end)
    supervisor_of(tmp_path, pool, clock, questions=3, workers=2).run()

    assert given(pool) == {"w0": ["v0-q0"], "w1": ["v1-q0", "v2-q0", None], "w2": ["v0-q0", None]}
    assert clock.now < 61 + 2 * LAST_SECONDS, "its death is not waited for again at the end"


@pytest.mark.parametrize("beat", ['{"question": "v0-q0"}', '{"question": null}', "", '{"question"', "[]", "{}"])
def test_the_heartbeat_says_at_which_question_a_worker_died(tmp_path: Path, beat: str) -> None:
    """On Ray the last messages of an actor are lost with it; here none of them ever says that it has begun."""
    clock = Clock()
    (tmp_path / "heartbeat-w0.json").write_text(beat)
    (tmp_path / "heartbeat-w1.json").write_text(beat)
    pool = FakePool(clock, "w0 ready r", "w0 dead", "w1 ready r", "w1 dead")
    if "v0-q0" in beat:
        supervisor_of(tmp_path, pool, clock).run()
        assert outcomes(tmp_path)["v0-q0"][1].startswith("2 workers were lost at this question")
    else:
        with pytest.raises(RunError, match=r"^no worker is left: worker w0: it died"):
            supervisor_of(tmp_path, pool, clock).run()


def test_a_transient_failure_that_a_worker_recorded_before_it_died_is_noted_as_one(tmp_path: Path) -> None:
    clock, noted = Clock(), list[WorkerMessage]()
    toy = toy_runs.toy_benchmark(tmp_path, videos=1, questions=1)
    failure = Record.failed(("DecoderKilled", "killed"), transient=True)
    record = of_run(failure, toy.items[0], attempt=1, worker="w0").to_line()
    (tmp_path / "r").write_bytes(sealed(json.dumps(record).encode()))
    pool = FakePool(clock, "w0 ready r", "w0 begun v0-q0", "w0 dead")
    boss = supervisor_of(tmp_path, pool, clock, toy=toy)
    boss._note = noted.append
    boss.run()

    assert [(message.kind, message.transient) for message in noted[2:]] == [("failed", True)]


def test_a_run_ends_though_no_worker_dies(tmp_path: Path) -> None:
    clock = Clock()
    pool = FakePool(clock, "w0 ready r", "w0 begun v0-q0", "w0 answered v0-q0")
    supervisor_of(tmp_path, pool, clock).run()

    assert pool.tasks["w0"][-1] is None and pool.kills["w0"] == 1
    assert clock.now == 2 * LAST_SECONDS  # one to end by itself, one to die


class ActingPool(FakePool):
    """Workers that do what they are given: w0 dies of it, w1 hangs, w2 takes 500 s and pulses, the others answer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.answered: list[tuple[str, str, float]] = []
        self._heard: list[tuple[str, WorkerMessage | None]] = []
        self._done: dict[str, int] = {}

    def start(self, name: str, place: int) -> None:
        super().start(name, place)
        self._heard.append((name, WorkerMessage("ready", "r")))

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        for name, tasks in self.tasks.items():
            number = self._done.get(name, 0)
            if number < len(tasks):
                self._act(name, tasks[number])
            if self.kills[name] == 1:
                self.kills[name] = 2
                self._heard.append((name, None))
        if not self._heard:
            self._clock.now += 10.0
        heard, self._heard = self._heard, []
        return heard

    def _act(self, name: str, task: Task | None) -> None:
        if task is None:
            self._heard += [(name, WorkerMessage("ended")), (name, None)]
        elif name == "w0":
            self._heard += [(name, WorkerMessage("begun", task.items[0].id)), (name, None)]
        elif name == "w1":
            self._heard.append((name, WorkerMessage("begun", task.items[0].id)))
        elif name == "w2" and self._clock.now < 500:
            self._heard.append((name, WorkerMessage("heartbeat")))
            self._clock.now += 10.0
            return
        else:
            self.answered += [(name, each.id, self._clock.now) for each in task.items]
            self._heard += [(name, WorkerMessage("answered", each.id)) for each in task.items]
        self._done[name] = self._done.get(name, 0) + 1


def test_e10_of_four_workers_one_dies_one_hangs_one_is_slow_and_the_others_do_not_wait(tmp_path: Path) -> None:
    clock = Clock()
    pool = ActingPool(clock)
    supervisor_of(tmp_path, pool, clock, questions=12, workers=4).run()

    assert sorted(each for _, each, _ in pool.answered) == sorted(f"v{n}-q0" for n in range(12)), "each of them once"
    assert outcomes(tmp_path) == {}, "no question is given up"
    slow = [now for name, _, now in pool.answered if name == "w2"]
    assert 1 <= len(slow) <= 2 and min(slow) >= 500, "the slow worker is not taken for one that hangs"
    assert all(now < 200 for name, _, now in pool.answered if name != "w2")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["timeout", "start_timeout"])
def test_timeout_is_a_number_of_seconds_that_can_pass(tmp_path: Path, name: str, value: float) -> None:
    option = "--" + name.replace("_", "-")
    with pytest.raises(UsageError, match=rf"^{option} must be a finite number of seconds above 0, got {value}$"):
        toy_runs.evaluation(toy_runs.toy_benchmark(tmp_path), tmp_path / "run", **{name: value})
    assert not (tmp_path / "run").exists()


def test_a_real_process_that_hangs_twice_costs_its_question_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls"))
    toy = toy_runs.toy_benchmark(tmp_path / "data", videos=6, questions=1, words={"v1-q0": "hangs"})
    job, clock = WorkerJob(tmp_path / "run", Method(toy_runs.toy_setup())), Clock()
    pool = WatchedPool(ProcessPool(job, workers=1), clock, hangs="v1-q0")
    with toy_runs.evaluation(toy, job.folder):
        supervisor_of(job.folder, pool, clock, toy=toy).run()

    result = summary(job.folder)
    assert pool.started == ["w0", "w1", "w2"] and toy_runs.hangs() == 2
    assert result["errors"] == {"WorkerDied": 1} and result["all"]["answered"] == 5
    assert "it was silent for 60 s" in outcomes(job.folder)["v1-q0"][1]
