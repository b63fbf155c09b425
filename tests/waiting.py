"""Waiting for what another process or thread does, without a limit of its own: every test has one (pytest-timeout)."""

import time
from collections.abc import Callable


def wait_until(true: Callable[[], object]) -> None:
    while not true():
        time.sleep(0.01)
