"""Foreman: keeps a crew of workers busy, replaces those that die or hang, and never waits for one of them.

What a crew is, child processes or actors on Ray, it does not know.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gridprobe.benchmarks import Item
from gridprobe.errors import RunError
from gridprobe.evaluation.ledger import MOST_DEATHS, Ledger
from gridprobe.evaluation.outcomes import failed
from gridprobe.evaluation.records import Damage, Writer, read_file
from gridprobe.evaluation.tasks import Task
from gridprobe.evaluation.worker import Message

__all__ = ["Crew", "Foreman", "Hand"]

POLL_SECONDS = 0.5
FAREWELL_SECONDS = 10.0


class Hand(Protocol):
    """One worker, wherever it runs."""

    def give(self, task: Task | None) -> None:
        """Send it a task; None is the last."""

    def kill(self) -> None:
        """End it at once, whatever it does; a dead one is no error."""


class Crew(Protocol):
    """A way to run workers."""

    def hire(self, name: str, place: int) -> Hand:
        """Start a worker in a place, counted from 0; a place has one worker at a time."""

    def hear(self, seconds: float) -> list[tuple[str, Message | None]]:
        """What workers told, waiting so long for the first; None stands for a death, and is a worker's last word."""


@dataclass
class _Member:
    name: str
    place: int
    hand: Hand
    file: str | None = None
    """Its records; None until it has loaded its models."""
    heard: float = field(default_factory=time.monotonic)


class Foreman:
    """Gets a ledger's questions done by a crew."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        crew: Crew,
        *,
        prefix: str,
        patience: float,
        note: Callable[[str], None],
    ) -> None:
        """Prepare a run.

        Args:
            folder: where the records are.
            ledger: what is to be done, and by how many.
            crew: how workers are run.
            prefix: what their names begin with.
            patience: seconds a worker may be silent.
            note: called with the outcome of every question; what it raises ends the run.
        """
        self._folder, self._ledger, self._crew = folder, ledger, crew
        self._prefix, self._patience, self._note = prefix, patience, note
        self._members: dict[str, _Member] = {}
        self._hired = 0
        self._reason = ""
        self._writer: Writer | None = None

    def run(self) -> None:
        """Return when every question has a record."""
        try:
            for place in range(self._ledger.workers):
                self._hire(place)
            while self._ledger.left:
                self._listen()
                self._dismiss_silent()
                self._hand_out()
                if not self._members and self._ledger.left:
                    raise RunError(f"no worker is left: {self._reason}; the same command goes on from here")
            self._farewell()
        finally:
            for member in self._members.values():
                member.hand.kill()
            if self._writer is not None:
                self._writer.close()

    def _hire(self, place: int) -> None:
        name = f"{self._prefix}w{self._hired}"
        self._hired += 1
        self._members[name] = _Member(name, place, self._crew.hire(name, place))

    def _listen(self) -> None:
        for name, message in self._crew.hear(POLL_SECONDS):
            member = self._members.get(name)
            if member is not None:
                member.heard = time.monotonic()
                self._heard(member, message)

    def _heard(self, member: _Member, message: Message | None) -> None:
        if message is None:
            self._bury(member, "it died")
        elif message.kind == "ready":
            member.file = message.text
        elif message.kind == "begun":
            self._ledger.begin(member.name, message.text)
        elif message.kind in ("answered", "failed"):
            self._ledger.finish(member.name, message.text)
            self._note(message.kind)
        elif message.kind == "broken":
            raise RunError(message.text)
        elif message.kind == "unfit":
            self._drop(member, message.text)
        elif message.kind == "ended":
            self._drop(member, "it ended")

    def _drop(self, member: _Member, reason: str) -> None:
        self._reason = f"worker {member.name}: {reason}"
        self._members.pop(member.name).hand.kill()

    def _bury(self, member: _Member, reason: str) -> None:
        """Take back what a dead worker had, but for what its file says is done, and put another in its place."""
        self._drop(member, reason)
        written = self._written(member)
        unheard = {item.id for task in self._ledger.held.get(member.name, ()) for item in task.items} & written.keys()
        moved = bool(written) or member.name in self._ledger.begun  # else the next one would fare no better
        for item, attempt in self._ledger.lost(member.name, written=written):
            self._give_up(item, attempt, reason)
        for name in unheard:
            self._note(written[name])
        if moved and self._ledger.left:
            self._hire(member.place)

    def _written(self, member: _Member) -> dict[str, str]:
        if member.file is None or not (self._folder / member.file).is_file():
            return {}
        records = read_file(self._folder / member.file)
        return {record["id"]: record["outcome"] for record in records if not isinstance(record, Damage)}

    def _give_up(self, item: Item, attempt: int, reason: str) -> None:
        if self._writer is None:
            self._writer = Writer(self._folder, f"{self._prefix}foreman")
        text = f"{MOST_DEATHS} workers were lost at this question; of the last one: {reason}"
        self._writer.write(failed(item, ("WorkerDied", text), attempt=attempt, worker=self._writer.worker))
        self._note("failed")

    def _dismiss_silent(self) -> None:
        for member in list(self._members.values()):
            busy = member.file is None or bool(self._ledger.held.get(member.name))
            if busy and time.monotonic() - member.heard > self._patience:
                member.hand.kill()
                self._bury(member, f"it was silent for {self._patience:g} s")

    def _hand_out(self) -> None:
        """First to those with nothing to do, then ahead."""
        ready = [member for member in self._members.values() if member.file is not None]
        for member in sorted(ready, key=lambda each: len(self._ledger.held.get(each.name, ()))):
            task = self._ledger.take(member.name)
            if task is not None:
                if len(self._ledger.held[member.name]) == 1:
                    member.heard = time.monotonic()
                member.hand.give(task)

    def _farewell(self) -> None:
        """Let the workers close their files; those that take long are not waited for."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        for member in [member for member in self._members.values() if member.file is None]:
            self._drop(member, "it was not needed")
        for member in self._members.values():
            member.hand.give(None)
        while self._members and time.monotonic() < deadline:
            self._listen()
