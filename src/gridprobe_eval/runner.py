"""Evaluation: asks a benchmark's questions with one setup and writes to a folder. Running it again resumes it.

with Evaluation(benchmark, "runs/first", setup=setup) as evaluation:
    print(evaluation.counts)
    print(evaluation.run()["all"]["accuracy"])
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gridprobe._util import announce, listening, report
from gridprobe.early_exit import Calibration, choose_threshold, needed
from gridprobe.errors import Attempt, RunError, UsageError
from gridprobe.plan import Plan
from gridprobe_eval.benchmarks import Benchmark, Item
from gridprobe_eval.disk import listed, remove
from gridprobe_eval.folder import RunFolder, Timeouts, clear_ends, write_end
from gridprobe_eval.metrics import summary
from gridprobe_eval.reader import Spec, installed, stops
from gridprobe_eval.records import RowChanges, named, now, other_rows, read_records
from gridprobe_eval.supervisor import ProcessPool, RayPool, Supervisor, TaskQueue, WorkerPool
from gridprobe_eval.tasks import (
    Account,
    Choice,
    Method,
    Shard,
    Task,
    Totals,
    changed_items,
    taken_by,
    tasks_of,
)
from gridprobe_eval.worker import Prefetch, Worker, WorkerJob, WorkerMessage

MAX_FAILURES = 0.1


@dataclass(frozen=True)
class Counts:
    """The progress of a run, or of the shard of it that was asked for."""

    done: int
    failed: int
    todo: int

    def __str__(self) -> str:
        return f"{self.done} done, {self.failed} failed, {self.todo} to do"


class RunState(NamedTuple):
    """What a run is doing; announced as "run" (see `gridprobe._util`) whenever it changes."""

    doing: str
    done: int = 0
    """Questions that were answered or failed, also before a resume."""
    total: int = 0
    right: int = 0
    judged: int = 0
    """Of those done, how many have a known answer; a failed one counts as wrong."""

    @property
    def accuracy(self) -> float | None:
        """The share of right answers until now."""
        return self.right / self.judged if self.judged else None


def run(benchmark: Benchmark, out: str | Path, **options: Any) -> dict[str, Any]:
    """Ask a benchmark's questions and return the summary of the folder; arguments as for `Evaluation`."""
    with Evaluation(benchmark, out, **options) as evaluation:
        return evaluation.run()


@dataclass(frozen=True)
class PoolOptions:
    """Who does the work."""

    workers: int | None = None
    """How many processes; 0 is this process, the only way to use a loaded model. By default named models get one
    process, and with Ray one for every GPU."""
    runs_on: Literal["local", "ray"] = "local"
    """This machine, or a Ray cluster."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    """How long a worker may be silent."""

    def __post_init__(self) -> None:
        if self.runs_on not in ("local", "ray"):
            raise UsageError(f"--engine is local or ray, got {self.runs_on!r}")
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"--workers must be at least 0, got {self.workers}")

    def size(self, setup: Plan) -> int | None:
        """The number of workers: 0 is this process; None, with Ray, as many as fit."""
        if setup.travels:
            return 1 if self.workers is None and self.runs_on == "local" else self.workers
        if self.workers or self.runs_on == "ray":
            raise UsageError("a loaded model cannot travel to other processes; name it, or use workers=0")
        return 0


class Evaluation:
    """A run of a benchmark. As a context manager it locks the folder, so that nobody else writes to it.

    Args:
        benchmark: the questions.
        out: the folder of the run; created if it does not exist, resumed if it is a run with the same spec.
        setup: how every question is asked; its models may be loaded, or only named.
        choice: which questions.
        pool: who asks them.
        subtitles: how subtitles are shown; see `gridprobe_eval.benchmarks.SUBTITLE_MODES`.
        max_failures: stop when more questions than this have failed: a number, or below 1 a share of all.
        retry_failed: ask questions again that failed before.
        redo_changed: ask questions again whose video or row was changed since; otherwise such a run is refused.
        totals: what all questions together may take; a larger one resumes a run that stopped there.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        out: str | Path,
        *,
        setup: Plan,
        choice: Choice | None = None,
        pool: PoolOptions | None = None,
        subtitles: str = "none",
        max_failures: float = MAX_FAILURES,
        retry_failed: bool = False,
        redo_changed: bool = False,
        totals: Totals | None = None,
    ) -> None:
        choice = choice or Choice()
        self.items = choice.items(benchmark)
        self.benchmark, self.folder, self.shard = benchmark, RunFolder(Path(out)), choice.shard
        self._videos = tasks_of(self.items, self.shard)
        self._mine = {item.id: item for task in self._videos for item in task.items}
        self._pool = pool or PoolOptions()
        self._workers = self._pool.size(setup)
        self._method = Method(setup, benchmark.open, subtitles)
        self._retry, self._redo, self._totals = retry_failed, redo_changed, totals or Totals()
        self._allowed = allowed_failures(max_failures, len(self.items))
        self.spec = Spec(
            benchmark=benchmark.name,
            benchmark_version=benchmark.version,
            data=benchmark.data,
            setup=setup.describe(),
            subtitles=subtitles,
            seed=choice.seed,
            limit=choice.limit,
            ids=None if choice.ids is None else [item.id for item in benchmark.items if item.id in set(choice.ids)],
            options=benchmark.options,
        )
        self._stack = ExitStack()
        self._failed = 0

    def __enter__(self) -> "Evaluation":
        with ExitStack() as stack:
            rows = stack.enter_context(self.folder.taken(self.spec, self.items, self.shard, redo=self._redo))
            self._read(rows)
            self._stack = stack.pop_all()
        return self

    def _read(self, rows: RowChanges) -> None:
        """Read what is recorded."""
        records = read_records(
            self.folder.path, fields=("right", "transient", *(("cost", "seconds") if self._totals else ()))
        )
        self.damage = records.damage
        """Damaged lines of record files; their questions are asked again."""
        before, today = self.folder.spec.versions, installed()
        self.other_versions = {name: old for name, old in before.items() if today.get(name) != old}
        """Packages whose version has changed since the run was started, with the old version."""
        mine = self._mine.values()
        other, changed = other_rows(mine, records.best), changed_items(mine, records.best)
        if (other or changed) and not self._redo:
            raise RunError(_changed_sentence(other, changed, self.folder.path))
        self.rows = rows._replace(changed=tuple(item.id for item in other))
        """Rows that were added or removed, and those whose answers are of another row; these are asked again."""
        self.changed = tuple(dict.fromkeys(item.video for item in changed))
        """Videos that were replaced since their questions were answered; these are asked again."""
        stale = {item.id for item in (*other, *changed)}
        self._answered = (records.ids("answered") | records.ids("skipped")) - stale
        self._failures = records.ids("failed") - records.transient - stale
        self._before = records

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def counts(self) -> Counts:
        """The counts when the folder was opened."""
        done, failed = (len(self._mine.keys() & ids) for ids in (self._answered, self._failures))
        return Counts(done, failed, len(self._mine) - done - (0 if self._retry else failed))

    def run(self) -> dict[str, Any]:
        """Ask the unanswered questions and return the summary of the whole folder."""
        tasks, counts = self._tasks(), self.counts
        self._failed = 0 if self._retry else counts.failed
        self._done = counts.done + self._failed
        self._total = self._done + counts.todo
        self._begin()
        self._check_failures()
        for file in listed(self.folder.path, f"heartbeat-{self._prefix}*.json"):
            remove(file)
        clear_ends(self.folder.path, self.shard.name)
        if tasks:
            queue = TaskQueue(tasks, workers=min(self._workers or 1, len(tasks)), account=self._account())
            try:
                self._work(queue)
            except KeyboardInterrupt:
                write_end(self.folder.path, "interrupted", self.shard.name, at=now())
                raise
            if queue.account is not None and queue.unasked:
                sentence = queue.account.stop_sentence(queue.unasked)
                write_end(self.folder.path, "stopped", self.shard.name, sentence=sentence)
        result, stopped = summary(self.folder.path), stops(self.folder.path)
        return {**result, "stopped": list(stopped)} if stopped else result

    def _account(self) -> Account | None:
        """What is left of the totals, if there are any; questions of other shards do not count."""
        if not self._totals:
            return None
        records = self._before
        before = [taken_by(record) for name, record in records.best.items() if name in self._mine]
        again = [count for name, count in records.attempts.items() if name in self._mine]
        return Account(self._totals, self._method.setup.usage_limits, [*before, *[None] * (sum(again) - len(again))])

    @property
    def _prefix(self) -> str:
        return "" if self.shard.count == 1 else f"s{self.shard.name}."

    def _tasks(self) -> list[Task]:
        """The shard's videos with their remaining questions."""
        settled = self._answered | (set() if self._retry else self._failures)
        tasks = []
        for task in self._videos:
            items = tuple(item for item in task.items if item.id not in settled)
            if items:
                tasks.append(Task(items, {i.id: self._before.attempts.get(i.id, 0) for i in items}))
        return tasks

    def _work(self, queue: TaskQueue) -> None:
        job = WorkerJob(self.folder.path, self._method)
        if self._workers == 0:
            self._work_here(job, queue)
            return
        with ExitStack() as stack:
            pool: WorkerPool = ProcessPool(job, workers=queue.workers)
            if self._pool.runs_on == "ray":
                pool = stack.enter_context(closing(RayPool(job)))
                queue.workers = min(self._workers or pool.places, pool.places, len(queue.waiting))
            Supervisor(
                job.folder, queue, pool, prefix=self._prefix, timeouts=self._pool.timeouts, note=self._note
            ).run()

    def _work_here(self, job: WorkerJob, queue: TaskQueue) -> None:
        def tell(message: WorkerMessage) -> None:
            if message.kind in ("answered", "failed"):
                queue.finish(name, message.text, message.taken)
            if message.kind in ("answered", "failed", "ready", "begun"):
                self._note(message)
            elif message.kind == "refused":
                queue.refuse(name, message.text, message.taken or {})

        name = f"{self._prefix}w0"
        worker = Worker(job.loaded(0), name=name, tell=tell)
        try:
            worker.work(lambda wait: queue.take(name))
        finally:
            worker.close()

    def _begin(self) -> None:
        """Count the questions that were done before, and announce what comes first."""
        done = self._answered | (set() if self._retry else self._failures)
        self._judged = {name for name, item in self._mine.items() if item.question.answer is not None and name in done}
        self._right = {name for name in self._judged if self._before.best[name].get("right")}
        many = f" ({self._workers} workers)" if (self._workers or 0) > 1 else ""
        self._announce(f"loading the model{many}")

    def _announce(self, doing: str) -> None:
        announce("run", RunState(doing, self._done, self._total, len(self._right), len(self._judged)))

    def _note(self, message: WorkerMessage) -> None:
        """Announce that a worker is ready or that a question begins; count one that is done."""
        name = message.text
        if message.kind in ("ready", "begun"):
            self._announce("opening the first video" if message.kind == "ready" else f"asking {name}")
            return
        self._done += 1
        self._failed += message.kind == "failed" and not message.transient
        self._judged |= set() if message.right is None else {name}
        self._right |= {name} if message.right else set()
        report("questions", self._done, self._total)
        self._announce(f"asked {name}")
        self._check_failures()

    def _check_failures(self) -> None:
        if self._failed > self._allowed:
            raise RunError(
                f"{self._failed} of {len(self.items)} questions failed, more than the {self._allowed} that "
                f"--max-failures allows ({self._done} are done); see gridprobe status {self.folder.path}"
            )


def _changed_sentence(other: Sequence[Item], changed: Sequence[Item], folder: Path) -> str:
    rows, videos = [item.id for item in other], list(dict.fromkeys(str(item.video) for item in changed))
    what = [f"rows that were changed since: {named(rows)}"] if rows else []
    what += [f"videos that were replaced since: {named(videos)}"] if videos else []
    return (
        f"{folder} has answers from {' and from '.join(what)}; ask these {len({i.id for i in (*other, *changed)})} "
        "questions again with --redo-changed, or name another folder with --out"
    )


def allowed_failures(most: float, total: int) -> int:
    """How many questions may fail: the number itself, or a share of the total, rounded up."""
    if not (most >= 0 and math.isfinite(most)):
        raise UsageError(f"--max-failures must be a number, or a share below 1, got {most}")
    return math.ceil(most * total) if most < 1 else int(most)


# calibrate(): ask questions with effort=full and find the confidence at which the overview's answer may be taken.

MAX_FAILED = 0.1
"""A calibration is refused if a larger share of its questions fails."""


@dataclass(frozen=True)
class Agreement:
    """What a calibration found, and on what."""

    calibration: Calibration
    setup: Plan
    """The setup with its models loaded; `setup.calibrated_for` is what the calibration is stored under."""
    videos: int
    failures: tuple[tuple[str, str], ...] = ()
    """The ids of the questions that failed and are left out, and why."""


def draw(items: Sequence[Item], count: int | None, *, seed: int = 0) -> tuple[Item, ...]:
    """This many of the questions at random, in their order; None is all of them.

    They are about as many videos as possible: no video has a second question before every video has one.
    """
    if count is None:
        return tuple(items)
    if not 1 <= count <= len(items):
        raise UsageError(f"-n must be from 1 to the number of questions, {len(items)}, got {count}")
    turns: Counter[tuple[str, str]] = Counter()
    ranked = []
    for place in random.Random(seed).sample(range(len(items)), len(items)):
        video = items[place].group, str(items[place].video)
        ranked.append((turns[video], place))
        turns[video] += 1
    ranked.sort(key=lambda each: each[0])  # stable, so that each turn keeps its random order
    return tuple(items[place] for place in sorted(place for _, place in ranked[:count]))


def calibrate(
    benchmark: Benchmark,
    setup: Plan,
    *,
    items: Sequence[Item],
    epsilon: float,
    delta: float,
    subtitles: str = "none",
) -> Agreement:
    """Compare the overview's choice with that of the full path on these questions of a benchmark.

    Labels are not used. Nothing is stored: see `gridprobe.early_exit.store`.
    """
    fewest = needed(epsilon, delta)
    if len(items) < fewest:
        raise UsageError(
            f"epsilon={epsilon:g} and delta={delta:g} need at least {fewest} questions, got {len(items)}; "
            "add questions, or allow a larger epsilon"
        )
    setup = _full(setup).loaded()
    method = Method(setup, benchmark.open, subtitles)
    tasks = tasks_of(items, Shard())
    observed, failures = _observe(tasks, method)
    calibration = choose_threshold(
        [confidence for confidence, _ in observed],
        [differs for _, differs in observed],
        epsilon=epsilon,
        delta=delta,
    )
    return Agreement(calibration, setup, len(tasks), tuple(failures))


def _full(setup: Plan) -> Plan:
    """The same with effort=full, which takes both the overview and the focused pass."""
    if setup.overview is None:
        raise UsageError("a calibration compares an overview with the full path, and effort=focus takes no overview")
    return replace(setup, effort="full", exit=None)


def _observe(tasks: Sequence[Task], method: Method) -> tuple[list[tuple[float, bool]], list[tuple[str, str]]]:
    """For each question: how sure the overview is, and whether the full path differs. Or why the question failed."""
    total = sum(len(task.items) for task in tasks)
    observed: list[tuple[float, bool]] = []
    failures: list[tuple[str, str]] = []
    for task in tasks:
        opened = Prefetch(task, method)
        for item in task.items:
            trial = Attempt()
            with trial, listening(lambda event: None):  # the progress within a question is not shown
                answer = opened.session.ask(method.question(item))
                overview = answer.reached.overview
                assert overview is not None
                observed.append((overview.confidence, overview.choice != answer.choice))
            if trial.error is not None:
                failures.append((item.id, f"{type(trial.error).__name__}: {trial.error}"))
                _check_failures(failures, total)
            report("questions", len(observed) + len(failures), total)
    return observed, failures


def _check_failures(failures: Sequence[tuple[str, str]], total: int) -> None:
    if len(failures) > MAX_FAILED * total:
        name, why = failures[0]
        raise RunError(
            f"{len(failures)} of {total} questions failed, and at most {MAX_FAILED:.0%} may, such as {name}: {why}; "
            "correct them, or leave them out"
        )
