"""How many processor cores this process may use."""

import os

__all__ = ["usable_cores"]


def usable_cores() -> int:
    """The cores this process is allowed to run on, which in a container or batch job can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
