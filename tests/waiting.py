"""Waiting for what another process or thread does, without a limit of its own: every test has one (pytest-timeout)."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(true: Callable[[], object]) -> None:
    while not true():
        time.sleep(0.01)


def printing_children(parent: int) -> list[int]:
    """The decoding processes of a process that have printed something, the one trace that they can leave."""
    children = [pid for path in Path(f"/proc/{parent}/task").glob("*/children") for pid in path.read_text().split()]
    return [int(pid) for pid in children if Path(f"/proc/{pid}/fd/1").stat().st_size]
