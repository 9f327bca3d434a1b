"""The alert history, on real state, ingestion and evaluation."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from monitor.core.alerts import AlertPhase, AlertRule, AlertType
from monitor.core.estimate import WindowState
from monitor.core.report import Report, SegmentReport
from monitor.core.segments import ALL
from monitor.evaluation.alert_history import MOST_LINES, MOST_ROWS, AlertHistory, Transition
from tests.evaluation.driver import HEALTHY, LOW, POOR, Monitor, whole
from tests.sinks.receiver import alert

HOUR = 3600.0
OK, PENDING, FIRING, RECOVERING = AlertPhase


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """A monitor with an alert on a drop of five points, by site."""
    found = Monitor(tmp_path / "state", LOW, split=True)
    yield found
    found.kill()


def _steps(rows: tuple[Transition, ...], segment: str = "all") -> list[tuple[AlertPhase, AlertPhase | None]]:
    return [(one.before, one.after) for one in rows if one.segment == segment]


def test_each_transition_is_a_row_and_what_fired_ends_with_how_long(monitor: Monitor) -> None:
    monitor.run(HOUR)
    began = monitor.run(2 * HOUR, POOR)
    since = whole(began).alerts[0].since
    monitor.run(2 * HOUR, HEALTHY)
    rows = monitor.history.rows
    assert _steps(rows) == [(OK, PENDING), (PENDING, FIRING), (FIRING, RECOVERING), (RECOVERING, OK)]
    assert [one.fired for one in rows] == [False, True, False, False]
    last = rows[-1]
    assert (last.ended, last.since, last.seconds) == (True, since, last.at - since)
    assert rows[1].value is not None
    assert rows[1].threshold is not None
    assert rows[1].value < rows[1].threshold
    assert rows[1].accuracy is not None


def test_after_a_kill_at_any_evaluation_rows_and_phases_agree(monitor: Monitor) -> None:
    monitor.run(HOUR)
    for minute in range(240):
        report = monitor.run(60.0, POOR if minute < 120 else HEALTHY)
        if minute % 7 == 0:
            # Lost with the machine: it was evaluated, but not committed.
            monitor.send(10, POOR if minute < 120 else HEALTHY)
            monitor.tick()
            monitor.evaluate()
            monitor.restart()
            report = monitor.step()
        rows = monitor.history.rows
        assert all(before.after is after.before for before, after in pairwise(rows))
        assert (rows[-1].after if rows else OK) is whole(report).alerts[0].phase
    assert [one.after for one in rows if one.fired or one.ended] == [FIRING, OK]


def test_an_alert_that_left_the_configuration_is_gone(monitor: Monitor) -> None:
    monitor.run(HOUR)
    monitor.run(2 * HOUR, POOR)
    monitor.restart(alerts=(replace(LOW, name="renamed"),))
    monitor.step()
    assert _steps(tuple(one for one in monitor.history.rows if one.alert == LOW.name))[-1] == (FIRING, None)


def test_a_segment_that_expired_is_gone(tmp_path: Path) -> None:
    silent = AlertRule("silent", kind=AlertType.SILENT, after_seconds=HOUR, for_seconds=0.0, segments=("site=*",))
    monitor = Monitor(tmp_path / "state", silent, split=True, forget=3 * HOUR)
    monitor.run(HOUR, site="A")
    for _ in range(5 * 60):
        monitor.step()
    assert _steps(monitor.history.rows, "site=A")[-1] == (FIRING, None)
    monitor.kill()


def _report(at: float, *phases: AlertPhase) -> Report:
    """Return a report of a model with an alert for each of some segments."""
    windows = [
        SegmentReport((("site", f"{number:04}"),), 10, WindowState.OK, alerts=(alert(phase=phase),))
        for number, phase in enumerate(phases)
    ]
    return Report("density", at, 0.0, None, (SegmentReport(ALL, 10, WindowState.OK), *windows))


def test_many_transitions_at_once_are_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    history = AlertHistory("density")
    with caplog.at_level(logging.INFO, "cpcmon"):
        assert len(history.note(_report(1.0, *[PENDING] * 200, FIRING))) == 201
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.records[0].levelno == logging.WARNING
    assert "181 more" in caplog.messages[-1]
    caplog.clear()
    assert not history.note(_report(2.0, *[PENDING] * 200, FIRING))
    assert not caplog.records


def test_rows_are_bounded_and_those_of_pending_alerts_go_first() -> None:
    history = AlertHistory("density")
    history.note(_report(1.0, FIRING, *[PENDING] * 10))
    for at in range(2, 400):
        history.note(_report(float(at), FIRING, *[PENDING if at % 2 else OK] * 10))
    assert len(history.rows) == MOST_ROWS
    assert [one.at for one in history.rows if one.fired] == [1.0]
    assert history.rows[-1].at == 399.0


def test_damaged_rows_are_none(caplog: pytest.LogCaptureFixture) -> None:
    history = AlertHistory("density")
    history.restore(b"damage", b"damage")
    assert history.rows == ()
    assert "starting without it" in caplog.text
