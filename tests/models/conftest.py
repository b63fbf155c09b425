"""Fixtures for tests of backends."""

from collections.abc import Iterator

import pytest

from fake_server import Open, opener


@pytest.fixture
def open_server() -> Iterator[Open]:
    """Loads fake servers; see tests/fake_server.py."""
    with opener() as found:
        yield found
