"""Kills the processes of failed tests."""

from collections.abc import Iterator

import pytest

from tests.torture.harness import STARTED, kill


@pytest.fixture(autouse=True)
def killed_processes() -> Iterator[None]:
    """Kill remaining processes after each test."""
    yield
    while STARTED:
        kill(STARTED.pop())
