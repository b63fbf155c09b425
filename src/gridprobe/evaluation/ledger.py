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
from gridprobe.evaluation.totals import Account, Taken

__all__ = ["MOST_DEATHS", "Ledger"]

MOST_DEATHS = 2


class Ledger:
    """The questions of a run that are still to be asked."""

    def __init__(self, tasks: Sequence[Task], *, workers: int, account: Account | None = None) -> None:
        self.workers = workers
        self.account = account
        self.waiting = deque(tasks)
        self.held: dict[str, list[Task]] = {}
        self.begun: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """The number of unfinished questions that can be asked."""
        held = [task for tasks in self.held.values() for task in tasks]
        if self.account is not None and not held and self.account.lacking is not None:
            return 0
        return sum(len(task.items) for task in (*self.waiting, *held))

    def take(self, worker: str) -> Task | None:
        """The next task for a worker; None if it should not get one now."""
        mine = self.held.setdefault(worker, [])
        if not self.waiting or len(mine) > 1 or (mine and not self._may_look_ahead(mine[0])):
            return None
        task = self._granted(self.waiting.popleft())
        if task is not None:
            mine.append(task)
        return task

    @property
    def unasked(self) -> int:
        """How many questions nobody has."""
        return sum(len(task.items) for task in self.waiting)

    def _granted(self, task: Task) -> Task | None:
        """The part of a task that the totals allow for now; the rest goes back to the front of the queue."""
        if self.account is None:
            return task
        grants = {}
        for item in task.items:
            grant = self.account.grant(item.id)
            if grant is None:
                break
            grants[item.id] = grant
        if len(grants) < len(task.items):
            self.waiting.appendleft(replace(task, items=task.items[len(grants) :]))
        return replace(task, items=task.items[: len(grants)], grants=grants) if grants else None

    def _may_look_ahead(self, current: Task) -> bool:
        return not current.alone and not self.waiting[0].alone and len(self.waiting) >= self.workers

    def begin(self, worker: str, name: str) -> None:
        """A worker has started a question."""
        self.begun[worker] = name

    def finish(self, worker: str, name: str, taken: Taken | None = None) -> None:
        """A question's record is on disk; `taken` is what it took, if that is known."""
        if self.account is not None:
            self.account.settle(name, taken)
        self.held[worker] = _without(self.held.get(worker, []), {name})
        if self.begun.get(worker) == name:
            del self.begun[worker]

    def refuse(self, worker: str, name: str, granted: Taken) -> None:
        """A question needs more than was granted to it, so the run stops at that total."""
        assert self.account is not None
        (task,) = [task for task in self.held.get(worker, []) if name in {item.id for item in task.items}]
        self.held[worker] = _without(self.held[worker], {name})
        self.begun.pop(worker, None)
        self.account.close(name, next(iter(granted)))
        self.waiting.appendleft(replace(task, items=tuple(i for i in task.items if i.id == name), grants={}))

    def lost(self, worker: str, *, written: Collection[str] = ()) -> list[tuple[Item, int]]:
        """A worker has died: put its questions back in the queue, except those whose records it had written.

        Returns the questions that are given up, with the number of attempts at each.
        """
        held = self.held.pop(worker, [])
        tasks = _without(held, written)
        name = self.begun.pop(worker, None)
        self._take_back(held, begun={name, *written})
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

    def _take_back(self, tasks: Sequence[Task], *, begun: Collection[str | None]) -> None:
        """Free what was granted to questions that a dead worker had not begun; the others may have taken all of it."""
        for item in (item for task in tasks for item in task.items):
            if self.account is not None and item.id in begun:
                self.account.settle(item.id, None)
            elif self.account is not None:
                self.account.release(item.id)


def _without(tasks: Sequence[Task], names: Collection[str]) -> list[Task]:
    """The tasks without these questions; tasks that become empty are left out."""
    left = [replace(task, items=tuple(item for item in task.items if item.id not in names)) for task in tasks]
    return [task for task in left if task.items]
