"""One question: how it is asked, and the record of what came of it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from threading import Thread
from types import TracebackType
from typing import Any

from gridprobe.answer import Answer
from gridprobe.backends import Backend
from gridprobe.benchmarks import Item
from gridprobe.evaluation.records import SCHEMA
from gridprobe.evaluation.tasks import Task
from gridprobe.pipeline import Session
from gridprobe.question import Question
from gridprobe.selectors import Selector
from gridprobe.settings import Settings

__all__ = ["Attempt", "Method", "Models", "Opening", "answered", "as_it_is", "failed", "nothing", "now"]


@dataclass(frozen=True)
class Models:
    """The model that probes and the one that answers, loaded."""

    probe: Backend
    answer: Backend

    @property
    def identities(self) -> list[str]:
        """Of both."""
        return [self.probe.identity, self.answer.identity]


def nothing(item: Item) -> None:
    """The video is there already."""


def as_it_is(item: Item) -> Question:
    """The question as the benchmark has it."""
    return item.question


@dataclass(frozen=True)
class Method:
    """How every question of a run is asked. It travels to other processes, and its functions by their names."""

    settings: Settings
    selector: str | Selector = "gridprobe"
    ready: Callable[[Item], object] = nothing
    """Called before a video is opened; a benchmark that makes its videos does so then."""
    question: Callable[[Item], Question] = as_it_is
    """The question as it is put, with its subtitles."""

    def session(self, task: Task, models: Models) -> Session:
        """A session for a task's video, with nothing opened yet."""
        changes = {each.name: getattr(self.settings, each.name) for each in fields(Settings) if each.name != "preset"}
        return Session(
            task.items[0].video,
            model=models.probe,
            answer_model=models.answer,
            selector=self.selector,
            preset=self.settings.preset,
            reuse=len(task.items) > 1,
            **changes,
        )


class Attempt:
    """A piece of work whose failure, whatever it is, becomes part of the result: `with Attempt() as attempt: …`.

    This is the one place where a bug of ours does not end the program: one bad question must not end three days of
    work. The record names its class, and the summary counts it.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


class Opening:
    """A task whose video is being opened and decoded, in a thread, while the model is busy with another one."""

    def __init__(self, task: Task, method: Method, models: Models) -> None:
        self.task = task
        self.attempt = Attempt()
        self.seconds = 0.0
        """What opening and decoding took, for the first question that asks; then 0."""
        self._session: Session | None = None
        # A daemon: a decoder that hangs must not keep a stopped program alive.
        self._thread = Thread(target=self._open, args=(method, models), name="gridprobe-decode", daemon=True)
        self._thread.start()

    def _open(self, method: Method, models: Models) -> None:
        start = time.perf_counter()
        with self.attempt:
            method.ready(self.task.items[0])
            session = method.session(self.task, models)
            session.open()
            self._session = session
        self.seconds = time.perf_counter() - start

    def wait(self) -> None:
        """Return when the thread is done."""
        self._thread.join()

    @property
    def session(self) -> Session:
        """The opened session; what went wrong with the video is raised for each of its questions."""
        self.wait()
        if self.attempt.error is not None:
            raise self.attempt.error
        assert self._session is not None
        return self._session


def now() -> str:
    """The time as records tell it; nothing is ever decided by it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _record(item: Item, *, outcome: str, attempt: int, worker: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": item.id,
        "group": item.group,
        "outcome": outcome,
        "right": False,
        "choice": None,
        "error": None,
        "attempt": attempt,
        "worker": worker,
        "at": now(),
    }


def failed(item: Item, error: tuple[str, str], *, attempt: int, worker: str) -> dict[str, Any]:
    """The record of a question that has no answer; the error is a class and a message."""
    record = _record(item, outcome="failed", attempt=attempt, worker=worker)
    return record | {"error": {"class": error[0], "message": error[1][:2000]}}


def answered(item: Item, answer: Answer, *, opening: Opening, worker: str) -> dict[str, Any]:
    """The record of an answer. The map is not in it: it follows from row and column confidences.

    What it took to open the video is counted with the first question about it, though it went on beside other work.
    """
    told = answer.to_dict()
    spent, opening.seconds = opening.seconds, 0.0
    told["seconds"] |= {name: told["seconds"][name] + spent for name in ("decode", "total")}
    attempt = opening.task.attempts.get(item.id, 0) + 1
    record = _record(item, outcome="answered", attempt=attempt, worker=worker)
    posterior = zip(answer.posterior.labels, answer.posterior.logprobs, strict=True)
    record |= {
        "right": answer.right is True,
        "choice": answer.choice,
        "confidence": answer.confidence,
        "logprobs": {label: value if math.isfinite(value) else None for label, value in posterior},
    }
    record |= {name: told[name] for name in ("letter_mass", "selection", "cost", "seconds", "video", "warnings")}
    record["selection"].pop("importance")
    record["selection"]["probe_choices"] = [probe.choice for probe in answer.selection.probes] or None
    record["cost"].pop("conventions")
    return record
