"""Runs the parts of one configuration: an ingestion thread and an evaluation schedule."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType

from monitor.config.config import Every
from monitor.core.recent_ids import Hashes
from monitor.core.report import Report
from monitor.daemon.build import Parts
from monitor.daemon.clock import CONFIRMED_SECONDS, Clock, ClockChange, Moment, clock_change
from monitor.daemon.watchdog import Watchdog
from monitor.errors import Problem, UnknownName
from monitor.evaluation.alert_history import alert_history_key_of
from monitor.evaluation.crontab import seconds_of_runs
from monitor.evaluation.evaluator import Evaluator
from monitor.evaluation.schedule import Schedule
from monitor.evaluation.stored_values import baselines_key_of, key_of
from monitor.evaluation.track_records import track_key_of
from monitor.ingest.backlog import BacklogProgress
from monitor.state.commit_plan import Forgotten
from monitor.telemetry import Telemetry
from monitor.web.pages.wording import problem_words

log = logging.getLogger("cpcmon")

_FIRST_TICK_SECONDS = 10.0
_HEARTBEAT = "schedule heartbeat"
_HEARTBEAT_SECONDS = 5.0
_LATE_PERIODS, _LATE_SECONDS = 5, 300.0
_CHANGE_SECONDS, _STORED_SECONDS = 60.0, 30.0
"""How long a command may wait for its evaluation, and for the disk."""

_NOTHING_SHOWN: Mapping[str, Report] = MappingProxyType({})


class Runner:
    """Runs one configuration. Created, started and stopped by the daemon's thread."""

    def __init__(
        self,
        parts: Parts,
        telemetry: Telemetry,
        watchdog: Watchdog,
        publish: Callable[[Report], None],
        retract: Callable[[Report], None],
        failed: Callable[[BaseException], None],
        shown: Mapping[str, Report] = _NOTHING_SHOWN,
        clock: Callable[[], Moment] | None = None,
    ) -> None:
        """`shown` holds the reports of the previous runner, which are shown until there are new ones."""
        self.parts = parts
        self.ingestion = parts.ingestion.view
        self._loop = parts.ingestion
        self._telemetry, self._watchdog = telemetry, watchdog
        self._publish, self._retract, self._failed = publish, retract, failed
        self._clock = clock or Clock()
        self._last_check = self._last_tick = self._clock()
        self._restored = False
        """Whether all windows were restored: partly restored ones must not be written back."""
        self._backlog = BacklogProgress()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._ticked = threading.Event()
        self._thread = threading.Thread(target=self._ingest, name="ingest", daemon=True)
        self._schedule = Schedule(
            missed=telemetry.missed, skipped=telemetry.skipped, failed=telemetry.evaluation_failed
        )
        self._not_evaluated = {name: evaluator.not_evaluated() for name, evaluator in parts.evaluators.items()}
        self._reports = {name: report for name, report in shown.items() if name in parts.evaluators}
        self._evaluated: set[str] = set()
        self._late_at: dict[str, float] = {}
        """Deadline for the next evaluation of each model, on the steady clock."""
        self._lock = threading.Lock()
        self._evaluating = {name: threading.Lock() for name in parts.evaluators}
        """Held while an evaluator is used."""

    def start(self) -> None:
        """Restore the windows, poll once, then start the schedule."""
        self._last_tick = self._clock()
        self._loop.start(self._last_tick.now)
        self._restored = True
        self._thread.start()
        # Evaluate after the first poll, but do not wait long for a slow disk.
        self._ticked.wait(_FIRST_TICK_SECONDS)
        for name, evaluator in self.parts.evaluators.items():
            self._late_at[name] = self._late_after(evaluator, self._clock())
            self._schedule.add(name, evaluator.config.evaluate, self._job(evaluator))
        self._schedule.add(_HEARTBEAT, Every(_HEARTBEAT_SECONDS), self._heartbeat)
        self._heartbeat()
        self._schedule.start()

    def stop(self) -> None:
        """Finish the current work, commit, and close the sources. The state stays open."""
        self._schedule.stop()
        self._watchdog.end("evaluation")
        self._stop.set()
        self._wake.set()
        if self._restored:
            self._thread.join()
            self._watchdog.end("ingestion")
            self._loop.stop(self._clock().now)

    def check_clocks(self) -> None:
        """React to clock changes and suspensions, and mark late models; called about once a second."""
        now = self._clock()
        change = clock_change(self._last_check, now)
        if change.set_seconds:
            self._telemetry.clock_jumped()
        if change.set_seconds or change.jumped_seconds:
            log.warning("%s", _clock_message(change, now))
        elif change.suspended:
            log.warning("the machine was suspended: no evaluation before the sources were polled")
        if change.any:
            self._loop.backlog.invalidate()
        # After that: evaluations compare with the last check, too.
        self._last_check = now
        if change.any:
            self._schedule.run_all_now()
        self._mark_late()

    def unevaluated(self) -> list[str]:
        """Return the models without an evaluation so far. Takes no lock: each scrape asks."""
        return [name for name in self.parts.evaluators if name not in self._evaluated]

    def change(self, model: str, change: Callable[[Evaluator], None]) -> bool:
        """Change an evaluator between evaluations, and evaluate at once; on any thread but those of the schedule.

        Return whether the change is stored. Raises UsageError if the model is unknown or the change is refused, TimeoutError
        if it was not made in time.
        """
        if (evaluator := self.parts.evaluators.get(model)) is None:
            raise UnknownName(Problem("model", "the name of a model of the configuration", "none of that name"))
        done: Future[None] = Future()

        def job() -> None:
            try:
                with self._evaluating[model]:
                    change(evaluator)
                    self._store_baselines(evaluator)
                    self._evaluate(evaluator)
                done.set_result(None)
            except Exception as error:  # noqa: BLE001 - for the caller
                done.set_exception(error)

        # By the schedule, which waits for it before it stops.
        self._schedule.once(job)
        done.result(_CHANGE_SECONDS)
        self._wake.set()
        values = self._loop.values
        return all(values.wait_written(key(model), _STORED_SECONDS) for key in (baselines_key_of, key_of))

    def forget(self, hashes: Hashes, model: str | None) -> Forgotten:
        """Delete what is stored of some ids, of one model or of all; return what there was. On any thread but that of ingestion.

        Raises UsageError if the model is unknown, StateError if the state cannot be written, TimeoutError if it was not done
        in time.
        """
        if model is not None and model not in self.parts.evaluators:
            raise UnknownName(Problem("model", "the name of a model of the configuration", "none of that name"))
        done = self._loop.forget(hashes, model)
        self._wake.set()
        return done.result(_CHANGE_SECONDS)

    def _heartbeat(self) -> None:
        self._watchdog.moved("evaluation", self._clock().running)

    def _ingest(self) -> None:
        try:
            while not self._stop.is_set():
                before, began = self._last_tick, self._clock()
                self._last_tick = began
                self._watchdog.moved("ingestion", began.running)
                # Before the tick, which would otherwise find every segment silent.
                self._loop.states.clock_jumped(clock_change(before, began).jumped_seconds)
                tick = self._loop.tick(began.now, began.running)
                self._backlog.report(
                    began.running,
                    behind=self.ingestion.catching_up(began.now, began.running),
                    records=tick.records,
                    lags=self.ingestion.lags(),
                )
                self._telemetry.ticked(self._clock().running - began.running)
                self._ticked.set()
                self._wake.wait(self._loop.next_poll_seconds())
                self._wake.clear()
        except BaseException as error:  # noqa: BLE001 - ingestion is dead: stop the daemon
            self._failed(error)

    def _job(self, evaluator: Evaluator) -> Callable[[], None]:
        def job() -> None:
            with self._evaluating[evaluator.name]:
                self._evaluate(evaluator)

        return job

    def _evaluate(self, evaluator: Evaluator) -> None:
        began = self._clock()
        if clock_change(self._last_check, began).any:
            # The evaluation may run before the next check of the clocks.
            self._loop.backlog.invalidate()
        try:
            report = evaluator.evaluate(began.now, began.running, began.awake)
            self._store_alerts(evaluator, report)
            self._store_baselines(evaluator)
            if (tracks := evaluator.changed_tracks(began.now)) is not None:
                self._loop.values.store(track_key_of(evaluator.name), tracks)
        except Exception:
            self._mark_error(evaluator.name)
            raise
        with self._lock:
            _log_problems(self._reports.get(evaluator.name), report)
            self._evaluated.add(evaluator.name)
            self._late_at[evaluator.name] = self._late_after(evaluator, began)
            self._reports[evaluator.name] = report
            self._publish(report)
        self._telemetry.evaluated(evaluator.name, report.seconds)
        for estimator, count in report.errors.items():
            self._telemetry.estimator_failed(evaluator.name, estimator, count)

    def _store_alerts(self, evaluator: Evaluator, report: Report) -> None:
        """Store the alert state, and in the same commit the transitions that led to it."""
        values: dict[str, bytes | None] = {key_of(evaluator.name): evaluator.alert_state_bytes()}
        history = self.parts.alert_histories[evaluator.name]
        if history.note(report):
            values[alert_history_key_of(evaluator.name)] = history.to_bytes()
        self._loop.values.store_together(values)

    def _store_baselines(self, evaluator: Evaluator) -> None:
        if (baselines := evaluator.changed_baselines()) is not None:
            self._loop.values.store(baselines_key_of(evaluator.name), baselines)

    def _mark_late(self) -> None:
        """Retract estimates that were not evaluated for too long."""
        running = self._clock().running
        with self._lock:
            late = [name for name, until in self._late_at.items() if running > until]
        for name in late:
            self._mark_error(name)

    @staticmethod
    def _late_after(evaluator: Evaluator, at: Moment) -> float:
        """Return when the estimates of a model become too old."""
        return at.running + max(seconds_of_runs(evaluator.config.evaluate, _LATE_PERIODS, at.now), _LATE_SECONDS)

    def _mark_error(self, model: str) -> None:
        """Put the windows of a model in error and hold its alerts."""
        with self._lock:
            last = self._reports.get(model)
            if last is None:
                last = self._not_evaluated[model]
            elif last.windows.failed and not last.windows.shown.any():
                return
            now = self._clock().now
            self.parts.evaluators[model].retracted_at = now
            self._reports[model] = replace(last, segments=last.windows.in_error(now))
            self._retract(self._reports[model])


def _log_problems(before: Report | None, after: Report) -> None:
    """Log the problems of a model's input that begin, get other names, or end."""
    known = {} if before is None else {one.problem: one.names for one in before.input.problems}
    for one in after.input.problems:
        if known.pop(one.problem, None) != one.names:
            log.warning("%s: input problem %s: %s", after.model, one.problem, problem_words(one))
    for problem in known:
        log.info("%s: input problem %s ended", after.model, problem)


def _clock_message(change: ClockChange, now: Moment) -> str:
    minutes = CONFIRMED_SECONDS / 60.0
    if not change.set_seconds:
        return f"following the new clock time after {minutes:.0f} minutes, {change.jumped_seconds:+.0f} seconds"
    was_set = f"the clock was set by {change.set_seconds:+.0f} seconds"
    if now.ahead:
        return f"{was_set}: keeping the previous time, until the clock is back or for {minutes:.0f} minutes"
    return f"{was_set} and is back in step"
