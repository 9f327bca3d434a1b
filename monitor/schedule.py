"""Calls evaluations on time. The only file that knows APScheduler.

Late runs are made up for once, however many were due; a run that takes longer than its period makes the next one be left
out and counted, never queued. The scheduler follows the wall clock, so after that was set `run_all_now` puts it right.
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
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from monitor.configuration.config import Cron, Every

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
        trigger = IntervalTrigger(seconds=when.seconds) if isinstance(when, Every) else _cron(when.line)
        self._scheduler.add_job(job, trigger, id=name, next_run_time=datetime.now(UTC))

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


def _cron(line: str) -> CronTrigger:
    return CronTrigger.from_crontab(line, timezone=UTC)


def cron_problem(line: str) -> str | None:
    """Say what is wrong with a crontab line; None when nothing is."""
    try:
        trigger = _cron(line)
    except ValueError as error:
        return str(error)
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        return "it never comes true"
    return None
