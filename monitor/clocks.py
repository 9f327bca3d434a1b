"""The two clocks: the wall's, which people set, and a steady one, which goes on through suspensions.

Records and reports are stamped by the wall clock. Everything that waits goes by the steady one.
"""

import time
from dataclasses import dataclass

_JUMP_SECONDS = 60.0
_SUSPENDED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on all clocks."""

    now: float
    """Unix time."""
    running: float
    """Seconds since the machine started, suspensions included; never set by anybody."""
    awake: float
    """The same without suspensions."""


def moment() -> Moment:
    """Read the clocks."""
    return Moment(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())


@dataclass(frozen=True, slots=True)
class Surprise:
    """What happened between two looks at the clocks."""

    jumped_seconds: float = 0.0
    """By how much the wall clock was set forward, or back; 0 when it was not."""
    suspended: bool = False
    """Whether the machine slept."""

    @property
    def any(self) -> bool:
        """Whether anything happened."""
        return self.suspended or self.jumped_seconds != 0.0


def surprise(before: Moment, after: Moment) -> Surprise:
    """Compare two looks at the clocks. What a time server slews is no surprise."""
    jumped = (after.now - before.now) - (after.running - before.running)
    slept = (after.running - before.running) - (after.awake - before.awake)
    return Surprise(jumped if abs(jumped) > _JUMP_SECONDS else 0.0, slept > _SUSPENDED_SECONDS)
