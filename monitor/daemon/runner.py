"""The parts of one configuration at work: a thread that takes records in, and a schedule that judges."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from monitor.config.config import Every
from monitor.core.estimate import WindowState
from monitor.core.report import ModelReport, SegmentReport
from monitor.daemon.build import Parts
from monitor.daemon.clock import CONFIRMED_SECONDS, Clock, Moment, Surprise, surprise
from monitor.daemon.watchdog import Watchdog
from monitor.evaluation.evaluator import Evaluator, key_of
from monitor.evaluation.schedule import Schedule, seconds_of_runs
from monitor.ingest.backlog import BacklogProgress
from monitor.telemetry import Telemetry

log = logging.getLogger("cpcmon")

_FIRST_TICK_SECONDS = 10.0
_BEAT = "the schedule itself"
_BEAT_SECONDS = 5.0
_LATE_PERIODS, _LATE_SECONDS = 5, 300.0


_NOTHING_SHOWN: Mapping[str, ModelReport] = MappingProxyType({})


class Runner:
    """One configuration at work. Made, started and stopped by the daemon's own thread."""

    def __init__(
        self,
        assembly: Parts,
        telemetry: Telemetry,
        progress: Watchdog,
        publish: Callable[[ModelReport], None],
        retract: Callable[[ModelReport], None],
        failed: Callable[[BaseException], None],
        shown: Mapping[str, ModelReport] = _NOTHING_SHOWN,
        clock: Callable[[], Moment] | None = None,
    ) -> None:
        """Put the parts together; `shown` are reports from before, which stay on the page until there are new ones."""
        self.assembly = assembly
        self.ingestion = assembly.ingestion
        self._telemetry, self._progress = telemetry, progress
        self._publish, self._retract, self._failed = publish, retract, failed
        self._clock = clock or Clock()
        self._last_look = self._last_tick = self._clock()
        self._restored = False
        """Whether the windows are those of the state: what was rebuilt in part must not be written back."""
        self._backlog = BacklogProgress()
        self._stop = threading.Event()
        self._ticked = threading.Event()
        self._thread = threading.Thread(target=self._ingest, name="ingest", daemon=True)
        self._schedule = Schedule(
            missed=telemetry.missed, skipped=telemetry.skipped, failed=telemetry.evaluation_failed
        )
        self._unshown = {name: evaluator.not_evaluated() for name, evaluator in assembly.evaluators.items()}
        self._reports = {name: report for name, report in shown.items() if name in assembly.evaluators}
        self._evaluated: set[str] = set()
        self._late_at: dict[str, float] = {}
        """Until when each model must have been evaluated, on the steady clock."""
        self._lock = threading.Lock()

    def start(self) -> None:
        """Rebuild the windows, take in a first time, then judge and go on."""
        self._last_tick = self._clock()
        self.ingestion.start(self._last_tick.now)
        self._restored = True
        self._thread.start()
        # What is known before the first tick is of the past; but a slow disk must not keep the page away.
        self._ticked.wait(_FIRST_TICK_SECONDS)
        for name, evaluator in self.assembly.evaluators.items():
            self._late_at[name] = self._late_after(evaluator, self._clock())
            self._schedule.add(name, evaluator.config.evaluate, self._job(evaluator))
        self._schedule.add(_BEAT, Every(_BEAT_SECONDS), self._beat)
        self._beat()
        self._schedule.start()

    def stop(self) -> None:
        """Finish what is running, write it down, close the sources. The state stays open."""
        self._schedule.stop()
        self._progress.end("evaluation")
        self._stop.set()
        if self._restored:
            self._thread.join()
            self._progress.end("ingestion")
            self.ingestion.stop(self._clock().now)

    def look_at_the_clocks(self) -> None:
        """Put right what goes by the wall clock, when that was set; called about once a second."""
        seen = self._clock()
        found = surprise(self._last_look, seen)
        if found.set_seconds:
            self._telemetry.clock_jumped()
        if found.set_seconds or found.jumped_seconds:
            log.warning("%s", _about_the_clock(found, seen))
        elif found.suspended:
            log.warning("this machine was suspended: nothing is judged before what is unread has been looked at")
        if found.any:
            self.ingestion.invalidate_backlog()
        # After the doubt: an evaluation compares with this look, too.
        self._last_look = seen
        if found.any:
            self._schedule.run_all_now()
        self._mark_late()

    def unevaluated(self) -> list[str]:
        """Return the models that have not been evaluated yet."""
        with self._lock:
            return [name for name in self.assembly.evaluators if name not in self._evaluated]

    def _beat(self) -> None:
        self._progress.moved("evaluation", self._clock().running)

    def _ingest(self) -> None:
        try:
            while not self._stop.is_set():
                before, began = self._last_tick, self._clock()
                self._last_tick = began
                self._progress.moved("ingestion", began.running)
                # On this thread: a tick that saw the new time first would find every segment silent since long.
                self.ingestion.clock_jumped(surprise(before, began).jumped_seconds)
                tick = self.ingestion.tick(began.now, began.running)
                self._backlog.report(
                    began.running,
                    behind=self.ingestion.catching_up(began.now, began.running),
                    records=tick.records,
                    lags=self.ingestion.lags(),
                )
                self._telemetry.ticked(self._clock().running - began.running)
                self._ticked.set()
                self._stop.wait(self.ingestion.next_poll_seconds())
        except BaseException as error:  # noqa: BLE001 - whatever it was, nothing is taken in any more: end loudly
            self._failed(error)

    def _job(self, evaluator: Evaluator) -> Callable[[], None]:
        def job() -> None:
            began = self._clock()
            if surprise(self._last_look, began).any:
                # The daemon's thread looks once a second, and this may come first.
                self.ingestion.invalidate_backlog()
            try:
                report = evaluator.evaluate(began.now, began.running, began.awake)
                self.ingestion.store_value(key_of(evaluator.name), evaluator.remembered())
            except Exception:
                self._cannot_say(evaluator.name)
                raise
            with self._lock:
                self._evaluated.add(evaluator.name)
                self._late_at[evaluator.name] = self._late_after(evaluator, began)
                self._reports[evaluator.name] = report
                self._publish(report)
            self._telemetry.evaluated(evaluator.name, report.seconds)
            for estimator, count in report.errors.items():
                self._telemetry.estimator_failed(evaluator.name, estimator, count)

        return job

    def _mark_late(self) -> None:
        """Take back numbers that no evaluation has confirmed for long: a frozen one looks healthy for ever."""
        running = self._clock().running
        with self._lock:
            late = [name for name, until in self._late_at.items() if running > until]
        for name in late:
            self._cannot_say(name)

    @staticmethod
    def _late_after(evaluator: Evaluator, at: Moment) -> float:
        """Return when a model's numbers are too old to be shown, unless it is evaluated again."""
        return at.running + max(seconds_of_runs(evaluator.config.evaluate, _LATE_PERIODS, at.now), _LATE_SECONDS)

    def _cannot_say(self, model: str) -> None:
        """Show that a model's evaluation failed: its windows are in error, its alerts held."""
        with self._lock:
            last = self._reports.get(model)
            if last is None:
                last = self._unshown[model]
            elif all(one.state is WindowState.ERROR and not one.results for one in last.segments):
                return
            now = self._clock().now
            self.assembly.evaluators[model].retracted_at = now
            self._reports[model] = replace(last, segments=tuple(_in_error(one, now) for one in last.segments))
            self._retract(self._reports[model])


def _about_the_clock(found: Surprise, now: Moment) -> str:
    minutes = CONFIRMED_SECONDS / 60.0
    if not found.set_seconds:
        return f"the clock has kept its new time for {minutes:.0f} minutes: it is used from now on, {found.jumped_seconds:+.0f} seconds"
    was_set = f"the clock was set by {found.set_seconds:+.0f} seconds"
    if now.ahead:
        return f"{was_set}: records get the time from before, until it is back or has kept the new time for {minutes:.0f} minutes"
    return f"{was_set}, and is back"


def _in_error(segment: SegmentReport, now: float) -> SegmentReport:
    known = segment.state is WindowState.ERROR and segment.state_since is not None
    return SegmentReport(
        segment.segment,
        segment.records,
        WindowState.ERROR,
        last_record_at=segment.last_record_at,
        last_valid_at=segment.last_valid_at,
        alerts=tuple(replace(alert, held=True) for alert in segment.alerts),
        state_since=segment.state_since if known else now,
    )
