"""The router of ray_serve.py, in a file of its own: Ray Serve sends this module to other machines by value."""

from typing import Any

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray_affinity import mark_of, ranked

__all__ = ["ByVideo"]


class ByVideo(ConsistentHashRouter):  # type: ignore[misc]
    """Ray's router for sticky sessions, with our order of replicas; the session id is the affinity of the request."""

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """Groups of replicas, in the order in which they are tried."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas] if candidate_replicas else []
        pending_request.routing_context.should_backoff = True
        about = pending_request.metadata
        found = {mark_of(each.replica_id.unique_id): each for each in candidate_replicas}
        order = ranked(about.session_id or about.internal_request_id, list(found))
        return [[found[mark]] for mark in order]
