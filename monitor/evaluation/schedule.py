"""Runs evaluations on schedule, and reads crontab lines. The only module that imports APScheduler.

Missed runs are made up for by one run. While a run takes longer than its period, the next ones are skipped and counted,
never queued. The scheduler follows the wall clock: after a jump of the clock, call `run_all_now`.
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

log = logging.getLogger("cpcmon")

JobCallback = Callable[[str], None]
"""Called with the name of a job."""

_CRON_FIELDS = 5
_WEEK = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERED_DAYS = re.compile(r"(?:(?P<every>[*])|(?P<first>[0-7])(?:-(?P<last>[0-7]))?)(?:/(?P<step>[1-9]))?")
_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_DAYS = 2 * (4 * 365 + 1)
"""Eight years: they include two successive 29 Februaries."""


class Schedule:
    """Runs named jobs, each with its own period, on a small pool of threads."""

    def __init__(self, *, missed: JobCallback, skipped: JobCallback, failed: JobCallback, workers: int = 2) -> None:
        self._missed, self._skipped, self._failed = missed, skipped, failed
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(workers)},
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
        )
        self._scheduler.add_listener(self._on_event, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def add(self, name: str, when: Every | Cron, job: Callable[[], None]) -> None:
        """Run a job now, and then on schedule."""
        self._scheduler.add_job(job, _trigger(when), id=name, name=name, next_run_time=datetime.now(UTC))

    def start(self) -> None:
        """Start the scheduler."""
        self._scheduler.start()

    def run_all_now(self) -> None:
        """Run every job now, and schedule the next runs from now."""
        for job in self._scheduler.get_jobs():
            with suppress(JobLookupError):
                job.modify(next_run_time=datetime.now(UTC))

    def stop(self) -> None:
        """Start no more jobs, and wait for running ones."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def _on_event(self, event: JobExecutionEvent | JobSubmissionEvent) -> None:
        if event.code == EVENT_JOB_MISSED:
            self._missed(event.job_id)
        elif event.code == EVENT_JOB_MAX_INSTANCES:
            self._skipped(event.job_id)
        elif isinstance(event, JobExecutionEvent):
            log.error("%s failed: %s: %s", event.job_id, type(event.exception).__name__, event.exception)
            self._failed(event.job_id)


class _NoBacklog(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """A trigger without missed runs.

    APScheduler lists every missed run before it takes the last. A machine that boots in 1970 and then gets the time from a
    server would list fifty years of runs, and exhaust its memory.
    """

    def __init__(self, trigger: BaseTrigger) -> None:
        self._trigger = trigger

    def __str__(self) -> str:
        """Return the text of the inner trigger, which APScheduler logs."""
        return str(self._trigger)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """Return the next run after `previous`, not before `now`."""
        found: datetime | None = self._trigger.get_next_fire_time(previous, now)
        return found if found is None else max(found, now)


def _trigger(when: Every | Cron) -> BaseTrigger:
    return _NoBacklog(
        IntervalTrigger(seconds=when.seconds, timezone=UTC) if isinstance(when, Every) else _cron(when.line)
    )


def _cron(line: str) -> CronTrigger:
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
        trigger = _cron(line)
    except ValueError as error:
        return str(error)
    _, _, day, _, day_of_the_week = line.split()
    if not day.startswith("*") and not day_of_the_week.startswith("*"):
        # cron runs when either matches, APScheduler when both do.
        return "it names days of the month and days of the week: leave one of them *"
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        return "it never comes true"
    return None


@lru_cache(maxsize=256)  # each scrape asks for it
def longest_gap_seconds(when: Every | Cron) -> float:
    """Return the longest time between two runs."""
    if isinstance(when, Every):
        return when.seconds
    fields = {field.name: field for field in _cron(when.line).fields}

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
    return max([*within, *between], default=86_400.0 * _DAYS)


def seconds_of_runs(when: Every | Cron, count: int, now: float) -> float:
    """Return the time from `now`, Unix time, until the next `count` runs are due."""
    if isinstance(when, Every):
        return count * when.seconds
    trigger = _cron(when.line)
    last = datetime.fromtimestamp(now, UTC)
    for _ in range(count):
        # A line can run out: datetime ends in the year 9999.
        last = trigger.get_next_fire_time(last, last) or last
    return last.timestamp() - now
