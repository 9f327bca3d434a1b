"""The runner on the real schedule and ingestion, with a clock set by hand."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.config.config import Config, Cron, Every, Storage
from monitor.core.alerts import AlertPhase, AlertState
from monitor.core.estimate import WindowState
from monitor.core.history import Span
from monitor.core.input_health import VersionCounts
from monitor.core.report import Report
from monitor.core.segments import ALL
from monitor.daemon.build import Parts, build
from monitor.daemon.clock import Moment
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Watchdog
from monitor.errors import StatePaused
from monitor.evaluation.stored_values import AlertMemory, WindowAlertState, key_of
from monitor.sources.base import Lag
from monitor.state.evaluation_history import History
from monitor.telemetry import DaemonFacts, Telemetry
from tests.core.test_history import report
from tests.evaluation.driver import LOW, POOR, Monitor, monitor_reference
from tests.waiting import wait_until

LIMIT = 60.0


class Clock:
    """Clocks that advance by hand."""

    def __init__(self, monitor: Monitor) -> None:
        self.moment = Moment(monitor.now, monitor.running, monitor.running)

    def __call__(self) -> Moment:
        """Read them."""
        return self.moment

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        now, running, awake = self.moment.now, self.moment.running, self.moment.awake
        self.moment = Moment(now + seconds, running + seconds, awake + seconds)


class Site:
    """A runner for one model, and its results."""

    def __init__(self, folder: Path) -> None:
        self.monitor = Monitor(folder / "state", LOW, split=True, forget=30 * 86_400.0)
        self.monitor.config = replace(self.monitor.config, evaluate=Every(0.1))
        self.monitor.evaluator.config = self.monitor.config
        self.monitor.send(400, site="A")
        self.clock = Clock(self.monitor)
        self.watchdog = Watchdog()
        self.telemetry = Telemetry(lambda: DaemonFacts(("density",), {}, None))
        self.telemetry.configured(["density"])
        self.published: list[Report] = []
        self.retracted: list[Report] = []
        self.failures: list[BaseException] = []
        self.parts = Parts(
            Config(Storage(folder), (), (self.monitor.config,)),
            self.monitor.ingestion,
            {"density": self.monitor.evaluator},
            {"density": self.monitor.history},
        )
        # Already started by the driver; a second start would count stored records twice.
        self.monitor.ingestion.start = lambda now: None  # type: ignore[method-assign]  # noqa: ARG005
        self.runner = self.new_runner()

    def new_runner(self, shown: Sequence[Report] = ()) -> Runner:
        """Return a new runner on the same parts, as after a reload."""
        return Runner(
            self.parts,
            self.telemetry,
            self.watchdog,
            publish=self.published.append,
            retract=self.retracted.append,
            failed=self.failures.append,
            shown={report.model: report for report in shown},
            clock=self.clock,
        )

    def counted(self, name: str) -> float:
        """Return the value of a daemon metric."""
        lines = self.telemetry.page().decode().splitlines()
        lines = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose runner is stopped afterwards."""
    site = Site(tmp_path)
    yield site
    site.runner.stop()
    site.monitor.state.close()


def test_the_sources_are_polled_before_the_first_evaluation(site: Site) -> None:
    site.runner.start()
    wait_until(lambda: site.published)
    assert site.published[0].segments[0].records == 400
    assert site.published[0].segments[0].valid
    assert site.runner.unevaluated() == []


def test_the_progress_of_a_backlog_is_logged(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "cpcmon")
    monkeypatch.setattr(site.monitor.ingestion.view, "catching_up", lambda *_: True)
    monkeypatch.setattr(site.monitor.ingestion.view, "lags", lambda: {"results": Lag(2_000_000, 2)})
    site.runner.start()
    wait_until(lambda: "records read, unread at results: 2 files, 2.0 MB" in caplog.text)


def test_a_failed_evaluation_retracts_its_estimates_and_is_retried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.runner.start()
    wait_until(lambda: site.published)
    evaluate = type(site.monitor.evaluator).evaluate

    def broken(*_: object) -> Report:
        raise ZeroDivisionError("as if")

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", broken)
    wait_until(lambda: site.counted("cpcmon_evaluation_failures_total") >= 3)
    (retracted,) = site.retracted
    whole, _ = retracted.segments
    assert (whole.state, dict(whole.results), whole.records) == (WindowState.ERROR, {}, 400)
    assert all(alert.held for alert in whole.alerts)
    assert retracted.at == site.published[-1].at
    assert whole.state_since == site.clock().now
    before = len(site.published)
    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", evaluate)
    wait_until(lambda: len(site.published) > before)
    assert site.published[-1].segments[0].valid


def test_estimates_of_a_hanging_evaluation_are_retracted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    site.runner.start()
    wait_until(lambda: site.published)
    evaluate = type(site.monitor.evaluator).evaluate

    def hanging(*arguments: object) -> Report:
        go_on.wait(LIMIT)
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", hanging)
    wait_until(lambda: site.counted("cpcmon_scheduler_skipped_total"))
    site.clock.forward(299.0)
    site.runner.check_clocks()
    assert site.retracted == []
    site.clock.forward(2.0)
    site.runner.check_clocks()
    site.runner.check_clocks()
    (retracted,) = site.retracted
    assert retracted.segments[0].state is WindowState.ERROR
    go_on.set()


@pytest.mark.slow
@pytest.mark.parametrize("before", ["a reload", "a start"])
def test_a_first_evaluation_that_hangs_retracts_the_previous_estimates(
    site: Site, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """After a reload, the previous reports are shown, but not forever."""
    site.monitor.run(7200.0)
    firing = site.monitor.run(7200.0, POOR)
    assert firing.segments[0].alerts[0].firing
    site.monitor.restart()
    site.parts = replace(site.parts, ingestion=site.monitor.ingestion, evaluators={"density": site.monitor.evaluator})
    site.monitor.ingestion.start = lambda now: None  # type: ignore[method-assign]  # noqa: ARG005
    go_on, hangs = threading.Event(), threading.Event()

    def hanging(*_: object) -> Report:
        hangs.set()
        go_on.wait(LIMIT)
        raise ZeroDivisionError("as if")

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", hanging)
    site.runner = site.new_runner([firing] if before == "a reload" else [])
    site.runner.start()
    assert hangs.wait(LIMIT)
    site.clock.forward(301.0)
    site.runner.check_clocks()
    (retracted,) = site.retracted
    go_on.set()
    assert retracted.segments[0].state is WindowState.ERROR
    assert not retracted.segments[0].results
    (alert,) = retracted.segments[0].alerts
    assert alert.firing
    assert alert.held
    assert site.runner.unevaluated() == ["density"]


def test_estimates_of_a_cron_schedule_are_retracted_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.monitor.evaluator.config = replace(site.monitor.config, evaluate=Cron("0 * * * *"))
    site.runner.start()
    wait_until(lambda: site.published)
    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", lambda *_: threading.Event().wait(LIMIT))
    site.clock.forward(4 * 3600.0 - 300.0)
    site.runner.check_clocks()
    assert site.retracted == []
    site.clock.forward(3600.0 + 301.0)
    site.runner.check_clocks()
    assert len(site.retracted) == 1


def test_e11_a_clock_jump_is_counted_and_everything_is_evaluated_again(site: Site) -> None:
    site.runner.start()
    wait_until(lambda: site.published)
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now - 86_400.0)
    site.runner.check_clocks()
    assert site.counted("cpcmon_clock_jumps_total") == 1.0
    wait_until(lambda: site.published[-1].at < moment.now - 86_000.0)
    wait_until(lambda: site.published[-1].segments[0].valid)
    assert site.published[-1].segments[0].records == 400


@pytest.mark.parametrize("days", [40.0, -40.0])
def test_e11_ingestion_that_sees_the_new_time_first_forgets_no_segment(site: Site, days: float) -> None:
    """A tick may come before the next check of the clocks."""
    site.runner.start()
    wait_until(lambda: site.published)
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now + 86_400.0 * days)
    ticks = site.counted("cpcmon_tick_duration_seconds_count")
    wait_until(lambda: site.counted("cpcmon_tick_duration_seconds_count") > ticks + 1)
    site.runner.check_clocks()
    ticks = site.counted("cpcmon_tick_duration_seconds_count")
    wait_until(lambda: site.counted("cpcmon_tick_duration_seconds_count") > ticks + 1)
    assert set(site.monitor.ingestion.view.snapshot("density", 0.0, 0.0).segments) == {(), (("site", "A"),)}


def test_e12_an_evaluation_right_after_a_suspension_is_catching_up(site: Site) -> None:
    """Before the clocks are checked and the sources are polled."""
    site.runner.start()
    wait_until(lambda: site.published)
    site.monitor.ingestion.tick = lambda *_: None  # type: ignore[method-assign, assignment]
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now + 300.0, running=moment.running + 300.0)
    wait_until(lambda: site.published[-1].at > moment.now)
    evaluated = [one for one in site.published if one.at > moment.now]
    assert {one.segments[0].state for one in evaluated} == {WindowState.CATCHING_UP}


def test_an_ingestion_failure_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("as if")

    site.runner.start()
    monkeypatch.setattr(site.monitor.ingestion, "tick", broken)
    wait_until(lambda: site.failures)
    assert isinstance(site.failures[0], ZeroDivisionError)


def test_a_loop_without_progress_is_unhealthy() -> None:
    watchdog = Watchdog(stuck_seconds=120.0)
    assert watchdog.stuck(0.0) == {}
    watchdog.moved("ingestion", 0.0)
    watchdog.moved("evaluation", 50.0)
    assert watchdog.stuck(120.0) == {}
    assert watchdog.stuck(121.0) == {"ingestion": 121.0}
    watchdog.end("ingestion")
    assert watchdog.stuck(130.0) == {}


def test_alert_state_that_could_not_be_written_survives_a_reload(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert fires on a full disk, then the configuration is reloaded."""
    state, config = site.monitor.state, site.parts.config

    def full(*_: object) -> None:
        raise StatePaused("full")

    firing = {"accuracy_low": AlertState(AlertPhase.FIRING, site.clock().now)}
    stored = AlertMemory(VersionCounts(), (WindowAlertState(ALL, alerts=firing),)).to_bytes()
    before = build(config, {"density": monitor_reference()}, state)
    with monkeypatch.context() as patch:
        patch.setattr(state, "commit", full)
        before.ingestion.values.store(key_of("density"), stored)
        before.ingestion.stop(site.clock().now)
    assert before.ingestion.values.unwritten() == {key_of("density"): stored}
    after = build(config, {"density": monitor_reference()}, state, before.ingestion.values.unwritten())
    assert after.evaluators["density"].fired == (("density", "all", "accuracy_low"),)
    assert after.ingestion.values.unwritten() == {key_of("density"): stored}


def test_history_that_could_not_be_written_survives_a_reload(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    state, config, history, now = site.monitor.state, site.parts.config, History(), site.clock().now

    def full(*_: object) -> None:
        raise StatePaused("full")

    before = build(config, {"density": monitor_reference()}, state, history=history)
    with monkeypatch.context() as patch:
        patch.setattr(state, "commit", full)
        history.note(report(0.5), now)
        before.ingestion.stop(now)
    after = build(config, {"density": monitor_reference()}, state, history=history)
    assert list(state.history()) == []
    after.ingestion.tick(now, 1.0)
    assert [row.place for row in state.history() if row is not None] == [(Span.RECENT, 1)]
    assert not history.unwritten()
