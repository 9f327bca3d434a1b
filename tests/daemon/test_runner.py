"""One configuration at work, on the real schedule and ingestion; only the clock is ours."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.config.config import Config, Cron, Every, Storage
from monitor.core.alerts import AlertPhase, AlertState
from monitor.core.estimate import WindowState
from monitor.core.history import Span
from monitor.core.report import ModelReport
from monitor.core.segments import ALL
from monitor.daemon.build import Parts, build
from monitor.daemon.clock import Moment
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Watchdog
from monitor.errors import StatePaused
from monitor.evaluation.alert_state import AlertMemory, VersionCounts, WindowAlertState
from monitor.evaluation.evaluator import key_of
from monitor.sources.base import Lag
from monitor.state.evaluation_history import History
from monitor.telemetry import DaemonFacts, Telemetry
from tests.core.test_past import report
from tests.evaluation.driver import LOW, POOR, REFERENCE, Monitor

LIMIT = 60.0


class Clock:
    """Clocks that stand still until they are set."""

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
    """Work on a model, and what came of it."""

    def __init__(self, folder: Path) -> None:
        self.monitor = Monitor(folder / "state", LOW, split=True, forget=30 * 86_400.0)
        self.monitor.config = replace(self.monitor.config, evaluate=Every(0.1))
        self.monitor.evaluator.config = self.monitor.config
        self.monitor.send(400, site="A")
        self.clock = Clock(self.monitor)
        self.progress = Watchdog()
        self.telemetry = Telemetry(lambda: DaemonFacts(("density",), {}, None))
        self.telemetry.configured(["density"])
        self.published: list[ModelReport] = []
        self.retracted: list[ModelReport] = []
        self.failures: list[BaseException] = []
        assembly = Parts(
            Config(Storage(folder), (), (self.monitor.config,)),
            self.monitor.ingestion,
            {"density": self.monitor.evaluator},
        )
        # The driver has started it already; a second start would count what is stored twice.
        self.monitor.ingestion.start = lambda now: None  # type: ignore[method-assign]  # noqa: ARG005
        self.assembly = assembly
        self.work = self.made()

    def made(self, shown: Sequence[ModelReport] = ()) -> Runner:
        """Return work on the same parts, made anew as by a reload; what is on the page stays there."""
        return Runner(
            self.assembly,
            self.telemetry,
            self.progress,
            publish=self.published.append,
            retract=self.retracted.append,
            failed=self.failures.append,
            shown={report.model: report for report in shown},
            clock=self.clock,
        )

    def counted(self, name: str) -> float:
        """Return a counter of the daemon's own."""
        lines = self.telemetry.page().decode().splitlines()
        lines = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Work that is stopped in the end."""
    site = Site(tmp_path)
    yield site
    site.work.stop()
    site.monitor.state.close()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something has happened on another thread."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_first_look_at_the_sources_comes_before_the_first_evaluation(site: Site) -> None:
    site.work.start()
    wait_for(lambda: site.published)
    assert site.published[0].segments[0].records == 400
    assert site.published[0].segments[0].valid
    assert site.work.unevaluated() == []


def test_a_backlog_is_told_in_the_log_as_it_is_read(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the thread that reads it, before the first evaluation."""
    caplog.set_level("INFO", "cpcmon")
    monkeypatch.setattr(site.monitor.ingestion, "catching_up", lambda *_: True)
    monkeypatch.setattr(site.monitor.ingestion, "lags", lambda: {"results": Lag(2_000_000, 2)})
    site.work.start()
    wait_for(lambda: "records taken in, unread at results: 2 files, 2.0 MB" in caplog.text)


def test_an_evaluation_that_raises_takes_its_numbers_back_and_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.work.start()
    wait_for(lambda: site.published)
    evaluate = type(site.monitor.evaluator).evaluate

    def broken(*_: object) -> ModelReport:
        raise ZeroDivisionError("as if")

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", broken)
    wait_for(lambda: site.counted("cpcmon_evaluation_failures_total") >= 3)
    (taken_back,) = site.retracted
    whole, _ = taken_back.segments
    assert (whole.state, dict(whole.results), whole.records) == (WindowState.ERROR, {}, 400)
    assert all(alert.held for alert in whole.alerts)
    assert taken_back.at == site.published[-1].at
    assert whole.state_since == site.clock().now
    before = len(site.published)
    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", evaluate)
    wait_for(lambda: len(site.published) > before)
    assert site.published[-1].segments[0].valid


def test_numbers_that_no_evaluation_confirms_are_taken_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation that hangs: a frozen number would look healthy for ever."""
    go_on = threading.Event()
    site.work.start()
    wait_for(lambda: site.published)
    evaluate = type(site.monitor.evaluator).evaluate

    def hanging(*arguments: object) -> ModelReport:
        go_on.wait(LIMIT)
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", hanging)
    wait_for(lambda: site.counted("cpcmon_scheduler_skipped_total"))
    site.clock.forward(299.0)
    site.work.look_at_the_clocks()
    assert site.retracted == []
    site.clock.forward(2.0)
    site.work.look_at_the_clocks()
    site.work.look_at_the_clocks()
    (taken_back,) = site.retracted
    assert taken_back.segments[0].state is WindowState.ERROR
    go_on.set()


@pytest.mark.slow
@pytest.mark.parametrize("before", ["a reload", "a start"])
def test_a_first_evaluation_that_hangs_leaves_no_number_from_before(
    site: Site, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """What the last configuration found stays on the page until there is something new, but not for ever."""
    site.monitor.run(7200.0)
    firing = site.monitor.run(7200.0, POOR)
    assert firing.segments[0].alerts[0].firing
    site.monitor.restart()
    site.assembly = replace(
        site.assembly, ingestion=site.monitor.ingestion, evaluators={"density": site.monitor.evaluator}
    )
    site.monitor.ingestion.start = lambda now: None  # type: ignore[method-assign]  # noqa: ARG005
    go_on, hangs = threading.Event(), threading.Event()

    def hanging(*_: object) -> ModelReport:
        hangs.set()
        go_on.wait(LIMIT)
        raise ZeroDivisionError("as if")

    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", hanging)
    site.work = site.made([firing] if before == "a reload" else [])
    site.work.start()
    assert hangs.wait(LIMIT)
    site.clock.forward(301.0)
    site.work.look_at_the_clocks()
    (taken_back,) = site.retracted
    go_on.set()
    assert taken_back.segments[0].state is WindowState.ERROR
    assert not taken_back.segments[0].results
    (alert,) = taken_back.segments[0].alerts
    assert alert.firing
    assert alert.held
    assert site.work.unevaluated() == ["density"]


def test_numbers_of_a_cron_line_are_taken_back_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.monitor.evaluator.config = replace(site.monitor.config, evaluate=Cron("0 * * * *"))
    site.work.start()
    wait_for(lambda: site.published)
    monkeypatch.setattr(type(site.monitor.evaluator), "evaluate", lambda *_: threading.Event().wait(LIMIT))
    site.clock.forward(4 * 3600.0 - 300.0)
    site.work.look_at_the_clocks()
    assert site.retracted == []
    site.clock.forward(3600.0 + 301.0)
    site.work.look_at_the_clocks()
    assert len(site.retracted) == 1


def test_e11_a_clock_that_is_set_is_counted_and_everything_is_judged_again(site: Site) -> None:
    site.work.start()
    wait_for(lambda: site.published)
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now - 86_400.0)
    site.work.look_at_the_clocks()
    assert site.counted("cpcmon_clock_jumps_total") == 1.0
    wait_for(lambda: site.published[-1].at < moment.now - 86_000.0)
    wait_for(lambda: site.published[-1].segments[0].valid)
    assert site.published[-1].segments[0].records == 400


@pytest.mark.parametrize("days", [40.0, -40.0])
def test_e11_intake_that_sees_the_new_time_first_forgets_no_segment(site: Site, days: float) -> None:
    """The daemon's thread looks at the clocks once a second; a tick may come before that, or in the middle of it."""
    site.work.start()
    wait_for(lambda: site.published)
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now + 86_400.0 * days)
    ticks = site.counted("cpcmon_tick_duration_seconds_count")
    wait_for(lambda: site.counted("cpcmon_tick_duration_seconds_count") > ticks + 1)
    site.work.look_at_the_clocks()
    ticks = site.counted("cpcmon_tick_duration_seconds_count")
    wait_for(lambda: site.counted("cpcmon_tick_duration_seconds_count") > ticks + 1)
    assert set(site.monitor.ingestion.totals("density")) == {(), (("site", "A"),)}


def test_e12_an_evaluation_that_comes_first_after_a_suspension_judges_nothing(site: Site) -> None:
    """Before the daemon's thread has noticed, or intake has looked at anything."""
    site.work.start()
    wait_for(lambda: site.published)
    site.monitor.ingestion.tick = lambda *_: None  # type: ignore[method-assign, assignment]
    moment = site.clock.moment
    site.clock.moment = replace(moment, now=moment.now + 300.0, running=moment.running + 300.0)
    wait_for(lambda: site.published[-1].at > moment.now)
    judged = [one for one in site.published if one.at > moment.now]
    assert {one.segments[0].state for one in judged} == {WindowState.CATCHING_UP}


def test_intake_that_fails_is_told_and_not_hidden(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("as if")

    site.work.start()
    monkeypatch.setattr(site.monitor.ingestion, "tick", broken)
    wait_for(lambda: site.failures)
    assert isinstance(site.failures[0], ZeroDivisionError)


def test_a_stroke_that_does_not_move_is_unhealthy() -> None:
    progress = Watchdog(stuck_seconds=120.0)
    assert progress.problems(0.0) == []
    progress.moved("ingestion", 0.0)
    progress.moved("evaluation", 50.0)
    assert progress.problems(120.0) == []
    assert progress.problems(121.0) == ["ingestion has not moved for 121 seconds"]
    progress.end("ingestion")
    assert progress.problems(130.0) == []


def test_what_could_not_be_written_before_a_reload_is_not_forgotten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk an alert fires, then somebody reloads to make room: it must not end for that."""
    state, config = site.monitor.state, site.assembly.config

    def full(*_: object) -> None:
        raise StatePaused("full")

    firing = {"accuracy_low": AlertState(AlertPhase.FIRING, site.clock().now)}
    remembered = AlertMemory(VersionCounts(), (WindowAlertState(ALL, alerts=firing),)).to_bytes()
    before = build(config, {"density": REFERENCE}, state)
    with monkeypatch.context() as patch:
        patch.setattr(state, "commit", full)
        before.ingestion.store_value(key_of("density"), remembered)
        before.ingestion.stop(site.clock().now)
    assert before.ingestion.pending_values() == {key_of("density"): remembered}
    after = build(config, {"density": REFERENCE}, state, before.ingestion.pending_values())
    assert after.evaluators["density"].told == (("density", "all", "accuracy_low"),)
    assert after.ingestion.pending_values() == {key_of("density"): remembered}


def test_history_that_could_not_be_written_before_a_reload_is_written_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, config, history, now = site.monitor.state, site.assembly.config, History(), site.clock().now

    def full(*_: object) -> None:
        raise StatePaused("full")

    before = build(config, {"density": REFERENCE}, state, history=history)
    with monkeypatch.context() as patch:
        patch.setattr(state, "commit", full)
        history.note(report(0.5), now)
        before.ingestion.stop(now)
    after = build(config, {"density": REFERENCE}, state, history=history)
    assert list(state.history()) == []
    after.ingestion.tick(now, 1.0)
    assert [row.place for row in state.history() if row is not None] == [(Span.RECENT, 1)]
    assert not history.unwritten()
