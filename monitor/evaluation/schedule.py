"""Calls evaluations on time, and the longest gap a schedule leaves. The only module that imports APScheduler.

Late runs are made up for once, however many were due; a run that takes longer than its period makes the next one be left
out and counted, never queued. The scheduler follows the wall clock, so after that was set `run_all_now` puts it right.
"""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from monitor.config.config import Cron, Every

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


log = logging.getLogger("cpcmon")

Told = Callable[[str], None]
"""Told the name of a job."""


class Schedule:
    """Runs named jobs, each with its own period, on a small pool of threads."""

    def __init__(self, *, missed: Told, skipped: Told, failed: Told, workers: int = 2) -> None:
        self._missed, self._skipped, self._failed = missed, skipped, failed
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(workers)},
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
        )
        self._scheduler.add_listener(self._heard, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def add(self, name: str, when: Every | Cron, job: Callable[[], None]) -> None:
        """Run a job now, and then on time."""
        self._scheduler.add_job(job, _trigger(when), id=name, name=name, next_run_time=datetime.now(UTC))

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()

    def run_all_now(self) -> None:
        """Run everything once, and go on from now."""
        for job in self._scheduler.get_jobs():
            with suppress(JobLookupError):
                job.modify(next_run_time=datetime.now(UTC))

    def stop(self) -> None:
        """Start nothing more, and wait for what is running."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def _heard(self, event: JobExecutionEvent | JobSubmissionEvent) -> None:
        if event.code == EVENT_JOB_MISSED:
            self._missed(event.job_id)
        elif event.code == EVENT_JOB_MAX_INSTANCES:
            self._skipped(event.job_id)
        elif isinstance(event, JobExecutionEvent):
            log.error("%s failed: %s: %s", event.job_id, type(event.exception).__name__, event.exception)
            self._failed(event.job_id)


def seconds_of_runs(when: Every | Cron, count: int, now: float) -> float:
    """Return how long it is from `now`, Unix time, until so many runs are due."""
    if isinstance(when, Every):
        return count * when.seconds
    trigger = _cron(when.line)
    last = datetime.fromtimestamp(now, UTC)
    for _ in range(count):
        # A line may run out: there is a last February 29th that datetime knows.
        last = trigger.get_next_fire_time(last, last) or last
    return last.timestamp() - now


class _NoBacklog(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Another trigger, in which all times that have passed are one.

    APScheduler lists every run that was missed, and only then takes the last. A machine that starts in 1970 and asks a
    time server later would list fifty years of them, and run out of memory.
    """

    def __init__(self, trigger: BaseTrigger) -> None:
        self._trigger = trigger

    def __str__(self) -> str:
        """Return the other trigger's text: APScheduler logs it with each run that is skipped or fails."""
        return str(self._trigger)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """Return when to run after `previous`, not before `now`."""
        found: datetime | None = self._trigger.get_next_fire_time(previous, now)
        return found if found is None else max(found, now)


def _trigger(when: Every | Cron) -> BaseTrigger:
    return _NoBacklog(
        IntervalTrigger(seconds=when.seconds, timezone=UTC) if isinstance(when, Every) else _cron(when.line)
    )


_CRON_FIELDS = 5
_WEEK = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERED_DAYS = re.compile(r"(?:(?P<every>[*])|(?P<first>[0-7])(?:-(?P<last>[0-7]))?)(?:/(?P<step>[1-9]))?")


def _cron(line: str) -> CronTrigger:
    fields = line.split()
    if len(fields) == _CRON_FIELDS:
        fields[-1] = ",".join(_named_days(part) for part in fields[-1].split(","))
    return CronTrigger.from_crontab(" ".join(fields), timezone=UTC)


def _named_days(part: str) -> str:
    """Return days of the week by name. In a crontab 0 and 7 are Sunday; for APScheduler 0 is Monday."""
    found = _NUMBERED_DAYS.fullmatch(part)
    if found is None or part == "*":
        return part
    first = int(found["first"] or 0)
    last = int(found["last"] or (6 if found["every"] or found["step"] else first))
    # An empty list would be every day; what cannot be is left for APScheduler to refuse.
    return ",".join(_WEEK[first : last + 1 : int(found["step"] or 1)]) or part


def cron_problem(line: str) -> str | None:
    """Say what is wrong with a crontab line; None when nothing is."""
    try:
        trigger = _cron(line)
    except ValueError as error:
        return str(error)
    _, _, day, _, day_of_the_week = line.split()
    if not day.startswith("*") and not day_of_the_week.startswith("*"):
        # Cron runs when either fits, APScheduler when both do.
        return "it names days of the month and days of the week: leave one of them *"
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        return "it never comes true"
    return None
