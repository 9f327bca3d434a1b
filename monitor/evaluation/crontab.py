"""Reads crontab lines. APScheduler is imported when there is one."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from monitor.config.config import Cron, Every

if TYPE_CHECKING:  # slow to import
    from apscheduler.triggers.cron import CronTrigger

_CRON_FIELDS = 5
_WEEK = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERED_DAYS = re.compile(r"(?:(?P<every>[*])|(?P<first>[0-7])(?:-(?P<last>[0-7]))?)(?:/(?P<step>[1-9]))?")
_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_DAYS = 2 * (4 * 365 + 1)
"""Eight years: they include two successive 29 Februaries."""


def cron_trigger(line: str) -> "CronTrigger":
    """Return APScheduler's trigger for a crontab line; raises ValueError."""
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - slow to import, and seldom used

    fields = line.split()
    if len(fields) == _CRON_FIELDS:
        fields[-1] = ",".join(_named_days(part) for part in fields[-1].split(","))
    return CronTrigger.from_crontab(" ".join(fields), timezone=UTC)


def _named_days(part: str) -> str:
    """Return days of the week by name. In a crontab 0 and 7 are Sunday; in APScheduler 0 is Monday."""
    found = _NUMBERED_DAYS.fullmatch(part)
    if found is None or part == "*":
        return part
    first = int(found["first"] or 0)
    last = int(found["last"] or (6 if found["every"] or found["step"] else first))
    # An empty list would mean every day; an impossible range is left for APScheduler to reject.
    return ",".join(_WEEK[first : last + 1 : int(found["step"] or 1)]) or part


def cron_problem(line: str) -> str | None:
    """Return the problem with a crontab line; None if it is valid."""
    try:
        trigger = cron_trigger(line)
    except ValueError as error:
        return str(error)
    _, _, day, _, day_of_the_week = line.split()
    if not day.startswith("*") and not day_of_the_week.startswith("*"):
        # cron runs when either matches, APScheduler when both do.
        return "it names days of the month and days of the week: leave one of them *"
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        return "it never comes true"
    return None


def shortest_gap_seconds(line: str) -> float:
    """Return the shortest time between two runs of a crontab line; raises ValueError with its problem."""
    problem = cron_problem(line)
    if problem is not None:
        raise ValueError(problem)
    return min(_gaps(line))


@lru_cache(maxsize=256)  # each scrape asks for it
def longest_gap_seconds(when: Every | Cron) -> float:
    """Return the longest time between two runs."""
    return when.seconds if isinstance(when, Every) else max(_gaps(when.line))


def _gaps(line: str) -> list[float]:
    """Return the times between two runs, in seconds."""
    fields = {field.name: field for field in cron_trigger(line).fields}

    def matches(at: datetime, *names: str) -> bool:
        return all(fields[name].get_next_value(at) == fields[name].get_value(at) for name in names)

    minutes = [one for one in range(60) if matches(_FIRST_DAY.replace(minute=one), "minute")]
    times = [
        60 * hour + minute for hour in range(24) for minute in minutes if matches(_FIRST_DAY.replace(hour=hour), "hour")
    ]
    days = [
        day
        for day in (_FIRST_DAY + timedelta(days=number) for number in range(_DAYS))
        if matches(day, "month", "day", "day_of_week")
    ]
    within = [60.0 * (later - earlier) for earlier, later in pairwise(times)]
    overnight = 60.0 * (times[0] - times[-1])
    between = [(later - earlier).total_seconds() + overnight for earlier, later in pairwise(days)]
    return [*within, *between] or [86_400.0 * _DAYS]


def seconds_of_runs(when: Every | Cron, count: int, now: float) -> float:
    """Return the time from `now`, Unix time, until the next `count` runs are due."""
    if isinstance(when, Every):
        return count * when.seconds
    trigger = cron_trigger(when.line)
    last = datetime.fromtimestamp(now, UTC)
    for _ in range(count):
        # A line can run out: datetime ends in the year 9999.
        last = trigger.get_next_fire_time(last, last) or last
    return last.timestamp() - now
