"""Waiting for a condition, instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], otherwise: Callable[[], str] = lambda: "timed out", seconds: float = 60.0
) -> T:
    """Wait until a condition is true and return its value; fails with what `otherwise` returns."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, otherwise()
        time.sleep(0.01)
    return found
