"""Waiting for a condition, instead of for a time."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | Literal[False] | None],
    otherwise: Callable[[], str] = lambda: "timed out",
    seconds: float = 120.0,
    every: float = 0.01,
) -> T:
    """Wait until a condition is true and return its value; fails with what `otherwise` returns."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, otherwise()
        time.sleep(every)
    return found
