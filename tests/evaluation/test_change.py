"""The change alert in a running monitor: it comes early, ends, survives kills, and starts anew when it must."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.core.alerts import AlertPhase, AlertRule, AlertType
from monitor.core.baselines.comparison import BaselineAction, BaselineMode, BaselineOptions, Verdict
from monitor.core.change import FEWEST_BLOCKS, Direction, Sums
from monitor.core.segments import ALL
from monitor.core.totals import member_values
from monitor.evaluation.stored_values import key_of
from monitor.ingest import model_state
from tests.evaluation.driver import HEALTHY, POOR, START, Monitor, alert, named, phase, whole
from tests.strategies import accepted

CHANGE = AlertRule("accuracy_drop", AlertType.CHANGE)
SURE = np.eye(3, dtype=np.float32)[np.arange(300) % 3] * 0.97 + np.float32(0.01)
"""A model that is better than the reference."""
HOUR = 3600.0


def evidence(monitor: Monitor) -> Sums:
    """Return the sums of the whole model."""
    found = monitor.ingestion.states.common["density"].evidence
    assert found is not None
    sums, *_ = found.table.snapshot([ALL])
    return np.asarray(sums[0])


def test_a_drop_is_noticed_while_the_window_holds_mostly_healthy_records(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, CHANGE, window=5000)
    healthy = monitor.run(HOUR)
    assert phase(healthy) is AlertPhase.OK
    report, minutes = monitor.run(60.0, POOR), 1
    while phase(report) is not AlertPhase.FIRING and minutes < 60:
        report, minutes = monitor.run(60.0, POOR), minutes + 1
    found = whole(report)
    assert phase(report) is AlertPhase.FIRING
    assert minutes * 10 < 100 < found.records / 2
    (change,) = found.changes
    assert change.evidence is not None
    assert change.evidence >= change.threshold
    assert found.verdict is not Verdict.HOLDS
    assert change.records_since == pytest.approx(minutes * 10, abs=30)
    assert change.began_at == pytest.approx(START + HOUR, abs=180.0)


def test_it_ends_when_the_window_has_only_better_records_since_the_alarm(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, CHANGE)
    monitor.run(HOUR)
    monitor.run(HOUR, POOR)
    fired = monitor.now
    assert phase(monitor.run(40 * 60.0)) is AlertPhase.FIRING  # the window of 500 still holds poor records
    report = monitor.run(HOUR)
    assert phase(report) is AlertPhase.OK
    (change,) = whole(report).changes
    assert change.evidence is not None
    assert change.evidence < change.threshold / 2.0
    assert alert(report).since > fired


def test_a_kill_loses_and_repeats_no_evidence(tmp_path: Path) -> None:
    """After kills between commits the sums are those of all records, from the first on."""
    monitor = Monitor(tmp_path, CHANGE, window=60, split=True)
    for number in range(12):
        monitor.send(70, HEALTHY if number % 3 else POOR, site="AB"[number % 2])
        monitor.now, monitor.running = monitor.now + 60.0, monitor.running + 60.0
        monitor.tick()
        if number % 4 == 1:
            monitor.evaluate()
        if number % 2:
            monitor.restart()
    monitor.tick()
    monitor.evaluate()
    sums = evidence(monitor)
    pools = [HEALTHY if number % 3 else POOR for number in range(12)]
    rows = np.array([pool[place % len(pool)] for place, pool in enumerate(pool for pool in pools for _ in range(70))])
    gauge = monitor.ingestion.states.common["density"].gauge
    assert sums[0] == 840
    values = np.rint(member_values(gauge, accepted(rows.astype(np.float64))) * (1 << 36)).sum(axis=1)
    assert sums[1:5].tolist() == values.tolist()


def test_a_restart_keeps_the_evidence(tmp_path: Path) -> None:
    """Also that of a segment that is new since evidence was last stored."""
    reference = BaselineOptions(BaselineMode.REFERENCE)
    monitor, other = (Monitor(tmp_path / name, CHANGE, split=True, baseline=reference) for name in "ab")
    for one in (monitor, other):
        one.run(20 * 60.0, site="A")
        one.run(3 * 60.0, POOR, site="A")
    monitor.restart(away=0.0)
    found, expected = (one.run(60.0, POOR, site="A") for one in (monitor, other))
    for segment in ("all", "site=A"):
        assert named(found, segment).changes == named(expected, segment).changes


def test_another_tolerance_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(tmp_path, CHANGE)
    monitor.run(HOUR)
    monitor.run(5 * 60.0, POOR)
    monitor.restart(alerts=(replace(CHANGE, tolerance=0.1),))
    assert "the evidence of changes starts anew" in caplog.text
    assert whole(monitor.step()).changes[0].evidence is None


def test_a_rise_is_noticed_by_a_rule_that_looks_upwards(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, replace(CHANGE, direction=Direction.UP))
    assert phase(monitor.run(HOUR)) is AlertPhase.OK
    assert phase(monitor.run(4 * HOUR, SURE)) is AlertPhase.FIRING


def test_an_own_baseline_is_collected_first_and_a_reset_ends_the_alarm(tmp_path: Path) -> None:
    own = BaselineOptions(BaselineMode.OWN, records=500)
    monitor = Monitor(tmp_path, CHANGE, baseline=own)
    report = monitor.run((FEWEST_BLOCKS - 1) * 60.0)
    (change,) = whole(report).changes
    assert (change.evidence, change.tolerance, change.blocks) == (None, None, FEWEST_BLOCKS - 1)
    assert alert(report).held, "nothing is watched yet"
    report = monitor.run(HOUR)
    assert (phase(report), alert(report).held) == (AlertPhase.OK, False)
    assert phase(monitor.run(2 * HOUR, POOR)) is AlertPhase.FIRING
    monitor.evaluator.change_baseline("all", BaselineAction.RESET)
    report = monitor.run(60.0, POOR)
    assert phase(report) is AlertPhase.OK
    assert phase(monitor.run(4 * HOUR, POOR)) is AlertPhase.OK


def test_each_segment_has_its_own_evidence(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, CHANGE, split=True, baseline=BaselineOptions(BaselineMode.REFERENCE))
    for minute in range(120):
        monitor.send(10, HEALTHY, site="A")
        monitor.send(10, HEALTHY if minute < 60 else POOR, site="B")
        report = monitor.step()
    assert phase(report, "site=A") is AlertPhase.OK
    assert phase(report, "site=B") is AlertPhase.FIRING
    assert named(report, "site=B").changes[0].began_at == pytest.approx(START + HOUR, abs=300.0)


def test_an_alarm_ends_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """Its time would be in the future, and no window would ever hold only later records."""
    monitor = Monitor(tmp_path, CHANGE)
    monitor.run(HOUR)
    assert phase(monitor.run(HOUR, POOR)) is AlertPhase.FIRING
    monitor.now -= 365 * 24 * HOUR
    assert phase(monitor.run(4 * HOUR)) is AlertPhase.OK


def test_a_segment_that_was_away_counts_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition was elsewhere, or the shards together had too many segments."""
    monitor = Monitor(tmp_path, CHANGE, split=True, baseline=BaselineOptions(BaselineMode.REFERENCE))
    monitor.run(HOUR, site="A")
    before = named(monitor.run(3 * 60.0, POOR, site="A"), "site=A").changes[0].evidence
    with monkeypatch.context() as patch:
        patch.setattr(model_state, "_by_segment", lambda held: {ALL: list(held)})
        monitor.step()
        monitor.restart(away=0.0)
        monitor.step()
    assert named(monitor.step(), "site=A").changes[0].evidence == before


def test_lost_records_are_no_evidence(tmp_path: Path) -> None:
    """What evaluations took of damaged chunks is missing from the sums: subtracted from new records, it would be an alarm."""
    monitor = Monitor(tmp_path, CHANGE)
    monitor.run(HOUR, SURE)
    monitor.kill()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.execute("UPDATE chunks SET records = records + 1 WHERE id > 10 AND id < 50")
        connection.commit()
    monitor.start()
    monitor.send(500)
    report = monitor.step()
    assert phase(report) is AlertPhase.OK


def test_without_the_alert_state_old_records_are_no_new_evidence(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, CHANGE)
    monitor.run(HOUR)
    assert phase(monitor.run(HOUR, POOR)) is AlertPhase.FIRING
    assert phase(monitor.run(2 * HOUR)) is AlertPhase.OK
    monitor.ingestion.values.store(key_of("density"), b"not an alert state")
    monitor.tick()
    monitor.restart()
    assert phase(monitor.run(60.0)) is AlertPhase.OK
    assert phase(monitor.run(HOUR, POOR)) is AlertPhase.FIRING
