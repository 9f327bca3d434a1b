"""Measures work in calls, which do not depend on the load of the machine."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object], most: int = 10_000_000) -> int:
    """Return the number of function calls, including C functions; raises AssertionError beyond `most`."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}
        assert count <= most, f"more than {most:,} calls"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
