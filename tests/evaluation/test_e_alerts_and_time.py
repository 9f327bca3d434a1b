"""Group E of the scenarios, on real state, ingestion and evaluation, with a manual clock."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import IngestOptions
from monitor.core.alerts import AlertPhase, AlertRule, AlertType, On
from monitor.core.baselines.comparison import BaselineMode, BaselineOptions
from monitor.core.calibration import Calibration
from monitor.core.estimate import Estimate, NoEstimate, WindowState
from monitor.core.estimators.confidence import AverageConfidence, DifferenceOfConfidences
from monitor.core.estimators.ensemble import Ensemble
from monitor.daemon.clock import ClockChange, Moment, clock_change
from monitor.errors import StatePaused
from monitor.sources.base import Delivery, Lag
from tests.evaluation.driver import HEALTHY, LOW, POOR, Monitor, alert, monitor_reference, named, phase, whole
from tests.strategies import older, synthetic

pytestmark = pytest.mark.slow

HOUR = 3600.0
SILENT = AlertRule("silent", kind=AlertType.SILENT, after_seconds=2 * HOUR, for_seconds=0.0)
DEGRADED = AlertRule("degraded", kind=AlertType.DEGRADED_INPUT, for_seconds=600.0)


@pytest.fixture
def monitor(tmp_path: Path) -> Monitor:
    """A monitor with an alert on a drop of five points."""
    return Monitor(tmp_path / "state", LOW)


def test_e1_ten_bad_records_leave_the_window_warming_and_fire_nothing(monitor: Monitor) -> None:
    monitor.send(10, POOR)
    for _ in range(120):
        report = monitor.step()
        assert whole(report).state is WindowState.WARMING
        assert whole(report).results == {}
        assert phase(report) is AlertPhase.OK


def test_e2_an_empty_window_has_no_estimate(monitor: Monitor) -> None:
    report = monitor.step()
    assert whole(report).records == 0
    assert not whole(report).valid
    assert whole(report).estimates() == {}
    assert whole(report).last_record_at is None


def test_a_report_describes_the_reference(monitor: Monitor) -> None:
    vectors = synthetic(2000, 3, seed=1, sharpness=2.6)[0]
    facts = monitor.step().reference
    assert facts is not None
    assert facts.confidence == pytest.approx(float(vectors.max(axis=1).mean()))
    assert facts.predicted == tuple(np.bincount(vectors.argmax(axis=1), minlength=3))


def test_a_window_that_once_held_enough_has_too_few_records_and_is_not_warming(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", window=300)
    assert whole(monitor.run(30 * 60)).valid
    monitor.restart(minimum_records=301)
    assert whole(monitor.step()).state is WindowState.TOO_FEW_RECORDS


def test_a_drop_fires_after_its_for_and_recovers_after_as_long(monitor: Monitor) -> None:
    assert phase(monitor.run(HOUR)) is AlertPhase.OK
    assert phase(monitor.run(25 * 60, POOR)) is AlertPhase.PENDING
    report = monitor.run(25 * 60, POOR)
    assert phase(report) is AlertPhase.FIRING
    assert alert(report).threshold == pytest.approx(monitor.evaluator.reference.calibration.accuracy - 0.05)  # type: ignore[union-attr]
    monitor.run(HOUR, HEALTHY)
    assert phase(monitor.run(HOUR, HEALTHY)) is AlertPhase.OK


def test_e6_silence_makes_the_window_stale_and_holds_the_accuracy_alert(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    before = monitor.run(2 * HOUR, POOR)
    assert [one.phase for one in whole(before).alerts] == [AlertPhase.FIRING, AlertPhase.OK]
    for minute in range(4 * 60):
        report = monitor.step()
        low, silent = whole(report).alerts
        assert (low.phase, low.since) == (AlertPhase.FIRING, whole(before).alerts[0].since)
        assert silent.firing == (minute + 1 > 120)
        if minute >= 60:
            assert whole(report).state is WindowState.STALE
            assert whole(report).estimates() == {}
            assert low.held
    monitor.send(1)
    low, silent = whole(monitor.step()).alerts
    assert not silent.firing
    assert low.firing


def test_e7_silence_while_pending_never_fires(monitor: Monitor) -> None:
    monitor.run(HOUR)
    assert phase(monitor.run(25 * 60, POOR)) is AlertPhase.PENDING
    for _ in range(6 * 60):
        assert phase(monitor.step()) is AlertPhase.PENDING


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        pytest.param(0, AlertPhase.OK, id="ok"),
        pytest.param(25, AlertPhase.PENDING, id="pending"),
        pytest.param(100, AlertPhase.FIRING, id="firing"),
    ],
)
def test_e8_a_kill_changes_nothing(tmp_path: Path, minutes: int, expected: AlertPhase) -> None:
    """It reports the same as one that was never killed, minute by minute: `for` continues."""
    killed, twin = (Monitor(tmp_path / name, LOW) for name in ("killed", "twin"))
    for one in (killed, twin):
        one.run(HOUR)
        if minutes:
            one.run(minutes * 60, POOR)
    killed.restart(away=0.0)
    first, twins = killed.step(), twin.step()
    assert phase(first) is phase(twins) is expected
    assert alert(first).since == alert(twins).since
    fired = [[phase(one.run(60, POOR)) for _ in range(90)].index(AlertPhase.FIRING) for one in (killed, twin)]
    # Only the time between the last evaluation and the first one after the start does not count.
    assert 0 <= fired[0] - fired[1] <= 1


def test_e8_a_day_of_downtime_fires_nothing(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    monitor.run(25 * 60, POOR)
    monitor.restart(away=86_400.0)
    first = whole(monitor.step())
    assert [one.phase for one in first.alerts] == [AlertPhase.PENDING, AlertPhase.OK]
    assert first.state is WindowState.STALE


def test_e9_a_start_with_an_empty_state_is_warming_and_fires_nothing(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    first = whole(monitor.step())
    assert first.state is WindowState.WARMING
    assert not any(one.firing for one in first.alerts)


def test_e10_a_backlog_of_old_bad_records_holds_alerts_and_the_newest_decide(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, options=IngestOptions(catching_up_bytes=1000))
    monitor.run(HOUR)
    status = monitor.source.status
    behind = replace(status(), lag=Lag(bytes=2000))
    monitor.source.status = lambda: behind  # type: ignore[method-assign]
    for _ in range(120):
        monitor.send(10, POOR)
        report = monitor.step()
        assert whole(report).state is WindowState.CATCHING_UP
        assert whole(report).estimates() == {}
        assert (phase(report), alert(report).held) == (AlertPhase.OK, True)
    monitor.send(500, HEALTHY)
    monitor.source.status = status  # type: ignore[method-assign]
    report = monitor.step()
    assert whole(report).valid
    assert phase(report) is AlertPhase.OK


def test_e10_nothing_is_evaluated_before_the_backlog_is_known(monitor: Monitor) -> None:
    monitor.run(HOUR)
    monitor.restart()
    assert whole(monitor.evaluate()).state is WindowState.CATCHING_UP
    monitor.tick()
    assert whole(monitor.evaluate()).valid


@pytest.mark.parametrize("days", [1.0, -1.0])
def test_e11_a_clock_that_is_set_by_a_day_evicts_and_fires_nothing(tmp_path: Path, days: float) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT, split=True, forget=HOUR)
    monitor.run(HOUR, site="A")
    before = Moment(monitor.now, monitor.running, monitor.running)
    monitor.now += 86_400.0 * days
    found = clock_change(before, Moment(monitor.now, monitor.running, monitor.running))
    assert found.jumped_seconds == pytest.approx(86_400.0 * days)
    monitor.ingestion.states.clock_jumped(found.jumped_seconds)
    monitor.ingestion.backlog.invalidate()
    for _ in range(10):
        report = monitor.step()
        assert [one.records for one in report.segments] == [500, 500]
        assert whole(report).valid
        assert not any(one.phase is not AlertPhase.OK for segment in report.segments for one in segment.alerts)


def test_e12_after_a_suspension_nothing_is_evaluated_before_the_backlog_is_read(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    before = Moment(monitor.now, monitor.running, monitor.running)
    monitor.sleep(3 * HOUR)
    assert clock_change(before, Moment(monitor.now, monitor.running, before.awake)) == ClockChange(0.0, suspended=True)
    monitor.ingestion.backlog.invalidate()
    held = whole(monitor.evaluate())
    assert held.state is WindowState.CATCHING_UP
    assert not any(one.firing for one in held.alerts)
    monitor.tick()
    asleep = whole(monitor.evaluate())
    assert asleep.state is WindowState.STALE
    assert not any(one.firing for one in asleep.alerts)
    monitor.send(5)
    assert whole(monitor.step()).valid


def test_e12_time_asleep_does_not_count_for_alerts(tmp_path: Path) -> None:
    """Even when ingestion is quicker than the first evaluation, so that nothing is held."""
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    assert whole(monitor.run(22 * 60, POOR)).alerts[0].phase is AlertPhase.PENDING
    monitor.sleep(3 * HOUR)
    low, silent = whole(monitor.run(60, POOR, a_minute=200)).alerts
    assert (low.phase, silent.phase) == (AlertPhase.PENDING, AlertPhase.OK)
    monitor.sleep(3 * HOUR)
    for minute in range(150):
        _, silent = whole(monitor.step()).alerts
        assert silent.firing == (minute + 1 > 120)


def test_e12_a_poll_that_began_before_a_suspension_does_not_count(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    poll = monitor.source.poll

    def asleep(now: float) -> Iterator[Delivery]:
        yield from poll(now)
        monitor.ingestion.backlog.invalidate()

    monitor.source.poll = asleep  # type: ignore[method-assign]
    monitor.tick()
    monitor.source.poll = poll  # type: ignore[method-assign]
    assert whole(monitor.evaluate()).state is WindowState.CATCHING_UP
    monitor.tick()
    assert whole(monitor.evaluate()).valid


def test_a_pause_of_ingestion_is_not_silence_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: records arrive and cannot be ingested. Estimates are retracted, and `silent` does not fire."""
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    commit = monitor.state.commit

    def full(*_: object) -> list[int]:
        raise StatePaused("as if")

    monkeypatch.setattr(monitor.state, "commit", full)
    for minute in range(4 * 60):
        monitor.send(10)
        report = monitor.step()
        assert whole(report).valid == (minute < 10)
        assert not any(one.firing for one in whole(report).alerts)
    assert whole(report).state is WindowState.CATCHING_UP
    monkeypatch.setattr(monitor.state, "commit", commit)
    assert whole(monitor.run(60)).valid


@pytest.mark.parametrize(
    ("time", "accepted"),
    [
        pytest.param("2026-10-25T02:30:00+02:00", True, id="in the hour that comes twice"),
        pytest.param("2016-12-31T23:59:60Z", False, id="leap second"),
        pytest.param("2026-10-25T02:30:00", False, id="without a zone"),
    ],
)
def test_e13_unusual_times_have_no_effect_or_are_rejected(monitor: Monitor, time: str, *, accepted: bool) -> None:
    """It affects one record at most."""
    monitor.run(HOUR)
    monitor.send(1)
    monitor.lines[-1] = monitor.lines[-1].replace(f"{monitor.now}".encode(), f'"{time}"'.encode())
    report = monitor.step()
    counters = monitor.ingestion.view.counters().stored()
    rejected = sum(count for name, count in counters.items() if name[0] == "records_rejected_total")
    assert rejected == (0 if accepted else 1)
    assert whole(report).valid


def replace_estimate(patch: pytest.MonkeyPatch, family: type, estimate: Callable[..., Estimate]) -> None:
    """Let an estimator of a running monitor estimate otherwise, and not by its line."""
    patch.setattr(family, "estimate", estimate)
    patch.delattr(family, "line")
    patch.setattr(Calibration, "_ensemble", lambda known, variants: Ensemble(known.estimators, variants))


@pytest.mark.parametrize("broken", ["raises", "nan"])
def test_e15_an_estimator_that_fails_does_not_affect_others(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """One that is no member of the consensus: the window stays valid."""
    monitor.run(HOUR)

    def estimate(*_: object) -> Estimate:
        if broken == "raises":
            raise ZeroDivisionError("as if")
        return Estimate(float("nan"), 500)

    replace_estimate(monkeypatch, AverageConfidence, estimate)
    report = monitor.step()
    assert whole(report).valid
    assert report.errors == {"ac": 1, "ac_ts": 1}
    assert isinstance(whole(report).results["ac"], NoEstimate)
    assert len(whole(report).estimates()) == len(whole(report).results) - 2


def test_e15_without_a_member_the_consensus_is_an_error_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts on other estimators are evaluated; those on the consensus are held."""
    monitor = Monitor(tmp_path / "state", LOW, replace(LOW, name="atc", estimator="atc_mc_ts"))
    monitor.run(HOUR)
    monitor.run(25 * 60, POOR)

    def estimate(*_: object) -> Estimate:
        raise ZeroDivisionError("as if")

    replace_estimate(monkeypatch, DifferenceOfConfidences, estimate)
    report = monitor.run(HOUR, POOR)
    assert whole(report).state is WindowState.ERROR
    assert set(whole(report).results) - set(whole(report).estimates()) == {"doc", "doc_ts", "consensus"}
    on_consensus, on_atc = whole(report).alerts
    assert (on_consensus.phase, on_consensus.held) == (AlertPhase.PENDING, True)
    assert (on_atc.phase, on_atc.held) == (AlertPhase.FIRING, False)


def test_e17_a_segment_that_disappears_loses_its_alerts(tmp_path: Path) -> None:
    options = BaselineOptions(BaselineMode.REFERENCE)
    monitor = Monitor(tmp_path / "state", LOW, split=True, forget=6 * HOUR, baseline=options)
    monitor.run(HOUR, site="A")
    report = monitor.run(2 * HOUR, POOR, site="B")
    assert [one.name for one in report.segments] == ["all", "site=A", "site=B"]
    assert phase(report, "site=B") is AlertPhase.FIRING
    monitor.run(5 * HOUR, site="A")
    report = monitor.run(2 * HOUR, site="A")
    assert [one.name for one in report.segments] == ["all", "site=A"]
    monitor.restart()
    report = monitor.run(60, site="A")
    assert [one.name for one in report.segments] == ["all", "site=A"]
    assert phase(monitor.run(60, site="B"), "site=B") is AlertPhase.OK


def test_e18_a_new_threshold_takes_effect_and_the_wait_restarts(monitor: Monitor) -> None:
    monitor.run(HOUR)
    assert phase(monitor.run(25 * 60, POOR)) is AlertPhase.PENDING
    monitor.restart(away=0.0, alerts=(replace(LOW, drop=0.04),))
    for _ in range(30):
        assert phase(monitor.run(60, POOR)) is AlertPhase.PENDING
    assert phase(monitor.run(5 * 60, POOR)) is AlertPhase.FIRING
    monitor.restart(away=0.0, alerts=(replace(LOW, drop=None, below=0.1),))
    assert phase(monitor.step()) is AlertPhase.OK


def test_e20_rejected_records_fire_their_own_alert_and_none_on_accuracy(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, DEGRADED)
    monitor.run(HOUR)
    for _ in range(60):
        monitor.send(47, POOR)
        monitor.lines.extend([b'{"probs": [0.5, 0.5]}\n'] * 3)
        report = monitor.step()
    low, degraded = whole(report).alerts
    assert report.input.rejected_share == pytest.approx(0.06)
    assert whole(report).state is WindowState.DEGRADED_INPUT
    assert whole(report).estimates() == {}
    assert low.phase is not AlertPhase.FIRING
    assert low.held
    assert degraded.firing


def test_one_hot_outputs_have_no_estimate(monitor: Monitor) -> None:
    """Every estimator based on confidence would report 100%."""
    monitor.run(HOUR)
    for number in range(600):
        monitor.lines.append(b'{"probs": [1, 0, 0]}\n' if number % 3 else b'{"probs": [0, 1, 0]}\n')
    report = monitor.step()
    assert report.input.one_hot
    assert whole(report).state is WindowState.DEGRADED_INPUT


def test_records_of_another_version_are_a_version_mismatch(monitor: Monitor) -> None:
    monitor.run(HOUR, version="2.1")
    report = monitor.run(HOUR, version="2.2")
    assert whole(report).state is WindowState.VERSION_MISMATCH
    assert whole(report).estimates() == {}
    report = monitor.run(HOUR, version="2.1")
    assert whole(report).valid


@pytest.mark.parametrize("mended", ["reference", "configuration"])
def test_a_reference_of_the_new_version_ends_the_mismatch_at_once(monitor: Monitor, mended: str) -> None:
    """With a new reference, or with any_version."""
    monitor.run(HOUR, version="2.1")
    assert whole(monitor.run(2 * HOUR, version="2.2")).state is WindowState.VERSION_MISMATCH
    if mended == "reference":
        monitor.restart(reference=replace(monitor_reference(), version="2.2"))
    else:
        monitor.restart(versions_alike=True)
    report = monitor.run(60, version="2.2")
    assert whole(report).state is WindowState.TOO_FEW_RECORDS
    assert whole(monitor.run(HOUR, version="2.2")).valid
    monitor.restart()
    assert whole(monitor.run(60, version="2.2")).valid


def test_records_that_are_too_old_for_the_window_do_not_refresh_it(tmp_path: Path) -> None:
    """An archive is replayed while the live feed is dead: the window must become stale."""
    monitor = Monitor(tmp_path / "state", LOW, SILENT)
    monitor.run(HOUR)
    before = monitor.run(25 * 60, POOR)
    assert whole(before).alerts[0].phase is AlertPhase.PENDING
    for minute in range(3 * 60):
        monitor.send(10, at=monitor.now - 40 * 86_400.0)
        report = monitor.step()
        low, silent = whole(report).alerts
        assert low.phase is AlertPhase.PENDING
        assert silent.firing == (minute + 1 > 120)
        assert whole(report).valid == (minute + 1 <= 60)
    assert whole(monitor.run(60)).valid


def test_a_segment_reports_its_own_window(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "state", LOW, split=True)
    for _ in range(60):
        monitor.send(5, HEALTHY, site="A")
        monitor.send(5, POOR, site="B")
        report = monitor.step()
    good, bad = named(report, "site=A"), named(report, "site=B")
    assert good.estimates()["consensus"].accuracy - bad.estimates()["consensus"].accuracy > 0.15
    assert sum(good.predicted) == good.records == 300


def test_an_alert_on_the_field_interval_compares_the_wide_one(tmp_path: Path) -> None:
    rule = AlertRule("certainly_low", below=0.99, on=On.FIELD_UPPER, for_seconds=0.0, new_records=0.0)
    monitor = Monitor(tmp_path, rule)
    monitor.send(300, POOR)
    window = whole(monitor.step())
    assert window.alerts[0].value == window.field[-1].upper
    assert window.field[-1].upper > window.field[0].upper


def test_an_old_reference_is_judged_by_its_consensus_which_the_log_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its change alerts have no evidence, and are held."""
    monitor = Monitor(tmp_path, LOW, AlertRule("drop", AlertType.CHANGE))
    monitor.restart(reference=older(monitor_reference()))
    monitor.send(300, POOR)
    report = monitor.step()
    assert report.reference is not None
    assert report.reference.headline == "consensus"
    assert whole(report).alerts[0].estimator == "consensus"
    assert whole(report).alerts[0].value is not None
    assert whole(report).field == ()
    assert (whole(report).alerts[1].held, whole(report).alerts[1].value) == (True, None)
    assert "density: its reference was made by an older version" in caplog.text
    assert "run `cpcmon calibrate` again" in caplog.text
