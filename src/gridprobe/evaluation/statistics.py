"""calibrate(): ask questions with effort=full and find the confidence at which the overview's answer may be taken."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridprobe._util import listening, report
from gridprobe.benchmarks import Benchmark, Item
from gridprobe.early_exit import Calibration, choose_threshold, needed
from gridprobe.errors import RunError, UsageError
from gridprobe.evaluation.tasks import Attempt, Method, Shard, Task, tasks_of
from gridprobe.evaluation.worker import Prefetch
from gridprobe.options import Plan

__all__ = ["MAX_FAILED", "Agreement", "calibrate", "draw"]

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
    """So many of the questions at random, in their order; None is all of them.

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
    method = Method.of(benchmark, setup, subtitles=subtitles)
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
