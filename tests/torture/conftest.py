"""No test leaves a process behind."""

from collections.abc import Iterator

import pytest

from tests.torture.harness import STARTED, kill


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Kill remaining processes after each test."""
    yield
    while STARTED:
        kill(STARTED.pop())
