"""No test leaves a process behind, however it ends."""

from collections.abc import Iterator

import pytest

from tests.torture.harness import STARTED, kill


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Kill what is still alive after each test."""
    yield
    while STARTED:
        kill(STARTED.pop())
