"""Runs evaluations on schedule, with APScheduler.

Missed runs are made up for by one run. While a run takes longer than its period, the next ones are skipped and counted,
never queued. The scheduler follows the wall clock: after a jump of the clock, call `run_all_now`.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

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
from apscheduler.triggers.interval import IntervalTrigger

from monitor.config.config import Cron, Every
from monitor.evaluation.crontab import cron_trigger

log = logging.getLogger("cpcmon")

JobCallback = Callable[[str], None]
"""Called with the name of a job."""


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

    def once(self, job: Callable[[], None]) -> None:
        """Run a job once, as soon as a thread is free. It must not raise."""
        self._scheduler.add_job(job)

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
        IntervalTrigger(seconds=when.seconds, timezone=UTC) if isinstance(when, Every) else cron_trigger(when.line)
    )
