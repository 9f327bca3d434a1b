"""Where an axis begins and ends, and what is written along it: shares, and times in UTC."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

LEAST_HEIGHT = 0.2
"""Twenty points: what moves by one must not look like a fall."""
_GRID = 20
"""Axes begin and end on whole twentieths, five points."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(5, 10, 15, 30),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 5, 10, 30, 100, 365)),
)
_LAST_TIME = 253_402_300_799.0
"""The end of the year 9999: no date is written beyond."""


def share_range(values: Iterable[float]) -> tuple[float, float]:
    """Return from where to where an axis of accuracies reaches: all values, at least twenty points, never beyond 0 or 1."""
    shown = [min(max(value, 0.0), 1.0) for value in values if math.isfinite(value)] or [0.9]
    least = max(0, math.floor((min(shown) - 0.005) * _GRID))
    most = min(_GRID, math.ceil((max(shown) + 0.005) * _GRID))
    needed = round(LEAST_HEIGHT * _GRID)
    while most - least < needed:
        # Downwards first: the room under an accuracy is where it may go.
        if least > 0:
            least -= 1
        if most - least < needed and most < _GRID:
            most += 1
    return least / _GRID, most / _GRID


def share_ticks(least: float, most: float) -> list[float]:
    """Return the shares that are written along an axis from `share_range`."""
    step = 1 if most - least <= 0.3001 else 2 if most - least <= 0.6001 else 4
    first, last = round(least * _GRID), round(most * _GRID)
    return [tick / _GRID for tick in range(first, last + 1) if tick % step == 0]


@dataclass(frozen=True, slots=True)
class TimeTick:
    """A time along an axis."""

    at: float
    text: str
    date: str = ""
    """Written under the first, and where a day begins."""


def possible(at: float) -> bool:
    """Tell whether a time can be written as a date."""
    return math.isfinite(at) and 0.0 <= at <= _LAST_TIME


def time_ticks(start: float, end: float, most: int) -> list[TimeTick]:
    """Return at most so many round times, in UTC, from `start` to `end`, which are possible times."""
    step = next((one for one in _STEPS if (end - start) / one <= most - 1), _STEPS[-1])
    if (end - start) / step > most - 1:
        step = math.ceil((end - start) / (most - 1) / _DAY) * _DAY
    ticks: list[TimeTick] = []
    day = ""
    for index in range(math.ceil(start / step), math.floor(end / step) + 1):
        moment = datetime.fromtimestamp(index * step, UTC)
        date = f"{moment.day} {moment:%b}"
        if step >= _DAY:
            ticks.append(TimeTick(index * step, f"{date} {moment.year}" if step >= 365 * _DAY else date))
            continue
        ticks.append(
            TimeTick(index * step, f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}", date * (date != day))
        )
        day = date
    return ticks
