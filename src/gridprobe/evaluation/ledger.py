"""Ledger: which worker has which questions, and what happens to them when it dies. Bookkeeping only, no processes.

A worker holds the video it works on and, if enough are left for all workers, the next one, to decode it in advance.
When a worker dies, its tasks return to the front of the queue and are then done alone, without a second video. So a
video that crashes the decoder cannot cause another video's question to be blamed twice. A question that was in
progress at two deaths is given up.
"""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import replace

from gridprobe.benchmarks import Item
from gridprobe.evaluation.tasks import Task

__all__ = ["MOST_DEATHS", "Ledger"]

MOST_DEATHS = 2


class Ledger:
    """The questions of a run that are still to be asked."""

    def __init__(self, tasks: Sequence[Task], *, workers: int) -> None:
        self.workers = workers
        self.waiting = deque(tasks)
        self.held: dict[str, list[Task]] = {}
        self.begun: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """The number of unfinished questions."""
        held = [task for tasks in self.held.values() for task in tasks]
        return sum(len(task.items) for task in (*self.waiting, *held))

    def take(self, worker: str) -> Task | None:
        """The next task for a worker; None if it should not get one now."""
        mine = self.held.setdefault(worker, [])
        if not self.waiting or len(mine) > 1 or (mine and not self._may_look_ahead(mine[0])):
            return None
        mine.append(self.waiting.popleft())
        return mine[-1]

    def _may_look_ahead(self, current: Task) -> bool:
        return not current.alone and not self.waiting[0].alone and len(self.waiting) >= self.workers

    def begin(self, worker: str, name: str) -> None:
        """A worker has started a question."""
        self.begun[worker] = name

    def finish(self, worker: str, name: str) -> None:
        """A question's record is on disk."""
        self.held[worker] = _without(self.held.get(worker, []), {name})
        if self.begun.get(worker) == name:
            del self.begun[worker]

    def lost(self, worker: str, *, written: Collection[str] = ()) -> list[tuple[Item, int]]:
        """A worker has died: put its questions back in the queue, except those whose records it had written.

        Returns the questions that are given up, with the number of attempts at each.
        """
        tasks = _without(self.held.pop(worker, []), written)
        name = self.begun.pop(worker, None)
        if name is not None and name not in written:
            self.deaths[name] += 1
        given_up: list[tuple[Item, int]] = []
        for task in reversed(tasks):
            hopeless = [item for item in task.items if self.deaths[item.id] >= MOST_DEATHS]
            given_up += [(item, task.attempts.get(item.id, 0) + 1) for item in hopeless]
            attempts = {**task.attempts}
            if name is not None and name in {item.id for item in task.items}:
                attempts[name] = attempts.get(name, 0) + 1
            self.waiting.extendleft(_without([replace(task, alone=True, attempts=attempts)], {i.id for i in hopeless}))
        return given_up


def _without(tasks: Sequence[Task], names: Collection[str]) -> list[Task]:
    """The tasks without these questions; tasks that become empty are left out."""
    left = [replace(task, items=tuple(item for item in task.items if item.id not in names)) for task in tasks]
    return [task for task in left if task.items]
