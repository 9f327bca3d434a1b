"""How much work something is: counted in calls, which are the same on a busy machine, and not in seconds."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object], most: int = 10_000_000) -> int:
    """Return how many functions were called, those of C among them; raises AssertionError as soon as there are too many."""
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
