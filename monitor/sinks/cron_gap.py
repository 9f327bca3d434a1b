"""How long a schedule may leave a model without an evaluation. A test compares it with the scheduler itself."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from monitor.configuration.config import Cron, Every

_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
"""Minute, hour, day of the month, month, day of the week; the scheduler's week begins on Monday."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMES = {name: number for number, name in enumerate(_DAYS)} | {name: 1 + number for number, name in enumerate(_MONTHS)}
_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_LOOKED_AT_DAYS = 2 * (4 * 365 + 1)
"""Two leap years, so that the time from one 29 February to the next is among them."""
_DAY_SECONDS = 86_400.0


def longest_wait_seconds(when: Every | Cron) -> float:
    """Return the longest time that a schedule leaves between two evaluations."""
    return when.seconds if isinstance(when, Every) else longest_gap_seconds(when.line)


@lru_cache(maxsize=256)  # it goes through years of days, and is asked at every scrape
def longest_gap_seconds(line: str) -> float:
    """Return the longest time between two evaluations by a crontab line."""
    minutes, hours, days, months, weekdays = (
        _values(text, *bounds) for text, bounds in zip(line.split(), _FIELDS, strict=True)
    )
    times = sorted(60 * hour + minute for hour in hours for minute in minutes)
    matching = [
        day
        for day in (_FIRST_DAY + timedelta(days=number) for number in range(_LOOKED_AT_DAYS))
        if day.month in months and day.day in days and day.weekday() in weekdays
    ]
    within = [60.0 * (later - earlier) for earlier, later in pairwise(times)]
    overnight = 60.0 * (times[0] - times[-1])
    between = [(later - earlier).total_seconds() + overnight for earlier, later in pairwise(matching)]
    return max([*within, *between], default=_DAY_SECONDS * _LOOKED_AT_DAYS)


def _values(text: str, least: int, most: int) -> set[int]:
    """Return what a field allows. A word such as `last`, or `2nd fri`, is taken for the first value: once in a while."""
    values: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = least if span == "*" else _number(first, least)
        end = most if span == "*" or (step and not last) else _number(last, least) if last else start
        values.update(range(start, end + 1, int(step) if step else 1))
    return values


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else _NAMES.get(text, otherwise)
