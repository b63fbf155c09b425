"""Evaluation: a benchmark, a way to ask, a folder. Running it again goes on where it was left.

with Evaluation(benchmark, "runs/first", model=model) as evaluation:
    print(evaluation.counts)
    print(evaluation.run()["all"]["accuracy"])
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gridprobe.backends import Backend
from gridprobe.benchmarks import Benchmark, Item
from gridprobe.errors import RunError, UsageError
from gridprobe.evaluation.folder import RunFolder
from gridprobe.evaluation.foreman import PATIENCE, START_PATIENCE, Crew, Foreman, Patience
from gridprobe.evaluation.ledger import Ledger
from gridprobe.evaluation.processes import Processes
from gridprobe.evaluation.ray_runner import RayCrew
from gridprobe.evaluation.records import read_records
from gridprobe.evaluation.spec import Spec, changed_settings, installed
from gridprobe.evaluation.summary import summary
from gridprobe.evaluation.tasks import Shard, Task, choose, tasks_of
from gridprobe.evaluation.trial import Method, Models, as_it_is, nothing
from gridprobe.evaluation.worker import Job, Loader, Message, NamedModels, Worker
from gridprobe.pipeline import check_selector
from gridprobe.progress import report
from gridprobe.question import Question

__all__ = ["Counts", "Evaluation", "run"]

MAX_FAILURES = 0.1


@dataclass(frozen=True)
class Counts:
    """Where a run, or the shard of it that is asked for, stands."""

    done: int
    failed: int
    todo: int

    def __str__(self) -> str:
        return f"{self.done} done, {self.failed} failed, {self.todo} to do"


def run(benchmark: Benchmark, out: str | Path, **options: Any) -> dict[str, Any]:
    """Ask a benchmark's questions and return the summary of the folder; arguments as for `Evaluation`."""
    with Evaluation(benchmark, out, **options) as evaluation:
        return evaluation.run()


class Evaluation:
    """A run of a benchmark. As a context manager it holds the folder, so that nobody else writes to it.

    Args:
        benchmark: the questions.
        out: the folder of the run; made if it is not there, gone on with if it is a run with the same spec.
        model: the model that probes and, without an `answer_model`, answers: a name, or a loaded one.
        answer_model: a second model for the focused pass.
        selector: a name from `gridprobe list selectors`.
        preset: the settings to begin with; `changes` are made on top.
        subtitles: the mode subtitles are shown in, for the spec; `question` is what shows them.
        limit: ask so many questions, drawn evenly from the values of the first bin.
        ids: ask only these.
        seed: for the limit and for the random selector.
        shard: "i/n": the i-th of n parts of the videos. Shards may run at the same time.
        max_failures: stop when more questions than this have failed: a number, or below 1 a share of all.
        retry_failed: ask those again that failed before.
        workers: how many processes; 0 is this process, the only way to use a loaded model. By default a name gets
            one process, and with Ray one for every GPU.
        engine: "local", or "ray" for a cluster.
        patience: seconds without a message after which a worker at a question counts as hung.
        start_patience: the same for a worker that is loading its models.
        data: where the benchmark's files are, for the spec.
        options: what the benchmark was loaded with, for the spec.
        ready: called with an item before its video is opened, and may make it.
        question: the question of an item as it is put, with its subtitles.
        load: makes the models of a worker in another process, in the place of their names.
        **changes: fields of `Settings`.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        out: str | Path,
        *,
        model: str | Backend,
        answer_model: str | Backend | None = None,
        selector: str = "gridprobe",
        preset: str = "default",
        subtitles: str | None = None,
        limit: int | None = None,
        ids: Sequence[str] | None = None,
        seed: int = 0,
        shard: str = "1/1",
        max_failures: float = MAX_FAILURES,
        retry_failed: bool = False,
        workers: int | None = None,
        engine: Literal["local", "ray"] = "local",
        patience: float = PATIENCE,
        start_patience: float = START_PATIENCE,
        data: str | Path = "",
        options: Mapping[str, Any] | None = None,
        ready: Callable[[Item], object] | None = None,
        question: Callable[[Item], Question] | None = None,
        load: Loader | None = None,
        **changes: Any,
    ) -> None:
        settings = changed_settings(preset, {**changes, "seed": seed})
        check_selector(selector, settings)
        self.items = choose(benchmark.items, ids=ids, limit=limit, seed=seed)
        self.benchmark, self.folder, self.shard = benchmark, RunFolder(Path(out)), Shard.parse(shard)
        self._videos = tasks_of(self.items, self.shard)
        self._models, self._load = _models(model, answer_model, load)
        self._workers, self._engine = _crew_size(workers, engine, loaded=self._models is not None), engine
        self._method = Method(settings, selector, ready or nothing, question or as_it_is)
        self._patience, self._retry = Patience(patience, start_patience), retry_failed
        self._allowed = allowed_failures(max_failures, len(self.items))
        told = {name: value for name, value in settings.to_dict().items() if name not in ("seed", "template")}
        self.spec = Spec(
            benchmark=benchmark.name,
            benchmark_version=benchmark.version,
            data=str(data),
            selector=selector,
            model=_name(model),
            answer_model=None if answer_model is None else _name(answer_model),
            settings=told,
            subtitles=subtitles,
            template=settings.template,
            seed=seed,
            limit=limit,
            ids=None if ids is None else [item.id for item in benchmark.items if item.id in set(ids)],
            options=options or {},
        )
        self._stack = ExitStack()
        self._failed = 0

    def __enter__(self) -> "Evaluation":
        self._stack.enter_context(self.folder.taken(self.spec, self.items, self.shard))
        records = read_records(self.folder.path, fields=())
        self.damage = records.damage
        """Lines of record files that are no records; their questions are asked again."""
        known = self.folder.spec.versions
        self.other_versions = {name: old for name, old in known.items() if installed().get(name) != old}
        """Packages that were of this version when the run was begun, and are of another now."""
        self._answered, self._before = records.ids("answered") | records.ids("skipped"), records
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def counts(self) -> Counts:
        """What the folder said when it was opened."""
        ids = {item.id for task in self._videos for item in task.items}
        done, failed = len(self._answered & ids), len(self._before.ids("failed") & ids)
        return Counts(done, failed, len(ids) - done - (0 if self._retry else failed))

    def run(self) -> dict[str, Any]:
        """Ask what is not answered yet and return the summary of the whole folder."""
        tasks, counts = self._tasks(), self.counts
        self._failed = 0 if self._retry else counts.failed
        self._done = counts.done + self._failed
        self._total = self._done + counts.todo
        self._check_failures()
        for file in self.folder.path.glob(f"heartbeat-{self._prefix}*.json"):
            file.unlink(missing_ok=True)
        if tasks:
            self._work(Ledger(tasks, workers=self._workers or 1))
        return summary(self.folder.path)

    @property
    def _prefix(self) -> str:
        return "" if self.shard.count == 1 else f"s{self.shard.name}."

    def _tasks(self) -> list[Task]:
        """The shard's videos with what is left to ask about them."""
        settled = self._answered | (set() if self._retry else self._before.ids("failed"))
        tasks = []
        for task in self._videos:
            items = tuple(item for item in task.items if item.id not in settled)
            if items:
                tasks.append(Task(items, {i.id: self._before.attempts.get(i.id, 0) for i in items}))
        return tasks

    def _work(self, ledger: Ledger) -> None:
        job = Job(self.folder.path, self._method, self._load)
        if self._workers == 0:
            self._work_here(job, ledger)
            return
        with ExitStack() as stack:
            crew: Crew = Processes(job, workers=self._workers or 1)
            if self._engine == "ray":
                crew = stack.enter_context(closing(RayCrew(job)))
                ledger.workers = min(self._workers or crew.places, crew.places)
            Foreman(job.folder, ledger, crew, prefix=self._prefix, patience=self._patience, note=self._note).run()

    def _work_here(self, job: Job, ledger: Ledger) -> None:
        models = self._models or self._load(0)
        self.folder.claim(models.identities)

        def tell(message: Message) -> None:
            if message.kind in ("answered", "failed"):
                ledger.finish(name, message.text)
                self._note(message.kind)

        name = f"{self._prefix}w0"
        worker = Worker(job, name=name, models=models, tell=tell)
        try:
            worker.work(lambda wait: ledger.take(name))
        finally:
            worker.close()

    def _note(self, outcome: str) -> None:
        """One more question has its record."""
        self._done += 1
        self._failed += outcome == "failed"
        report("questions", self._done, self._total)
        self._check_failures()

    def _check_failures(self) -> None:
        if self._failed > self._allowed:
            raise RunError(
                f"{self._failed} of {len(self.items)} questions failed, more than the {self._allowed} that "
                f"--max-failures allows ({self._done} have a record); gridprobe status {self.folder.path} tells why"
            )


def allowed_failures(most: float, total: int) -> int:
    """How many questions may fail: a number as it is, a share of the total rounded up."""
    if not (most >= 0 and math.isfinite(most)):
        raise UsageError(f"--max-failures must be a number, or a share below 1, got {most}")
    return math.ceil(most * total) if most < 1 else int(most)


def _name(model: str | Backend) -> str:
    return model if isinstance(model, str) else model.identity


def _models(
    model: str | Backend, answer_model: str | Backend | None, load: Loader | None
) -> tuple[Models | None, Loader]:
    """Loaded models, or else how a worker loads them."""
    if isinstance(model, str) and (answer_model is None or isinstance(answer_model, str)):
        return None, load or NamedModels(model, answer_model)
    if isinstance(model, str) or isinstance(answer_model, str):
        raise UsageError("give both models by name, or both loaded")
    return Models(model, answer_model or model), NamedModels(model.identity)


def _crew_size(workers: int | None, engine: str, *, loaded: bool) -> int | None:
    """0 is this process; None, with Ray, as many as there is room for."""
    if engine not in ("local", "ray"):
        raise UsageError(f"the engine is local or ray, got {engine!r}")
    if workers is not None and workers < 0:
        raise UsageError(f"--workers must be at least 0, got {workers}")
    if loaded and (workers or engine == "ray"):
        raise UsageError("a loaded model cannot travel to other processes; name it, or leave out workers and engine")
    if loaded:
        return 0
    return 1 if workers is None and engine == "local" else workers
