"""Workers as Ray actors, one per GPU, on all machines of a cluster that see the run's folder under the same path.

Ray places and starts them. The foreman assigns the work and reassigns a dead worker's questions, as with child
processes.
"""

from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from gridprobe.errors import RunError, UsageError
from gridprobe.evaluation.tasks import Task
from gridprobe.evaluation.worker import Inbox, WorkerJob, WorkerMessage, serve

__all__ = ["RayPool"]

LISTEN_SECONDS = 1.0


class _Actor:
    """The Ray actor: a thread that works, and two methods to communicate with it."""

    def __init__(self, job: WorkerJob, name: str, place: int) -> None:
        self._inbox = Inbox()
        self._outbox: SimpleQueue[WorkerMessage] = SimpleQueue()
        told = {"name": name, "place": place, "take": self._inbox, "tell": self._outbox.put}
        Thread(target=serve, args=(job,), kwargs=told, name="gridprobe-worker", daemon=True).start()

    def give(self, task: Task | None) -> None:
        self._inbox.put(task)

    def hear(self) -> list[WorkerMessage]:
        """The pending messages, after a short wait for the first."""
        heard: list[WorkerMessage] = []
        try:
            heard.append(self._outbox.get(timeout=LISTEN_SECONDS))
            while True:
                heard.append(self._outbox.get_nowait())
        except Empty:
            return heard


class _RemoteHand:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def give(self, task: Task | None) -> None:
        self._actor.give.remote(task)

    def kill(self) -> None:
        self._ray.kill(self._actor, no_restart=True)


class RayPool:
    """A crew of actors on a running cluster (RAY_ADDRESS, or one on this machine), else on one started here."""

    def __init__(self, job: WorkerJob) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError(
                "--engine ray needs Ray, which is not installed; run: pip install 'gridprobe[ray]'"
            ) from None
        self._ray, self._job = ray, job
        self._mine = not ray.is_initialized()
        if self._mine:
            try:
                ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise RunError(f"cannot reach or start Ray: {error}") from error
        resources = ray.cluster_resources()
        self.gpus, self.cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        self._remote = ray.remote(_Actor)
        self._actors: dict[str, Any] = {}
        self._heard: dict[Any, str] = {}

    @property
    def places(self) -> int:
        """The number of workers that fit: one per GPU, or without GPUs one per processor core."""
        return max(1, self.gpus or self.cpus)

    def hire(self, name: str, place: int) -> _RemoteHand:
        """Request an actor from Ray; it starts as soon as resources are free."""
        needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_cpus": 1}
        actor = self._remote.options(max_concurrency=2, max_restarts=0, **needs).remote(self._job, name, place)
        self._actors[name] = actor
        self._heard[actor.hear.remote()] = name
        return _RemoteHand(self._ray, actor)

    def hear(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Collect the actors' new messages."""
        heard: list[tuple[str, WorkerMessage | None]] = []
        if not self._heard:
            return heard
        ready, _ = self._ray.wait(list(self._heard), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._heard), num_returns=len(self._heard), timeout=0)
        for reference in ready:
            name = self._heard.pop(reference)
            try:
                heard += [(name, message) for message in self._ray.get(reference)]
            except self._ray.exceptions.RayError:
                heard.append((name, None))
                del self._actors[name]
                continue
            self._heard[self._actors[name].hear.remote()] = name
        return heard

    def close(self) -> None:
        """Disconnect from Ray, unless the caller had connected before."""
        if self._mine:
            self._ray.shutdown()
