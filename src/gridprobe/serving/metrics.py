"""Metrics in Prometheus' text format."""

from collections import Counter
from threading import Lock
from typing import Any

from gridprobe.serving.desk import Desk

__all__ = ["Metrics"]


class Metrics:
    """Counts of responses, and what the desk knows about itself."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = Lock()
        self._responses: Counter[tuple[str, int]] = Counter()

    def count(self, scope: Any, status: int) -> None:
        """A response was sent. Routes are counted by their patterns, so clients cannot make up new lines."""
        route = getattr(scope.get("route"), "path", "other")
        with self._lock:
            self._responses[route, status] += 1

    def text(self) -> str:
        """The page."""
        desk = self._desk
        jobs = desk.jobs
        with self._lock:
            responses = sorted(self._responses.items())
        lines = _family("responses_total", "counter", "Responses by route and status.")
        lines += [
            f'gridprobe_responses_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in responses
        ]
        lines += _family("jobs_total", "counter", "Jobs by outcome.")
        lines += [f'gridprobe_jobs_total{{outcome="{name}"}} {count}' for name, count in sorted(jobs.counts.items())]
        values = (
            ("jobs_waiting", "gauge", "Jobs in the queue.", jobs.waiting),
            ("jobs_running", "gauge", "Jobs at work.", jobs.running),
            ("queue_size", "gauge", "Jobs that may wait.", jobs.most_waiting),
            ("sessions", "gauge", "Open videos.", len(desk.sessions)),
            ("session_bytes", "gauge", "Decoded frames in memory.", desk.sessions.bytes),
            ("uploads", "gauge", "Uploads.", desk.shelf.uploads),
            ("media_bytes", "gauge", "Media on disk.", desk.shelf.size),
            ("model_calls_total", "counter", "Calls of the models.", desk.batcher.calls),
            (
                "model_requests_total",
                "counter",
                "Requests in these calls; more than calls if merged.",
                desk.batcher.parts,
            ),
        )
        for name, kind, help, value in values:
            lines += [*_family(name, kind, help), f"gridprobe_{name} {value}"]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP gridprobe_{name} {help}", f"# TYPE gridprobe_{name} {kind}"]
